#include "core/passes/gradients.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::alias_test {
namespace {

TEST(Alias, SharesTheStorage) {
  Workspace workspace;
  workspace.tensor("X") = Tensor::of<float>({2}, {1, 2});
  NetDef net;
  net.add_external_input("X");
  *net.add_op() = make_op("Alias", {"X"}, {"Y"});
  RunContext run;
  run_net_once(net, workspace, run);
  EXPECT_TRUE(workspace.tensor("X").shares_storage(workspace.tensor("Y")));
  EXPECT_EQ(workspace.fetch("Y").str(), "float[2]");
}

TEST(Alias, PassesItsGradientThroughWithoutAnOperator) {
  EXPECT_EQ(check_gradient(make_op("Alias", {"X"}, {"Y"}), {{"X", normal<double>({2, 3})}}, {"X"}), "");
  NetDef net;
  net.add_external_input("X");
  *net.add_op() = make_op("Alias", {"X"}, {"Y"});
  const auto result = add_gradient_operators(net, {.targets = {{"Y", "dY"}}, .wanted = {"X"}, .stop = {}});
  EXPECT_EQ(net.op_size(), 1);
  EXPECT_EQ(result.gradients.at("X").dense, "dY");
}

}  // namespace
}  // namespace stepnet::testing::alias_test
