// Cumsum against plain loops and central differences, to the second order.
#include "tests/operators/op_test.h"

namespace stepnet::testing::cumsum_test {
namespace {

OperatorDef cumsum(int axis, bool exclusive, bool reverse) {
  return make_op("Cumsum", {"X"}, {"Y"},
                 {make_arg("axis", axis), make_arg("exclusive", exclusive), make_arg("reverse", reverse)});
}

Tensor naive(const Tensor& x, int axis, bool exclusive, bool reverse) {
  Tensor y = Tensor::zeros(DType::float64, x.shape());
  const int64_t size = x.dim(axis), inner = x.shape().from(axis + 1).size();
  for (int64_t i = 0; i < x.size(); ++i)
    for (int64_t j = 0; j < size; ++j) {
      const int64_t k = i / inner % size;
      const bool before = reverse ? j > k : j < k;
      if (before || (j == k && !exclusive)) y.data<double>()[i] += x.data<double>()[i + (j - k) * inner];
    }
  return y;
}

TEST(Cumsum, AddsUpAlongTheAxis) {
  const Tensor x = normal<double>({3, 4, 5});
  for (int axis = 0; axis < 3; ++axis)
    for (const bool exclusive : {false, true})
      for (const bool reverse : {false, true}) {
        const Tensor y = run_op_on(cumsum(axis - 3, exclusive, reverse), {{"X", x}})[0];
        EXPECT_EQ(compare(y, naive(x, axis, exclusive, reverse), 1e-14), "") << axis << exclusive << reverse;
      }
}

TEST(Cumsum, Floats) {
  const Tensor x = Tensor::of<float>({4}, {1, 2, 3, 4});
  const OperatorDef def = make_op("Cumsum", {"X"}, {"Y"}, {make_arg("axis", 0)});
  EXPECT_EQ(compare(run_op_on(def, {{"X", x}})[0], Tensor::of<float>({4}, {1, 3, 6, 10}), 0), "");
}

TEST(Cumsum, Gradients) {
  for (const Shape& shape : {Shape{2, 3, 2}, Shape{1, 1}, Shape{0, 3}, Shape{3, 0}})
    for (const bool exclusive : {false, true})
      for (const bool reverse : {false, true})
        EXPECT_EQ(check_gradient(cumsum(1, exclusive, reverse), {{"X", normal<double>(shape)}}, {"X"}), "")
            << shape.str() << exclusive << reverse;
}

TEST(Cumsum, TheAxisMustBeGivenAndExist) {
  const Feeds feeds = {{"X", normal<float>({2, 3})}};
  EXPECT_NE(
      error_of([&] { run_op_on(cumsum(2, false, false), feeds); }).find("axis 2 is out of range for 2 dimensions"),
      std::string::npos);
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(error_of([&] { run_op_on(make_op("Cumsum", {"X"}, {"Y"}), feeds); }),
                  "is missing: the dimension to add along"));
  EXPECT_TRUE(has(error_of([&] {
                    run_op_on(cumsum(0, false, false), {{"X", Tensor::scalar(1.0F)}});
                  }),
                  "axis 0 is out of range for 0 dimensions"));
}

}  // namespace
}  // namespace stepnet::testing::cumsum_test
