// What executors and passes do with operators that all ranks must run alike: nothing.
#include <gtest/gtest.h>

#include "core/passes/mixed_precision.h"
#include "core/passes/recompute.h"
#include "core/tensor/dry_device.h"
#include "stepnet/gradients.h"
#include "tests/operators/collective/ranks.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::collective_passes_test {
namespace {

constexpr const char* kChain = R"(
  external_input: 'X'
  op { type: 'CreateCommonWorld' output: 'world' }
  op { type: 'Tanh' input: 'X' output: 'A' }
  op { type: 'Allreduce' input: 'world' input: 'A' output: 'B' }
  op { type: 'Sqr' input: 'B' output: 'C' }
  op { type: 'Broadcast' input: 'world' input: 'C' output: 'D' }
  op { type: 'Tanh' input: 'D' output: 'E' }
  op { type: 'Barrier' input: 'world' }
  op { type: 'Sqr' input: 'E' output: 'F' }
  op { type: 'SumElements' input: 'F' output: 'loss' })";

// The operators on the world, in their order.
std::vector<std::string> on_world(const NetDef& net) {
  std::vector<std::string> types;
  for (const OperatorDef& op : net.op())
    if (op.input_size() > 0 && op.input(0) == "world") types.push_back(op.type());
  return types;
}

NetDef training_net(int* first_gradient_op = nullptr) {
  NetDef net = parse_net_text(kChain);
  const GradientResult made = add_gradient_operators(net, {.targets = {{"loss", ""}}, .wanted = {"X"}, .stop = {}});
  net.add_external_output(made.gradients.at("X").dense);
  if (first_gradient_op) *first_gradient_op = made.first_gradient_op;
  return net;
}

TEST(CollectivePasses, GradientsGoBackInTheOtherOrder) {
  EXPECT_EQ(on_world(training_net()),
            (std::vector<std::string>{"Allreduce", "Broadcast", "Barrier", "Reduce", "Allreduce"}));
}

TEST(CollectivePasses, RecomputationRunsNoneAgain) {
  int first = 0;
  const NetDef net = training_net(&first);
  MemoryQuestion question;
  question.feeds["X"] = TensorType::of(DType::float64, {64, 64});
  question.bytes["world"] = 0;
  const RecomputePlanner planner(net, first, question);
  const RecomputePlan plan = planner.plan(planner.least_bytes());
  EXPECT_FALSE(plan.again.empty());
  EXPECT_EQ(on_world(plan.net), on_world(net));
}

TEST(CollectivePasses, MixedPrecisionLeavesThemInFloat32) {
  NetDef net = parse_net_text(kChain);
  const NetDef made =
      mixed_precision(net, {.type = DType::bfloat16, .known = {{"X", TensorType::of(DType::float32, {4, 4})}}});
  EXPECT_EQ(on_world(made), on_world(net));
  for (const OperatorDef& op : made.op())
    if (op.type() == "Allreduce") {
      EXPECT_EQ(op.input(1).find("bfloat16"), std::string::npos) << op.input(1);
    }
}

// A run without data needs no other ranks to know what they add.
TEST(CollectivePasses, RunsWithoutDataHaveTheRanksThatAreClaimed) {
  const auto shape_of = [](const std::string& world) {
    const DryScope scope;
    Workspace workspace;
    workspace.tensor("X") = Tensor::empty(DType::float32, {12, 4});
    RunContext run;
    run_net_once(parse_net_text("op { type: 'CreateCommonWorld' output: 'world' " + world +
                                "} op { type: 'Allgather' input: 'world' input: 'X' output: 'Y' } "
                                "op { type: 'ReduceScatter' input: 'world' input: 'X' output: 'Z' }"),
                 workspace, run);
    return workspace.fetch("Y").shape().str() + workspace.fetch("Z").shape().str();
  };
  EXPECT_EQ(shape_of(""), "[12, 4][12, 4]");
  claim_world_size(3);
  EXPECT_EQ(shape_of(""), "[36, 4][4, 4]");
  EXPECT_EQ(shape_of("arg { name: 'size' i: 2 } "), "[24, 4][6, 4]");
  claim_world_size(1);
}

TEST(CollectivePasses, PlannedMemoryChangesNothing) {
  const NetDef net = training_net();
  const std::string& gradient = net.external_output(0);
  const Tensor x = normal<double>({4, 5}, 1 + static_cast<uint64_t>(rank()));
  std::vector<Tensor> gradients;
  for (const bool plan : {false, true}) {
    Workspace workspace;
    workspace.tensor("X") = x.clone();
    Net runs(net, workspace, {.plan_memory = plan});
    RunContext run;
    for (int k = 0; k < 4; ++k) runs.run(run);
    EXPECT_EQ(runs.memory().planned, plan);
    gradients.push_back(workspace.fetch(gradient).clone());
  }
  EXPECT_EQ(compare(gradients[1], gradients[0], 0), "");
}

}  // namespace
}  // namespace stepnet::testing::collective_passes_test
