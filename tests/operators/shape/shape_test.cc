// Shape and Size.
#include "tests/operators/op_test.h"

namespace stepnet::testing::shape_test {
namespace {

Tensor shape_of(const Tensor& x, const std::vector<int>& axes = {}) {
  std::vector<Argument> args;
  if (!axes.empty()) args.push_back(make_arg("axes", axes));
  return run_op_on(make_op("Shape", {"X"}, {"Y"}, args), {{"X", x}})[0];
}

Tensor size_of(const Tensor& x) { return run_op_on(make_op("Size", {"X"}, {"Y"}), {{"X", x}})[0]; }

TEST(ShapeOperator, IsTheSizes) {
  EXPECT_EQ(compare(shape_of(normal<float>({2, 0, 3})), Tensor::of<int64_t>({3}, {2, 0, 3}), 0), "");
  EXPECT_EQ(compare(shape_of(normal<double>({4, 5, 6}), {2, -3}), Tensor::of<int64_t>({2}, {6, 4}), 0), "");
  EXPECT_EQ(compare(shape_of(normal<double>({4, 5}), {1, 1, 1}), Tensor::of<int64_t>({3}, {5, 5, 5}), 0), "");
  EXPECT_EQ(shape_of(Tensor::scalar<int32_t>(3)).str(), "int64[0]");
  EXPECT_EQ(shape_of(Tensor::of<std::string>({1}, {"a"})).str(), "int64[1]");
}

TEST(ShapeOperator, SizeIsTheProduct) {
  EXPECT_EQ(compare(size_of(normal<float>({2, 3})), Tensor::scalar<int64_t>(6), 0), "");
  EXPECT_EQ(compare(size_of(normal<float>({})), Tensor::scalar<int64_t>(1), 0), "");
  EXPECT_EQ(compare(size_of(normal<float>({2, 0})), Tensor::scalar<int64_t>(0), 0), "");
  EXPECT_EQ(size_of(normal<float>({2})).dtype(), DType::int64);
}

TEST(ShapeOperator, RefusesAnAxisThatIsNotThere) {
  const std::string text = error_of([] { shape_of(normal<float>({2, 3}), {0, 2}); });
  EXPECT_NE(text.find("axis 2 is out of range for 2 dimensions"), std::string::npos) << text;
}

TEST(IsEmpty, SaysSo) {
  const OperatorDef def = make_op("IsEmpty", {"X"}, {"Y"});
  EXPECT_TRUE(run_op_on(def, {{"X", normal<float>({0, 2})}})[0].item<bool>());
  EXPECT_FALSE(run_op_on(def, {{"X", integers<int32_t>({3}, 0, 1)}})[0].item<bool>());
  EXPECT_EQ(run_op_on(def, {{"X", normal<float>({})}})[0].str(), "bool[]");
}

}  // namespace
}  // namespace stepnet::testing::shape_test
