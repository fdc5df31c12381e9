// NanCheck: the first element that is not finite.
#include <cmath>
#include <limits>

#include "stepnet/gradients.h"
#include "tests/core/errors.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::nan_check_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(NanCheck, PassesFiniteValuesThrough) {
  for (const Shape& shape : {Shape{2, 3}, Shape{1}, Shape{0, 4}, Shape{}}) {
    const Tensor x = normal<float>(shape, 5), wide = normal<double>(shape, 5);
    EXPECT_EQ(compare(run_op_on(make_op("NanCheck", {"X"}, {"Y"}), {{"X", x}})[0], x, 0), "");
    EXPECT_EQ(compare(run_op_on(make_op("NanCheck", {"X"}, {"X"}), {{"X", wide}})[0], wide, 0), "");
  }
  const Tensor extreme = Tensor::of<float>({2}, {std::numeric_limits<float>::max(), -0.0F});
  EXPECT_EQ(compare(run_op_on(make_op("NanCheck", {"X"}, {"Y"}), {{"X", extreme}})[0], extreme, 0), "");
}

std::string error_with(const Tensor& x) {
  return error_of([&] { run_op_on(make_op("NanCheck", {"grad", "other"}, {"checked"}), {{"grad", x}, {"other", x}}); });
}

TEST(NanCheck, NamesTheFirstPlace) {
  const std::string text = error_with(Tensor::of<float>({2, 3}, {0, 1, 2, 3, NAN, kInf}));
  expect_contains(text, "element [1, 1] of X is nan; 2 of 6 elements are not finite");
  expect_contains(text, "checked = NanCheck(grad, other), grad is float[2, 3]");
  expect_contains(error_with(Tensor::of<float>({2}, {-kInf, 0})), "element [0] of X is -inf; 1 of 2");
  expect_contains(error_with(Tensor::of<double>({}, {NAN})), "of X is nan; 1 of 1");
}

TEST(NanCheck, OtherTypesAreRefused) {
  expect_contains(error_with(Tensor::of<int32_t>({1}, {1})), "there is no kernel for elements of type int32");
}

TEST(NanCheck, Gradients) {
  for (const Shape& shape : {Shape{2, 3}, Shape{1}, Shape{0}})
    EXPECT_EQ(check_gradient(make_op("NanCheck", {"X"}, {"Y"}), {{"X", normal<double>(shape)}}, {"X"}), "");
}

TEST(NanCheck, TheGradientIsCheckedToo) {
  NetDef net;
  *net.add_op() = make_op("NanCheck", {"X"}, {"Y"});
  add_gradient_operators(net, {.targets = {{"Y", "dY"}}, .wanted = {"X"}, .stop = {}});
  Workspace w;
  w.tensor("X") = Tensor::of<float>({2}, {1, 2});
  w.tensor("dY") = Tensor::of<float>({2}, {1, NAN});
  RunContext run;
  const std::string text = error_of([&] { run_net_once(net, w, run); });
  expect_contains(text, "element [1] of X is nan");
  expect_contains(text, "NanCheck(dY)");
}

}  // namespace
}  // namespace stepnet::testing::nan_check_test
