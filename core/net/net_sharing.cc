#include "core/net/net_sharing.h"

#include <algorithm>
#include <map>

#include "core/operator/in_place.h"

namespace stepnet {
namespace {

bool over(const NetStep& step, size_t input, size_t output) {
  return may_write_over(*step.op->spec, static_cast<int>(input), static_cast<int>(output));
}

// Whether the operator makes the output another name of an input.
bool shows_input(const NetStep& step, size_t output, const std::vector<const Tensor*>& inputs) {
  const OpSpec& spec = *step.op->spec;
  const auto o = static_cast<int>(output);
  const int source = aliased_input(spec, o);
  if (source < 0 || !may_be_alias(spec, o)) return source >= 0;
  const Tensor *from = inputs[source], *like = inputs[shaped_like(spec, o)];
  return from && like && from->shape() == like->shape();
}

}  // namespace

std::vector<StepSharing> find_sharing(std::span<const NetStep> steps, const Dataflow& flow) {
  std::vector<StepSharing> sharing(steps.size());
  const std::vector<Blob*> blobs = blobs_of(steps, flow);
  std::map<int, std::shared_ptr<std::vector<Blob*>>> groups;
  for (int b = 0; b < flow.blobs(); ++b) {
    if (!flow.has_alias(b)) continue;
    auto& group = groups[flow.group(b)];
    if (!group) group = std::make_shared<std::vector<Blob*>>();
    group->push_back(blobs[b]);
  }
  if (groups.empty()) return sharing;
  for (size_t s = 0; s < steps.size(); ++s) {
    const int op = static_cast<int>(s);
    for (const int b : flow.output_blobs(op)) {
      const bool may_share = b >= 0 && flow.has_alias(b);
      sharing[s].blobs.push_back(may_share ? groups.at(flow.group(b)) : nullptr);
      sharing[s].any = sharing[s].any || may_share;
    }
    for (const int value : flow.outputs(op)) {
      const NetValue* made = value < 0 ? nullptr : &flow.value(value);
      sharing[s].begins.push_back(made && made->version == 1 && flow.first(made->blob) < 0);
    }
  }
  return sharing;
}

SharedOutputs::SharedOutputs(const NetStep& step, const StepSharing& sharing, std::vector<const Tensor*>& inputs)
    : step_(step), sharing_(sharing) {
  for (size_t o = 0; o < step.out.size(); ++o) {
    if (!step.out[o] || shows_input(step, o, inputs) || !is_shared(o)) continue;
    const Tensor& output = step.out[o]->tensor();
    bool in_place = false;
    for (size_t i = 0; i < inputs.size() && !sharing.begins[o]; ++i)
      in_place = in_place || (inputs[i] && inputs[i]->shares_storage(output) && over(step, i, o));
    if (in_place && !is_taken(o))
      write_over(o, inputs);
    else
      part(o, inputs);
  }
}

bool SharedOutputs::is_shared(size_t output) const {
  const Blob* blob = step_.out[output];
  // What one tensor alone holds is not looked for among many.
  if (!sharing_.blobs[output] || !blob->is_tensor() || !blob->tensor().storage()) return false;
  if (blob->tensor().storage().use_count() == 1) return false;
  return std::ranges::any_of(*sharing_.blobs[output], [&](const Blob* other) {
    return other != blob && other->is_tensor() && other->tensor().shares_storage(blob->tensor());
  });
}

bool SharedOutputs::is_taken(size_t output) const {
  return std::ranges::any_of(over_, [&](const auto& o) { return o.second == step_.out[output]->tensor().storage(); });
}

void SharedOutputs::write_over(size_t output, std::vector<const Tensor*>& inputs) {
  const Tensor& place = step_.out[output]->tensor();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i] || !inputs[i]->shares_storage(place) || over(step_, i, output)) continue;
    copies_.resize(inputs.size());
    copies_[i] = inputs[i]->clone();
    inputs[i] = &copies_[i];
  }
  over_.emplace_back(output, place.storage());
}

// What is to be written in place by its own name is so on a copy.
void SharedOutputs::part(size_t output, std::vector<const Tensor*>& inputs) {
  Tensor& own = step_.out[output]->tensor();
  const Tensor before = own;
  own = Tensor();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (step_.in[i] != step_.out[output]) continue;
    own = !copies_.empty() && copies_[i].defined() ? copies_[i] : before.clone();
    inputs[i] = &own;
  }
}

void SharedOutputs::check() const {
  for (const auto& [o, storage] : over_) {
    const Tensor& written = step_.out[o]->tensor();
    if (written.storage() == storage) continue;
    Error e(
        fmt::format("\"{}\" shows the bytes of another name that it is to be written over, but has another size: {}",
                    step_.op->def.output(static_cast<int>(o)), written),
        "write to another blob");
    add_op_context(e, *step_.op);
    throw e;
  }
}

}  // namespace stepnet
