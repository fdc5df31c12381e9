// Copies, and Alias, which makes none.
#include "stepnet/gradients.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::copy_test {
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

TEST(Copy, HasItsOwnStorage) {
  Workspace workspace;
  workspace.tensor("X") = Tensor::of<float>({2}, {1, 2});
  NetDef net;
  net.add_external_input("X");
  *net.add_op() = make_op("Copy", {"X"}, {"Y"});
  RunContext run;
  run_net_once(net, workspace, run);
  EXPECT_FALSE(workspace.tensor("X").shares_storage(workspace.tensor("Y")));
  EXPECT_EQ(compare(workspace.fetch("Y"), workspace.fetch("X"), 0), "");
}

TEST(Copy, TakesAnyTypeAndSize) {
  const OperatorDef def = make_op("Copy", {"X"}, {"Y"});
  EXPECT_EQ(run_op_on(def, {{"X", Tensor::of<std::string>({1}, {"a"})}})[0].data<std::string>()[0], "a");
  EXPECT_EQ(run_op_on(def, {{"X", normal<float>({0, 2})}})[0].str(), "float[0, 2]");
  const Tensor x = integers<bool>({3}, 0, 1);
  EXPECT_EQ(compare(run_op_on(make_op("Copy", {"X"}, {"X"}), {{"X", x}})[0], x, 0), "");
}

TEST(Copy, Gradient) {
  EXPECT_EQ(check_gradient(make_op("Copy", {"X"}, {"Y"}), {{"X", normal<double>({2, 3})}}, {"X"}), "");
}

TEST(CopyCPUToGPU, AllFormsCopyOnTheCpu) {
  const Tensor x = normal<float>({2, 3});
  for (const char* type : {"CopyCPUToGPU", "CopyGPUToCPU", "CopyFromCPUInput", "EnsureCPUOutput"}) {
    const OperatorDef def = make_op(type, {"X"}, {"Y"});
    EXPECT_EQ(compare(run_op_on(def, {{"X", x}})[0], x, 0), "") << type;
    EXPECT_EQ(run_op_on(def, {{"X", normal<float>({0})}})[0].str(), "float[0]");
    EXPECT_EQ(check_gradient(def, {{"X", normal<double>({2, 3})}}, {"X"}), "") << type;
  }
}

TEST(CopyOnDeviceLike, Copies) {
  const OperatorDef def = make_op("CopyOnDeviceLike", {"X", "D"}, {"Y"});
  const Tensor x = normal<double>({2, 3}), other = integers<int32_t>({4}, 0, 9);
  EXPECT_EQ(compare(run_op_on(def, {{"X", x}, {"D", other}})[0], x, 0), "");
  EXPECT_EQ(check_gradient(def, {{"X", x}, {"D", other}}, {"X"}), "");
}

}  // namespace
}  // namespace stepnet::testing::copy_test
