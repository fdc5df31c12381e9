#include "tests/core/random_nets_reference.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "core/operator/in_place.h"
#include "stepnet/bound_op.h"

namespace stepnet::testing {
namespace {

bool must_be_in_place(const OpSpec& spec, int in, int out) {
  const InPlaceRule* rule = in_place_rule(spec, in, out);
  return rule && rule->enforced;
}

// The operator with names that nothing shares, but where it asks for that; what it draws stays the same.
OperatorDef apart(const OperatorDef& op, const OpSpec& spec) {
  OperatorDef renamed = op;
  if (spec.random) renamed.SetExtension(draws_as, std::string(draw_name(op)));
  for (int i = 0; i < op.input_size(); ++i)
    if (!op.input(i).empty()) renamed.set_input(i, "in" + std::to_string(i));
  for (int o = 0; o < op.output_size(); ++o) {
    if (op.output(o).empty()) continue;
    renamed.set_output(o, "out" + std::to_string(o));
    for (int i = 0; i < op.input_size(); ++i)
      if (must_be_in_place(spec, i, o)) renamed.set_output(o, renamed.input(i));
  }
  return renamed;
}

}  // namespace

ReferenceBlobs::ReferenceBlobs(const ReferenceBlobs& other) {
  std::map<const Tensor*, std::shared_ptr<Tensor>> copies;
  for (const auto& [name, shown] : other.shown_) {
    std::shared_ptr<Tensor>& copy = copies[shown.value.get()];
    if (!copy) copy = std::make_shared<Tensor>(*shown.value);
    shown_[name] = {copy, shown.shape};
  }
}

ReferenceBlobs& ReferenceBlobs::operator=(ReferenceBlobs other) {
  std::swap(shown_, other.shown_);
  return *this;
}

void ReferenceBlobs::feed(const std::string& name, const Tensor& value) {
  shown_[name] = {std::make_shared<Tensor>(value.clone()), value.shape()};
}

Tensor ReferenceBlobs::at(const std::string& name) const {
  const Name& shown = shown_.at(name);
  return shown.value->reshaped(shown.shape);
}

std::vector<std::string> ReferenceBlobs::names() const {
  std::vector<std::string> names;
  for (const auto& shown : shown_) names.push_back(shown.first);
  return names;
}

void ReferenceBlobs::run(const OperatorDef& op, const std::string& net_name, int64_t iteration) {
  if (op.type() == "Iter") return feed(op.output(0), Tensor::of<int64_t>({1}, {at(op.input(0)).item<int64_t>() + 1}));
  const OpSpec& spec = op_spec(op.type());
  bind_op(op, net_name, 0);  // with its own names: their rules are the operator's
  require(!spec.blob_kernel, "{} works on blobs, and is not in the reference", op.type());
  const BoundOp bound = bind_op(apart(op, spec), net_name, 0);
  std::vector<Tensor> in(op.input_size()), out(op.output_size());
  std::vector<const Tensor*> inputs;
  std::vector<Tensor*> outputs;
  for (int i = 0; i < op.input_size(); ++i) {
    if (!op.input(i).empty()) {
      require(has(op.input(i)), "\"{}\" holds nothing", op.input(i));
      in[i] = at(op.input(i)).clone();
    }
    inputs.push_back(op.input(i).empty() ? nullptr : &in[i]);
  }
  for (int o = 0; o < op.output_size(); ++o) {
    outputs.push_back(op.output(o).empty() ? nullptr : &out[o]);
    for (int i = 0; i < op.input_size(); ++i)
      if (outputs[o] && must_be_in_place(spec, i, o)) outputs[o] = &in[i];
  }
  RunContext context;
  context.iteration = iteration;
  run_op(bound, inputs, outputs, context);
  const auto before = shown_;
  for (int o = 0; o < op.output_size(); ++o)
    if (outputs[o]) write(op, o, *outputs[o], before);
}

// `before`: what names showed when the operator read its inputs.
void ReferenceBlobs::write(const OperatorDef& op, int o, const Tensor& value,
                           const std::map<std::string, Name>& before) {
  const OpSpec& spec = op_spec(op.type());
  Name& shown = shown_[op.output(o)];
  for (const AliasRule& rule : spec.aliases)
    if (spec.output_index(rule.out) == o) {
      const Name& source = before.at(op.input(spec.input_index(rule.in)));
      if (source.shape != value.shape()) continue;  // MatchShape makes another name of equal shapes alone
      shown = source;
      return;
    }
  const auto had = before.find(op.output(o));
  bool in_place = false;
  for (int i = 0; i < op.input_size() && had != before.end(); ++i)
    in_place = in_place || (!op.input(i).empty() && before.at(op.input(i)).value == had->second.value &&
                            may_write_over(spec, i, o));
  // Of two outputs of one value, the second has to go.
  for (int other = 0; other < o && in_place; ++other)
    if (!op.output(other).empty() && shown_.at(op.output(other)).value == had->second.value) in_place = false;
  if (in_place && had->second.value->size() != value.size()) {
    const auto names =
        std::ranges::count_if(shown_, [&](const auto& s) { return s.second.value == had->second.value; });
    // A derivative may ask for the shape that is gone, and other names have the old size.
    require(spec.derivatives.empty() && names == 1, "output {} in place has another size", o);
  }
  for (int i = 0; i < op.input_size(); ++i)
    require(op.input(i) != op.output(o) || !broadcasts(spec) || !keeps_shape(spec, op, i, o) ||
                before.at(op.input(i)).shape == value.shape(),
            "output {} is written over operand {}, which repeats", o, i);
  if (!in_place) shown.value = std::make_shared<Tensor>();
  *shown.value = value;
  shown.shape = value.shape();
}

void ReferenceBlobs::run(const NetDef& net, int64_t iteration) {
  std::set<std::string> touched;
  for (const OperatorDef& op : net.op()) {
    touched.insert(op.input().begin(), op.input().end());
    // What the net writes before it reads it is not what the run before has left.
    for (const std::string& name : op.output())
      if (touched.insert(name).second) shown_.erase(name);
    run(op, net.name(), iteration);
  }
}

}  // namespace stepnet::testing
