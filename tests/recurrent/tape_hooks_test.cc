// What recurrent networks on the tape keep goes through hooks on saved values, and no more is held than is read.
#include <optional>

#include "core/autograd/variable_state.h"
#include "recurrent/form/short_form.h"
#include "tests/recurrent/tape_layers.h"

namespace stepnet::autograd::testing::tape_hooks_test {
namespace {

Variable loss_of(const Layer& l, const std::string& type, const std::vector<Variable>& inputs, bool hooks) {
  if (!hooks) return sum_of(run(type, inputs, l.args)[0]);
  const SavedValueHooksScope scope(stored_elsewhere());
  return sum_of(run(type, inputs, l.args)[0]);
}

struct HookCase {
  const char* type;
  int64_t steps;  // 600 of them run by segments
};

void PrintTo(const HookCase& c, std::ostream* out) { *out << c.type << c.steps; }

class TapeLayerHooks : public ::testing::TestWithParam<HookCase> {};

TEST_P(TapeLayerHooks, GiveTheSameGradients) {
  const Layer l = layer(GetParam().type, GetParam().steps);
  const std::vector<Variable> inputs = leaves(l.feeds, l.inputs);
  const Gradients expected = grad({loss_of(l, GetParam().type, inputs, false)}, inputs);
  const Variable loss = loss_of(l, GetParam().type, inputs, true);
  for (const bool keep : {true, true, false}) {
    const Gradients g = grad({loss}, inputs, {.keep_graph = keep});
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_EQ(values_of(g[i].dense), values_of(expected[i].dense)) << l.inputs[i];
  }
  expect_error([&] { grad({loss}, inputs); }, {"a backward pass has run here before"});
}

INSTANTIATE_TEST_SUITE_P(Types, TapeLayerHooks,
                         ::testing::Values(HookCase{"RNN", 5}, HookCase{"GRU", 5}, HookCase{"LSTM", 5},
                                           HookCase{"RNN", 600}, HookCase{"GRU", 600}, HookCase{"LSTM", 600}));

// A hook may run a pass through the layer whose value it unpacks before the layer's gradient has begun, and is told off
// in the middle of it, where that pass would wait for itself.
TEST(TapeLayersWithHooks, MayRunAPassThroughTheirLayerUnlessItIsAtWork) {
  const Layer l = layer("LSTM", 600);
  const std::vector<Variable> inputs = leaves(l.feeds, l.inputs);
  const Gradients expected = grad({loss_of(l, "LSTM", inputs, false)}, inputs);
  int unpacked = 0, at = -1;
  Variable loss;
  Gradients inner;
  SavedValueHooks hooks = stored_elsewhere();
  hooks.unpack = [&, plain = hooks.unpack](const std::any& object) {
    if (unpacked++ == at) inner = grad({loss}, inputs, {.keep_graph = true, .threads = 2});
    return plain(object);
  };
  {
    const SavedValueHooksScope scope(hooks);
    loss = sum_of(run("LSTM", inputs, l.args)[0]);
  }
  grad({loss}, inputs, {.keep_graph = true});
  const int all = std::exchange(unpacked, 0);
  at = 0;
  const Gradients outer = grad({loss}, inputs, {.keep_graph = true});
  for (const Gradients& g : {outer, inner})
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_EQ(values_of(g[i].dense), values_of(expected[i].dense)) << l.inputs[i];
  unpacked = 0;
  at = all - 1;
  expect_error([&] { grad({loss}, inputs, {.keep_graph = true}); }, {"is at work", "runs a backward pass through it"});
}

// Segments that run again do so for each backward pass, if the graph is kept.
TEST(TapeRecurrentBudget, HoldsInEachBackwardPass) {
  const Layer l = layer("LSTM", 600);
  NetDef net = net_from(l.text);
  expand_recurrent(net);
  NetDef budgeted = net;
  for (OperatorDef& op : *budgeted.mutable_op())
    if (op.type() == "RecurrentNetwork") {
      *op.add_arg() = make_arg("segment_steps", 1);
      *op.add_arg() = make_arg("segment_room", 0);
    }
  const std::vector<Variable> inputs = leaves(l.feeds, l.inputs);
  const Gradients expected = grad({sum_of(NetFunction(net, l.inputs, l.outputs)(inputs)[0])}, inputs);
  for (const bool hooks : {false, true}) {
    std::optional<SavedValueHooksScope> scope;
    if (hooks) scope.emplace(stored_elsewhere());
    const Variable loss = sum_of(NetFunction(budgeted, l.inputs, l.outputs)(inputs)[0]);
    scope.reset();
    for (const bool keep : {true, true, false}) {
      const Gradients g = grad({loss}, inputs, {.keep_graph = keep});
      for (size_t i = 0; i < inputs.size(); ++i)
        EXPECT_EQ(values_of(g[i].dense), values_of(expected[i].dense)) << l.inputs[i] << hooks << keep;
    }
  }
}

TEST(TapeLayersWithHooks, LeaveNothingBehindInTheWorkspace) {
  const Layer l = layer("LSTM", 50);
  const std::vector<Variable> inputs = leaves(l.feeds, l.inputs);
  const int64_t before = live_bytes();
  const Variable plain = loss_of(l, "LSTM", inputs, false);
  const int64_t held = live_bytes() - before;
  const int64_t between = live_bytes();
  const Variable hooked = loss_of(l, "LSTM", inputs, true);
  EXPECT_LE(live_bytes() - between, 64);  // the loss, and what is counted by the word
  EXPECT_GT(held, 50 * 2 * 4 * 8 * 5);    // h, c and the gates
  const int64_t packed = live_bytes();
  grad({hooked}, inputs, {.keep_graph = true});
  EXPECT_LE(live_bytes() - packed, 50 * 2 * 4 * 8);
}

// The programs of the forward pass are dropped with it, and with them all that they see.
TEST(TapeLayersWithHooks, OnlyWhatIsReadIsHeldWithoutThem) {
  const Layer l = layer("RNN", 50);
  std::vector<Variable> inputs = leaves(l.feeds, l.inputs);
  for (const size_t i : {2, 3, 4, 5}) inputs[i].set_requires_grad(false);
  Variable loss;
  const int64_t before = live_bytes();
  {
    const Variable x(numbers({50, 2, 3}, 1), true);
    loss = sum_of(run("RNN", {x, inputs[1], inputs[2], inputs[3], inputs[4], inputs[5]}, l.args)[0]);
    std::weak_ptr<Storage> bytes = x.value().storage();
    x.state()->value.drop_bytes();
    EXPECT_TRUE(bytes.expired());
  }
  EXPECT_LE(live_bytes() - before, (51 * 2 * 4 + 50 * 2 * 4) * 8 + 64);
}

}  // namespace
}  // namespace stepnet::autograd::testing::tape_hooks_test
