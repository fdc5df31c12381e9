#include "stepnet/gradients.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::zero_gradient_test {
namespace {

TEST(ZeroGradient, GivesZeros) {
  NetDef net;
  net.set_name("test");
  net.add_external_input("X");
  net.add_external_input("dY");
  *net.add_op() = make_op("Split", {"X"}, {"Y", "unused"});
  *net.add_op() = make_op("ZeroGradient", {"unused"}, {});
  const auto result = add_gradient_operators(net, {.targets = {{"Y", "dY"}}, .wanted = {"X"}, .stop = {}});
  Workspace workspace;
  workspace.tensor("X") = normal<double>({2, 4});
  workspace.tensor("dY") = Tensor::of<double>({2, 2}, {1, 2, 3, 4});
  RunContext run;
  run_net_once(net, workspace, run);
  EXPECT_EQ(
      compare(workspace.fetch(result.gradients.at("X").dense), Tensor::of<double>({2, 4}, {1, 2, 0, 0, 3, 4, 0, 0}), 0),
      "");
  EXPECT_EQ(net.op(2).type(), "ConstantFill");
}

}  // namespace
}  // namespace stepnet::testing::zero_gradient_test
