#include "stepnet/gradients.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::stop_gradient_test {
namespace {

TEST(StopGradient, Copies) {
  const Tensor x = normal<float>({2, 3});
  EXPECT_EQ(compare(run_op_on(make_op("StopGradient", {"X"}, {"Y"}), {{"X", x}})[0], x, 0), "");
  EXPECT_EQ(compare(run_op_on(make_op("StopGradient", {"X"}, {"X"}), {{"X", x}})[0], x, 0), "");
}

TEST(StopGradient, GivesNoGradient) {
  NetDef net;
  net.add_external_input("X");
  *net.add_op() = make_op("StopGradient", {"X"}, {"S"});
  *net.add_op() = make_op("Mul", {"S", "X"}, {"Y"});
  const auto result = add_gradient_operators(net, {.targets = {{"Y", "dY"}}, .wanted = {"X"}, .stop = {}});
  EXPECT_EQ(net.op_size(), 4);  // the gradient of X through the second factor alone, in X's shape
  EXPECT_TRUE(result.gradients.at("X").defined());
}

}  // namespace
}  // namespace stepnet::testing::stop_gradient_test
