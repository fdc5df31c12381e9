// How layers are cut into groups, what each rank's net becomes, and what is refused. The nets run in
// tests/recurrent/distributed/pipeline_test.cc.
#include "recurrent/train/wavefront.h"

#include <gtest/gtest.h>

#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/recurrent/stack_text.h"

namespace stepnet::testing::wavefront_test {
namespace {

Model model_of(const std::string& text) { return read_model(parse_net_text(text, "stack.pbtxt")); }
Model four_layers() { return model_of(stack_text()); }

// "type in, in -> out, out" by operator, in lines; parameters left out.
std::string lines_of(const NetDef& net) {
  std::string text;
  for (const OperatorDef& op : net.op()) text += fmt::format("{} -> {}\n", op.type(), fmt::join(op.output(), ", "));
  return text;
}

TEST(Wavefront, CutsLayersWithEquallyMuchToDo) {
  const Model model = four_layers();
  const WavefrontPlan two = plan_wavefront(model, 2), four = plan_wavefront(model, 4);
  EXPECT_EQ(two.crossing.size(), 1U);
  EXPECT_EQ(four.crossing, (std::vector<std::string>{"z_0", "y_1", "z_2"}));
  const std::vector<double>& work = four.work;
  EXPECT_DOUBLE_EQ(std::max(two.work[0], two.work[1]), std::min({std::max(work[0], work[1] + work[2] + work[3]),
                                                                 std::max(work[0] + work[1], work[2] + work[3]),
                                                                 std::max(work[0] + work[1] + work[2], work[3])}));
}

TEST(Wavefront, IsAsFastAsThePipelineOfItsBlocks) {
  WavefrontPlan plan;
  plan.work = {3, 3, 3, 3};
  EXPECT_DOUBLE_EQ(wavefront_speed_up(plan, 1), 1);
  EXPECT_DOUBLE_EQ(wavefront_speed_up(plan, 5), 4.0 * 5 / (5 + 4 - 1));
  plan.work = {2, 6};
  plan.whole = 4;  // 4 and, of four blocks, one by both and three by the slower one
  EXPECT_DOUBLE_EQ(wavefront_speed_up(plan, 4), 12 / (4 + 2.0 + 4.5));
}

TEST(Wavefront, LetsEachRankRunItsBlocks) {
  const Model model = model_of(stack_text({{Layer::lstm, Behind::nothing}, {Layer::gru, Behind::tanh_in_place}}));
  const WavefrontPlan plan = plan_wavefront(model, 2);
  const Model first = wavefront_stage(model, plan, 0, 2), second = wavefront_stage(model, plan, 1, 2);
  EXPECT_EQ(lines_of(first.forward),
            "Gather -> x\n"
            "Split -> x/block_0, x/block_1\n"
            "RecurrentNetwork -> y_0/block_0, h_last_0/block_0, c_last_0/block_0\n"
            "RecurrentNetwork -> y_0/block_1, h_last_0, c_last_0\n");
  EXPECT_EQ(first.stage->sent, (std::vector<std::string>{"y_0/block_0", "y_0/block_1"}));
  EXPECT_EQ(first.stage->sent_types[0].str(), "float[4, 3, 12]");
  EXPECT_EQ(first.stage->sent_types[1].str(), "float[3, 3, 12]");
  EXPECT_EQ(lines_of(second.forward),
            "RecurrentNetwork -> y_1/block_0, y_1/state_0/block_0\n"
            "RecurrentNetwork -> y_1/block_1\n"
            "Concat -> y_1, y_1/blocks\n"
            "Scale -> z_1\n"
            "Tanh -> z_1\n"
            "FC -> logits\n"
            "SoftmaxWithLoss -> p, loss\n");
  EXPECT_EQ(second.stage->received, first.stage->sent);
  EXPECT_EQ(first.carry.size(), 2U);
  EXPECT_TRUE(second.carry.empty());
  EXPECT_EQ(first.init.op_size() + second.init.op_size(), model.init.op_size());
}

TEST(Wavefront, SendsForwardBlocksInOrderAndGradientsInReverse) {
  NetDef net = parse_net_text(
      "op { type: 'Tanh' input: 'a0' output: 'b0' } op { type: 'Tanh' input: 'a1' output: 'b1' }"
      "op { type: 'Tanh' input: 'g0' input: 'g1' output: 'd0' } op { type: 'Tanh' input: 'g1' output: 'd1' }");
  Model::Stage stage;
  stage.rank = 1;
  stage.ranks = 3;
  const std::vector<int> moved = add_messages(net, stage,
                                              {.received = {"a0", "a1"},
                                               .sent = {"b0", "b1"},
                                               .received_gradients = {"g0", "g1"},
                                               .sent_gradients = {"d0", "d1"}},
                                              "world");
  std::string text;
  for (const OperatorDef& op : net.op()) {
    text += op.type() == "Tanh"         ? "run " + op.output(0)
            : op.type() == "SendTensor" ? fmt::format("send {} to {}", op.input(1), op.arg(0).i())
                                        : fmt::format("receive {} from {}", op.output(0), op.arg(0).i());
    text += "\n";
  }
  EXPECT_EQ(text,
            "receive a0 from 0\nrun b0\nsend b0 to 2\nreceive a1 from 0\nrun b1\nsend b1 to 2\n"
            "receive g1 from 2\nreceive g0 from 2\nrun d0\nrun d1\nsend d1 to 0\nsend d0 to 0\n");
  EXPECT_EQ(moved, (std::vector<int>{1, 4, 8, 9, 12}));
}

TEST(Wavefront, AddsUpGradientsOnceTheyAreThere) {
  NetDef net = parse_net_text(
      "op { type: 'A' input: 'x' output: 'y' }"
      "op { type: 'B' output: 'g' } op { type: 'B' output: 'g2' } op { type: 'B' output: 'other' }"
      "op { type: 'B' output: 'g3' } op { type: 'Sum' input: 'g' input: 'g2' input: 'g3' output: 'g' }"
      "op { type: 'C' input: 'g' output: 'end' }");
  add_up_by_blocks(net, 1);
  std::string text;
  for (const OperatorDef& op : net.op())
    text += fmt::format("{}({}) -> {}\n", op.type(), fmt::join(op.input(), ", "), fmt::join(op.output(), ", "));
  EXPECT_EQ(text,
            "A(x) -> y\nB() -> g\nB() -> g2\nSum(g, g2) -> g\nB() -> other\nB() -> g3\nSum(g, g3) -> g\nC(g) -> end\n");
}

// What is read before the sum must not have all of it yet.
TEST(Wavefront, LeavesSumsWhoseTermsAreReadElsewhere) {
  NetDef net = parse_net_text(
      "op { type: 'B' output: 'g' } op { type: 'B' output: 'g2' } op { type: 'C' input: 'g' output: 'c' }"
      "op { type: 'B' output: 'g3' } op { type: 'Sum' input: 'g' input: 'g2' input: 'g3' output: 'g' }");
  const std::string before = net.ShortDebugString();
  add_up_by_blocks(net, 0);
  EXPECT_EQ(net.ShortDebugString(), before);
}

void add_names(const NetDef& net, std::vector<std::string>& names) {
  for (const OperatorDef& op : net.op()) {
    if (!op.HasExtension(recurrent)) continue;
    names.push_back(op.GetExtension(recurrent).step_net().name());
    add_names(op.GetExtension(recurrent).step_net(), names);
  }
}

// Their names tell the numbers apart that they draw.
TEST(Wavefront, GivesBlocksStepNetsOfTheirOwn) {
  const Model model = model_of(stack_text({{Layer::learned_start, Behind::nothing}}));
  WavefrontPlan plan = plan_wavefront(model, 1);
  OperatorDef& layer = *plan.net.mutable_op(1);
  OperatorDef nested = layer;
  nested.MutableExtension(recurrent)->mutable_step_net()->set_name("nested");
  *layer.MutableExtension(recurrent)->mutable_step_net()->add_op() = nested;
  std::vector<std::string> names;
  add_names(wavefront_stage(model, plan, 0, 2).forward, names);
  EXPECT_EQ(names, (std::vector<std::string>{"cell_0/block_0", "nested/block_0", "cell_0/block_1", "nested/block_1"}));
  names.clear();
  add_names(wavefront_stage(model, plan, 0, 2).stage->in_one, names);
  EXPECT_EQ(names, (std::vector<std::string>{"cell_0", "nested"}));
}

// Two layers with the same weights are no place to cut at.
TEST(Wavefront, CutsWhereNoParameterCrosses) {
  NetDef net = parse_net_text(lstm_stack_text(3), "stack.pbtxt");
  for (OperatorDef& op : *net.mutable_op())
    for (std::string& name : *op.mutable_input())
      if (name == "w_ih_1" || name == "b_hh_1") name.back() = '0';
  const WavefrontPlan plan = plan_wavefront(read_model(net), 2);
  EXPECT_EQ(plan.crossing, std::vector<std::string>{"y_1"});
}

TEST(Wavefront, TellsWhereGradientsGo) {
  const auto gradients = [](const NetDef& net, const std::vector<std::string>& frozen) {
    Model model = read_model(net);
    for (const std::string& pattern : frozen) {
      ParameterGroup& group = model.groups.emplace_back();
      group.set_parameters(pattern);
      group.set_frozen(true);
    }
    return plan_wavefront(model, 4).gradients;
  };
  const NetDef stack = parse_net_text(lstm_stack_text(4), "stack.pbtxt");
  const NetDef stops =
      with_between(lstm_stack_text(4), 1, "op { type: 'StopGradient' input: 'y_1' output: 'between' }");
  EXPECT_EQ(gradients(stack, {}), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(gradients(stack, {"E", "*_0"}), (std::vector<bool>{false, true, true}));
  EXPECT_EQ(gradients(stack, {"*_1", "*_2", "*_3"}), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(gradients(stops, {}), (std::vector<bool>{false, false, true}));
  EXPECT_EQ(gradients(stops, {"*_2"}), (std::vector<bool>{false, false, false}));
  expect_contains(error_text([&] { gradients(stack, {"*"}); }), "all parameters of the model are frozen");
  expect_contains(error_text([&] { gradients(stops, {"*_2", "*_3", "*_out"}); }), "depends on none of the blobs");
}

TEST(Wavefront, RefusesOperatorsThatDoNotWorkByTimesteps) {
  const std::string stack =
      with_ones(with_ones(lstm_stack_text(2), "places", "ints: 7 ints: 3 ints: 12"), "times", "ints: 7");
  const auto refusal = [&](const std::string& op) {
    return error_text([&] { plan_wavefront(read_model(with_between(stack, 0, op)), 2); });
  };
  for (const char* type : {"Add", "Sub", "Mul", "Div", "Pow", "Sum"})
    expect_contains(refusal(fmt::format("op {{ type: '{}' input: 'y_0' input: 'places' output: 'between' }}", type)),
                    fmt::format("{} stands between layers, but does not work timestep by timestep", type));
  expect_contains(refusal("op { type: 'LT' input: 'y_0' input: 'y_0' output: 'less' }"
                          "op { type: 'Where' input: 'less' input: 'y_0' input: 'places' output: 'between' }"),
                  "Where stands between layers, but does not work timestep by timestep");
  expect_contains(refusal("op { type: 'Concat' input: 'y_0' input: 'places' output: 'two' arg { name: 'axis' i: 2 } }"
                          "op { type: 'Slice' input: 'two' output: 'between' arg { name: 'starts' ints: 0 ints: 0 "
                          "ints: 0 } arg { name: 'ends' ints: -1 ints: -1 ints: 12 } }"),
                  "Concat stands between layers, but does not work timestep by timestep");
  expect_contains(
      refusal("op { type: 'Add' input: 'y_0' input: 'times' output: 'between' arg { name: 'broadcast' i: 1 } "
              "arg { name: 'axis' i: 0 } }"),
      "Add stands between layers, but does not work timestep by timestep");
}

// A step net's references are to whole values.
TEST(Wavefront, RefusesStepNetsThatReadALayerAsAWhole) {
  NetDef net = parse_net_text(stack_text({{Layer::lstm, Behind::nothing}, {Layer::learned_start, Behind::nothing}}),
                              "stack.pbtxt");
  NetDef& step = *net.mutable_op(2)->MutableExtension(recurrent)->mutable_step_net();
  OperatorDef& mean = *step.add_op();
  mean = parse_net_text(
             "op { type: 'ReduceMean' input: 'y_0' output: 'mean_t' arg { name: 'axes' ints: 0 } "
             "arg { name: 'keepdims' i: 1 } }",
             "mean.pbtxt")
             .op(0);
  step.mutable_op(2)->add_input("mean_t");
  std::rotate(step.mutable_op()->begin(), step.mutable_op()->end() - 1, step.mutable_op()->end());
  expect_contains(error_text([&] { plan_wavefront(read_model(net), 1); }),
                  "the step net reads all timesteps of \"y_0\"");
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Wavefront, RefusesWhatIsNoChain) {
  const std::string text = stack_text();
  const auto refusal = [](const std::string& net, int ranks) {
    return error_text([&] { plan_wavefront(model_of(net), ranks); });
  };
  expect_contains(refusal(text, 5), "the net \"stack\" has 4 recurrent layers, which 5 ranks cannot share");
  expect_contains(refusal(replaced(text, "sequence { outer: \"z_1\"", "reverse: true sequence { outer: \"z_1\""), 2),
                  "runs from the last timestep to the first");
  expect_contains(refusal(replaced(text, "output: \"s\" }",
                                   "output: \"s\" } op { type: \"Copy\" input: \"timestep\" output: \"t_copy\" }"),
                          2),
                  "reads the timestep's number");
  expect_contains(refusal(replaced(text, "type: \"Scale\" input: \"y_2\"",
                                   "type: \"Softmax\" arg { name: \"axis\" i: 0 } input: \"y_2\""),
                          2),
                  "Softmax stands between layers, but does not work timestep by timestep");
  expect_contains(refusal(replaced(text, "input: \"z_0\" input: \"\"", "input: \"z_0\" input: \"h_last_0\""), 2),
                  "\"h_last_0\" is a last state, which another layer reads");
  // A layer that reads the one before the last, too.
  const std::string skips = replaced(text, "type: \"Scale\" input: \"y_2\" output: \"z_2\" }",
                                     "type: \"Sum\" input: \"y_2\" input: \"z_0\" output: \"z_2\" }");
  expect_contains(refusal(skips, 4), "what crosses is not one value of all timesteps, but z_0, z_1");
  EXPECT_EQ(plan_wavefront(model_of(skips), 2).crossing.size(), 1U);
  expect_contains(refusal(replaced(text, "input: \"W_out\"", "input: \"E\""), 2),
                  "\"E\" would be read by ranks 0 and 1");
}

}  // namespace
}  // namespace stepnet::testing::wavefront_test
