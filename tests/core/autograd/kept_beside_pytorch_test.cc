// No operator keeps more bytes for its derivative than its counterpart in PyTorch, whichever inputs require a gradient.
// With STEPNET_KEPT_TABLE=1 the table is printed, a row for each choice of these inputs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

#include "core/gradcheck/input_text.h"
#include "tests/core/autograd/pytorch_saves.h"
#include "tests/core/autograd/tape_testing.h"

namespace stepnet::autograd::testing::kept_beside_pytorch_test {
namespace {

int64_t block(int64_t bytes) { return (bytes + 63) / 64 * 64; }  // what the allocator counts

// An operator with float32 values, and which of its inputs can be differentiated.
struct Call {
  const BesidePyTorch& row;
  std::shared_ptr<const EagerOp> op = nullptr;
  std::vector<std::string> names = {}, outputs = {};
  std::vector<Tensor> inputs = {};
  std::vector<int> differentiable = {};
};

bool has_gradient(const EagerOp& op, int input) {
  Flags wanted(static_cast<size_t>(op.inputs()));
  wanted.set(static_cast<size_t>(input));
  return op.gradient(wanted, op.wanted_outputs()).program.results[static_cast<size_t>(input)].defined();
}

Call call_of(const BesidePyTorch& row) {
  const OpSpec& spec = op_spec(row.type);
  Call call{row};
  std::vector<Argument> args;
  for (const std::string& text : row.args) args.push_back(parse_arg(spec, text));
  for (const std::string& text : row.inputs) {
    const InputText input = parse_input("an input", text, DType::float32);
    call.names.push_back(input.name);
    call.inputs.push_back(input_value(input, call.names.size()));
  }
  std::vector<int> in_place(static_cast<size_t>(row.outputs), -1);
  for (const InPlaceRule& rule : spec.in_place)
    if (const int out = spec.output_index(rule.out); rule.enforced && out < row.outputs)
      in_place[static_cast<size_t>(out)] = spec.input_index(rule.in);
  call.op = EagerOp::get({.type = row.type,
                          .inputs = std::vector<bool>(row.inputs.size(), true),
                          .outputs = std::vector<bool>(static_cast<size_t>(row.outputs), true),
                          .args = args,
                          .in_place = in_place});
  for (int o = 0; o < row.outputs; ++o) call.outputs.push_back(call.op->output_name(o));
  for (int i = 0; i < call.op->inputs(); ++i)
    if (is_floating(call.inputs[static_cast<size_t>(i)].dtype()) && has_gradient(*call.op, i))
      call.differentiable.push_back(i);
  return call;
}

struct Kept {
  int64_t here = 0;
  std::map<std::string, int64_t> values = {};  // by name, the bytes of inputs and outputs
};

// Those inputs that require a gradient are interior variables, whose nodes hold no bytes, and all go when the call is
// over, so that what is left is the node's.
Kept kept_by(const Call& call, const std::vector<int>& wanted) {
  Kept kept;
  const int64_t before = live_bytes();
  std::shared_ptr<Node> node;
  {
    std::vector<Variable> inputs;
    for (const Tensor& value : call.inputs) inputs.emplace_back(value.clone());
    for (const int i : wanted)
      inputs[i] = own({}, inputs[i], [](const Gradients&, const NodeRun&) { return Gradients{}; });
    const std::vector<Variable> outputs = run(*call.op, inputs);
    const auto count = [&](const std::string& name, const Variable& v) {
      kept.values[name] = static_cast<int64_t>(v.value().bytes());
    };
    for (size_t o = 0; o < outputs.size(); ++o) count(call.outputs[o], outputs[o]);
    for (size_t i = 0; i < inputs.size(); ++i) count(call.names[i], inputs[i]);
    for (const Variable& v : outputs)
      if (v.grad_fn()) node = v.grad_fn();
  }
  kept.here = live_bytes() - before;
  return kept;
}

// "int64 32,1" is a value of that type and shape.
int64_t bytes_of(const std::string& value, const Kept& kept) {
  if (const auto named = kept.values.find(value); named != kept.values.end()) return block(named->second);
  std::string text = value;
  std::ranges::replace(text, ' ', ',');
  const TensorType type = parse_input("PyTorch's value", "value=" + text, DType::float32).type;
  return block(type.shape.size() * static_cast<int64_t>(dtype_size(type.dtype)));
}

bool holds(const std::string& when, const Call& call, const std::vector<int>& wanted) {
  if (when.empty()) return true;
  std::istringstream names(when);
  for (std::string name; std::getline(names, name, '|');)
    if (std::ranges::any_of(wanted, [&](int i) { return call.names[static_cast<size_t>(i)] == name; })) return true;
  return false;
}

int64_t kept_by_pytorch(const Call& call, const std::vector<int>& wanted, const Kept& kept) {
  int64_t bytes = 0;
  for (const SavedByPyTorch& saved : call.row.saves)
    if (holds(saved.when, call, wanted)) bytes += bytes_of(saved.value, kept);
  return bytes;
}

std::string names_of(const Call& call, const std::vector<int>& wanted) {
  std::string names;
  for (const int i : wanted) names += (names.empty() ? "" : ", ") + call.names[static_cast<size_t>(i)];
  return names;
}

// Calls fn(wanted) for every choice of inputs that require a gradient.
template <class Fn>
void each_choice(const Call& call, Fn fn) {
  const auto many = static_cast<int>(call.differentiable.size());
  for (int set = 1; set < 1 << many; ++set) {
    std::vector<int> wanted;
    for (int i = 0; i < many; ++i)
      if (set >> i & 1) wanted.push_back(call.differentiable[i]);
    fn(wanted);
  }
}

class KeptBesidePyTorch : public TapeTest {};

TEST_F(KeptBesidePyTorch, IsNotMoreForAnyOperator) {
  const bool prints = std::getenv("STEPNET_KEPT_TABLE") != nullptr;
  int choices = 0, fewer = 0;
  if (prints) fmt::print("| operator | PyTorch | gradients of | bytes | PyTorch's |\n|---|---|---|---|---|\n");
  for (const BesidePyTorch& row : beside_pytorch()) {
    SCOPED_TRACE(row.type + " beside " + row.counterpart);
    const Call call = call_of(row);
    EXPECT_FALSE(call.differentiable.empty());
    each_choice(call, [&](const std::vector<int>& wanted) {
      kept_by(call, wanted);  // what the first call of an operator makes and keeps is no part of a graph
      const Kept kept = kept_by(call, wanted);
      const int64_t theirs = kept_by_pytorch(call, wanted, kept);
      EXPECT_LE(kept.here, theirs) << "bytes with gradients of " << names_of(call, wanted);
      ++choices;
      fewer += kept.here < theirs ? 1 : 0;
      if (prints)
        fmt::print("| {} | {} | {} | {} | {} |\n", row.type, row.counterpart, names_of(call, wanted), kept.here,
                   theirs);
    });
  }
  if (prints) fmt::print("{} choices, in {} of which less is kept than in PyTorch\n", choices, fewer);
  EXPECT_GT(beside_pytorch().size(), 120);
  EXPECT_GT(choices, 250);
}

// A value is named as the operator names it, and a condition names inputs that can be differentiated.
TEST_F(KeptBesidePyTorch, RowsNameWhatIsThere) {
  for (const BesidePyTorch& row : beside_pytorch()) {
    const Call call = call_of(row);
    for (const SavedByPyTorch& saved : row.saves) {
      std::istringstream names(saved.when);
      for (std::string name; std::getline(names, name, '|');)
        EXPECT_TRUE(
            std::ranges::any_of(call.differentiable, [&](int i) { return call.names[static_cast<size_t>(i)] == name; }))
            << row.type << " has no " << name;
    }
  }
}

}  // namespace
}  // namespace stepnet::autograd::testing::kept_beside_pytorch_test
