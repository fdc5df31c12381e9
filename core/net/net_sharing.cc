#include "core/net/net_sharing.h"

#include <algorithm>
#include <set>

#include "core/operator/in_place.h"

namespace stepnet {
namespace {

bool is_alias(const OpSpec& spec, size_t output) {
  const ParamSpec* p = spec.output_spec(static_cast<int>(output));
  return std::ranges::any_of(spec.aliases, [&](const AliasRule& rule) { return rule.out == p->name; });
}

bool over(const NetStep& step, size_t input, size_t output) {
  return may_write_over(*step.op->spec, static_cast<int>(input), static_cast<int>(output));
}

std::vector<Blob*> shared_blobs(std::span<const NetStep> steps) {
  std::set<Blob*> found;
  for (const NetStep& step : steps)
    for (const AliasRule& rule : step.op->spec->aliases) {
      const auto in = static_cast<size_t>(step.op->spec->input_index(rule.in));
      const auto out = static_cast<size_t>(step.op->spec->output_index(rule.out));
      if (in >= step.in.size() || out >= step.out.size() || !step.in[in] || !step.out[out]) continue;
      found.insert({step.in[in], step.out[out]});
    }
  return {found.begin(), found.end()};
}

}  // namespace

std::vector<StepSharing> find_sharing(std::span<const NetStep> steps) {
  std::vector<StepSharing> sharing(steps.size());
  const auto shared = std::make_shared<const std::vector<Blob*>>(shared_blobs(steps));
  if (shared->empty()) return sharing;
  std::set<const Blob*> touched;
  for (size_t s = 0; s < steps.size(); ++s) {
    touched.insert(steps[s].in.begin(), steps[s].in.end());
    if (std::ranges::find_first_of(steps[s].out, *shared) != steps[s].out.end()) sharing[s].blobs = shared;
    for (const Blob* blob : steps[s].out) sharing[s].begins.push_back(touched.count(blob) == 0);
    touched.insert(steps[s].out.begin(), steps[s].out.end());
  }
  return sharing;
}

SharedOutputs::SharedOutputs(const NetStep& step, const StepSharing& sharing, std::vector<const Tensor*>& inputs)
    : step_(step), sharing_(sharing), copies_(step.in.size()) {
  for (size_t o = 0; o < step.out.size(); ++o) {
    if (!step.out[o] || is_alias(*step.op->spec, o) || !is_shared(o)) continue;
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
  return blob->is_tensor() && std::ranges::any_of(*sharing_.blobs, [&](const Blob* other) {
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
    own = copies_[i].defined() ? copies_[i] : before.clone();
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
