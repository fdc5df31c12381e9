// Bytes held for the backward pass, of every operator and every set of inputs that require gradients: those of the
// values that a formula of one of these inputs reads, once each, and not a byte more.
#include <gtest/gtest.h>

#include <set>

#include "core/gradcheck/examples.h"
#include "core/operator/in_place.h"
#include "tests/core/autograd/tape_testing.h"

namespace stepnet::autograd::testing::saved_bytes_test {
namespace {

constexpr int kMostInputs = 6;  // whose subsets are tried

// An operator and values for it.
struct Case {
  GradientSubject subject;
  std::shared_ptr<const EagerOp> op;
  std::vector<int> differentiable;  // inputs
};

EagerOp::Signature signature_of(const OperatorDef& def) {
  EagerOp::Signature s{.type = def.type(), .inputs = {}, .outputs = {}, .args = {}, .in_place = {}};
  for (const std::string& in : def.input()) s.inputs.push_back(!in.empty());
  for (const std::string& out : def.output()) {
    s.outputs.push_back(!out.empty());
    const auto same = std::find(def.input().begin(), def.input().end(), out);
    s.in_place.push_back(same == def.input().end() ? -1 : static_cast<int>(same - def.input().begin()));
  }
  s.args.assign(def.arg().begin(), def.arg().end());
  return s;
}

Case case_of(const OpSpec& spec, const OpExample& example) {
  Case c{example_subject(spec, example, 1), nullptr, {}};
  if (c.subject.inputs.empty() || c.subject.outputs.empty()) return c;
  const OperatorDef& def = c.subject.net.op(0);
  c.op = EagerOp::get(signature_of(def));
  const std::set<std::string> names(c.subject.inputs.begin(), c.subject.inputs.end());
  for (int i = 0; i < def.input_size(); ++i)
    if (names.count(def.input(i)) > 0) c.differentiable.push_back(i);
  return c;
}

struct Reads {
  std::vector<bool> inputs, outputs;
};

// What the formulas of these inputs read together.
Reads reads_of(const Case& c, const std::vector<int>& wanted) {
  const BoundOp& bound = c.op->bound();
  std::vector<bool> present, mask(c.op->inputs());
  for (int o = 0; o < c.op->outputs(); ++o) present.push_back(c.op->wants_output(o));
  for (const int i : wanted) mask[i] = true;
  const GradientProgram program = record_gradient(*bound.spec, bound.def, bound.args.get(), mask, present);
  return {program.reads_input, program.reads_output};
}

// What the formula of one of these inputs or another reads if it runs alone.
Reads reads_of_each(const Case& c, const std::vector<int>& wanted) {
  Reads all{std::vector<bool>(c.op->inputs()), std::vector<bool>(c.op->outputs())};
  for (const int one : wanted) {
    const Reads reads = reads_of(c, {one});
    for (size_t i = 0; i < all.inputs.size(); ++i) all.inputs[i] = all.inputs[i] || reads.inputs[i];
    for (size_t o = 0; o < all.outputs.size(); ++o) all.outputs[o] = all.outputs[o] || reads.outputs[o];
  }
  return all;
}

// What is read of a call. Of a storage that several values share the bytes count once, as the allocator counts them.
struct Bytes {
  int64_t all = 0, floating = 0;
};
Bytes bytes_of(const std::vector<Variable>& inputs, const std::vector<Variable>& outputs, const Reads& reads) {
  Bytes bytes;
  std::set<const Storage*> seen;
  const auto add = [&](const Variable& v, bool read) {
    if (!read || !v.defined() || !v.value().storage() || !seen.insert(v.value().storage().get()).second) return;
    const auto size = static_cast<int64_t>((v.value().storage()->bytes() + 63) / 64 * 64);
    bytes.all += size;
    if (is_floating(v.dtype())) bytes.floating += size;
  };
  for (size_t i = 0; i < inputs.size(); ++i) add(inputs[i], reads.inputs[i]);
  for (size_t o = 0; o < outputs.size(); ++o) add(outputs[o], reads.outputs[o]);
  return bytes;
}

// Of an operator that broadcasts all inputs are read in place of the output, where what else is read of it is smaller.
Reads or_inputs(const Case& c, const std::vector<Variable>& inputs, const std::vector<Variable>& outputs, Reads reads) {
  const bool reads_output = outputs.size() == 1 && reads.outputs[0];
  if (!broadcasts(c.op->spec()) || !reads_output || std::ranges::count(reads.inputs, false) == 0) return reads;
  size_t more = 0;
  for (size_t i = 0; i < inputs.size(); ++i) more += reads.inputs[i] ? 0 : inputs[i].value().bytes();
  if (more >= outputs[0].value().bytes()) return reads;
  return {std::vector<bool>(inputs.size(), true), {false}};
}

// The inputs; those that require a gradient are interior variables, whose nodes hold no bytes.
std::vector<Variable> inputs_of(const Case& c, const std::vector<int>& wanted) {
  std::vector<Variable> inputs;
  for (const std::string& name : c.subject.net.op(0).input())
    inputs.push_back(name.empty() ? Variable() : Variable(c.subject.feeds.at(name).clone()));
  for (const int i : wanted)
    inputs[i] = own({}, inputs[i], [](const Gradients&, const NodeRun&) { return Gradients{}; });
  return inputs;
}

void expect_the_rules_bytes(const Case& c, const std::vector<int>& wanted) {
  std::string names = c.op->type() + " with gradients of";
  for (const int i : wanted) names += " " + c.op->input_name(i);
  const int64_t before = live_bytes();
  Bytes together, each;
  std::shared_ptr<Node> node;
  {
    const std::vector<Variable> inputs = inputs_of(c, wanted);
    const std::vector<Variable> outputs = run(*c.op, inputs);
    together = bytes_of(inputs, outputs, or_inputs(c, inputs, outputs, reads_of(c, wanted)));
    each = bytes_of(inputs, outputs, reads_of_each(c, wanted));
    for (const Variable& v : outputs)
      if (v.defined() && v.grad_fn()) node = v.grad_fn();
  }
  ASSERT_NE(node, nullptr) << names;
  EXPECT_EQ(live_bytes() - before, together.all) << names;
  // Formulas that run together read what they would alone; but sizes of parts, say, serve them all.
  EXPECT_LE(together.floating, each.floating) << names;
}

class TapeSavedBytes : public TapeTest {};

TEST_F(TapeSavedBytes, EqualTheRulesForEveryOperator) {
  int operators = 0, cases = 0;
  for (const std::string& type : op_types()) {
    const OpSpec& spec = op_spec(type);
    if ((spec.derivatives.empty() && !spec.whole_derivative && !spec.composed) || spec.blob_kernel) continue;
    bool tried = false;
    for (const OpExample& example : spec.examples) {
      if (!example.net.empty()) continue;
      const Case c = case_of(spec, example);
      const auto many = static_cast<int>(c.differentiable.size());
      if (many == 0 || many > kMostInputs) continue;
      tried = true;
      for (int set = 1; set < 1 << many; ++set, ++cases) {
        std::vector<int> wanted;
        for (int i = 0; i < many; ++i)
          if (set >> i & 1) wanted.push_back(c.differentiable[i]);
        expect_the_rules_bytes(c, wanted);
      }
    }
    operators += tried ? 1 : 0;
  }
  EXPECT_GT(operators, 100);
  EXPECT_GT(cases, 1000);
}

// A graph of several operators: what its nodes hold, values that several keep counted once.
TEST_F(TapeSavedBytes, OfAGraphAreThoseOfItsNodes) {
  const Variable x(Tensor::zeros(DType::float64, {8, 16}), true), w(Tensor::zeros(DType::float64, {16, 16}), true);
  const Variable mask(Tensor::zeros(DType::float64, {8, 16}));
  const int64_t before = live_bytes();
  Variable h = apply("Tanh", {apply("MatMul", {x, w})});
  const Variable squares = apply("Mul", {h, h});
  const Variable loss = sum_of(apply("Add", {apply("Mul", {squares, mask}), apply("Exp", {h})}));
  h = {};
  // Of tanh its output, which both its own formula and the square read, and of exp its output; x, w and mask are here
  // anyway, and the square itself is read by the mask's gradient alone, which nobody wants, but a variable of its own.
  const int64_t block = 8 * 16 * 8;
  EXPECT_EQ(live_bytes() - before, 3 * block + 64);
  EXPECT_TRUE(keeps_input(squares, 0));
}

}  // namespace
}  // namespace stepnet::autograd::testing::saved_bytes_test
