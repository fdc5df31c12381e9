// ConstantFill, DiagonalFill and ZerosLike.
#include "tests/operators/op_test.h"

namespace stepnet::testing::constant_fill_test {
namespace {

Tensor fill(std::vector<Argument> args) {
  args.push_back(make_arg("shape", std::vector<int>{2}));
  return run_op_on(make_op("ConstantFill", {}, {"Y"}, args), {})[0];
}

Argument dtype(DType type) { return make_arg("dtype", static_cast<int>(type)); }

TEST(ConstantFill, TypeFollowsFromTheValuesField) {
  EXPECT_EQ(fill({}).str(), "float[2]");
  EXPECT_EQ(compare(fill({}), Tensor::of<float>({2}, {0, 0}), 0), "");
  EXPECT_EQ(compare(fill({make_arg("value", 1.5f)}), Tensor::of<float>({2}, {1.5f, 1.5f}), 0), "");
  EXPECT_EQ(fill({make_arg("value", 3)}).str(), "int64[2]");
  EXPECT_EQ(compare(fill({make_arg("value", 3)}), Tensor::of<int64_t>({2}, {3, 3}), 0), "");
  EXPECT_EQ(fill({make_arg("value", "a")}).data<std::string>()[1], "a");
}

TEST(ConstantFill, TypeIsTheArgumentsIfGiven) {
  for (const DType type : {DType::int32, DType::int64, DType::uint8, DType::int8, DType::uint16, DType::int16}) {
    const Tensor y = fill({dtype(type), make_arg("value", 7)});
    EXPECT_EQ(y.dtype(), type);
    EXPECT_EQ(compare(y, Tensor::of<float>({2}, {7, 7}), 0), "");
  }
  EXPECT_EQ(fill({dtype(DType::float64), make_arg("value", 0.5f)}).str(), "double[2]");
  EXPECT_EQ(compare(fill({dtype(DType::boolean), make_arg("value", 2)}), Tensor::of<bool>({2}, {true, true}), 0), "");
  EXPECT_EQ(fill({dtype(DType::string), make_arg("value", "b")}).data<std::string>()[0], "b");
}

TEST(ConstantFill, IsDoubleLikeADoubleInput) {
  const Feeds x = {{"X", normal<double>({2})}};
  auto like = [&](const std::vector<Argument>& args) {
    return run_op_on(make_op("ConstantFill", {"X"}, {"Y"}, args), x)[0].str();
  };
  EXPECT_EQ(like({make_arg("value", 1.0f)}), "double[2]");
  EXPECT_EQ(like({make_arg("value", 1)}), "int64[2]");
  EXPECT_EQ(like({dtype(DType::float32)}), "float[2]");
  EXPECT_EQ(like({dtype(DType::float16), make_arg("value", 1.5f)}), "float16[2]");
}

TEST(ConstantFill, RefusesAValueInTheWrongField) {
  auto error = [](const std::vector<Argument>& args) { return error_of([&] { fill(args); }); };
  EXPECT_NE(error({dtype(DType::float32), make_arg("value", 1)}).find("\"f\", but it has i"), std::string::npos);
  EXPECT_NE(error({dtype(DType::int32), make_arg("value", 1.0f)}).find("\"i\", but it has f"), std::string::npos);
  EXPECT_NE(error({dtype(DType::int8), make_arg("value", 128)}).find("128 does not fit int8"), std::string::npos);
  EXPECT_NE(error({make_arg("dtype", 99)}).find("99 is not the number"), std::string::npos);
}

TEST(ConstantFill, TakesTheValueFromAnInput) {
  const auto like = [](const Tensor& value, const std::vector<Argument>& args = {}) {
    return run_op_on(make_op("ConstantFill", {"X", "v"}, {"Y"}, args), {{"X", normal<float>({2})}, {"v", value}})[0];
  };
  EXPECT_EQ(compare(like(Tensor::of<float>({1}, {3.5F})), Tensor::of<float>({2}, {3.5F, 3.5F}), 0), "");
  EXPECT_EQ(
      compare(like(Tensor::scalar<float>(3.5F), {make_arg("value", 1.0F)}), Tensor::of<float>({2}, {3.5F, 3.5F}), 0),
      "");
  EXPECT_EQ(compare(like(Tensor::of<int64_t>({1}, {3}), {dtype(DType::int64)}), Tensor::of<int64_t>({2}, {3, 3}), 0),
            "");
  const auto error = [&](const Tensor& value, const std::vector<Argument>& args = {}) {
    return error_of([&] { like(value, args); });
  };
  EXPECT_NE(error(Tensor::of<float>({2}, {1, 2})).find("value must be one value, but has shape [2]"),
            std::string::npos);
  EXPECT_NE(error(Tensor::of<float>({1}, {1}), {dtype(DType::int64)})
                .find("value is float[1], but argument \"dtype\" says int64"),
            std::string::npos);
}

// Caffe2's optimizers write "values" for RmsProp.
TEST(ConstantFill, TakesValuesOfZero) {
  EXPECT_EQ(compare(fill({make_arg("values", 0.0F)}), Tensor::of<float>({2}, {0, 0}), 0), "");
  EXPECT_NE(error_of([] {
              fill({make_arg("values", 2.5F)});
            }).find("argument \"values\" is 2.5, which the public format ignores; the argument is \"value\""),
            std::string::npos);
}

Tensor diagonal(const std::vector<int>& shape, std::vector<Argument> args) {
  args.push_back(make_arg("shape", shape));
  return run_op_on(make_op("DiagonalFill", {}, {"Y"}, args), {})[0];
}

TEST(DiagonalFill, IsTheValueWhereAllIndicesAreEqual) {
  const Argument seven = make_arg("value", 7.0f);
  EXPECT_EQ(compare(diagonal({2, 3}, {seven}), Tensor::of<float>({2, 3}, {7, 0, 0, 0, 7, 0}), 0), "");
  EXPECT_EQ(compare(diagonal({4, 2}, {seven}), Tensor::of<float>({4, 2}, {7, 0, 0, 7, 0, 0, 0, 0}), 0), "");
  EXPECT_EQ(compare(diagonal({2, 2, 2}, {seven}), Tensor::of<float>({2, 2, 2}, {7, 0, 0, 0, 0, 0, 0, 7}), 0), "");
  EXPECT_EQ(compare(diagonal({1, 1}, {seven}), Tensor::of<float>({1, 1}, {7}), 0), "");
  EXPECT_EQ(diagonal({0, 3}, {seven}).str(), "float[0, 3]");
  EXPECT_EQ(diagonal({2, 2}, {make_arg("value", 3)}).str(), "int64[2, 2]");
  EXPECT_EQ(compare(diagonal({2, 2}, {dtype(DType::boolean), make_arg("value", 1)}),
                    Tensor::of<bool>({2, 2}, {true, false, false, true}), 0),
            "");
}

TEST(DiagonalFill, Errors) {
  auto fact = [](const std::vector<int>& shape, const std::vector<Argument>& args) {
    const std::string text = error_of([&] { diagonal(shape, args); });
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(fact({3}, {}), "DiagonalFill: a diagonal needs two dimensions or more, but the shape is [3]");
  EXPECT_EQ(fact({2, 2, 3}, {}),
            "DiagonalFill: the diagonal of more than two dimensions needs equal sizes, but the shape is [2, 2, 3]");
  EXPECT_EQ(fact({2, 2}, {make_arg("value", "a")}),
            "DiagonalFill: the elements would be string, of which a diagonal cannot be");
}

TEST(ZerosLike, HasTypeAndShapeOfTheInput) {
  const OperatorDef def = make_op("ZerosLike", {"X"}, {"Y"});
  EXPECT_EQ(compare(run_op_on(def, {{"X", normal<double>({2, 1})}})[0], Tensor::of<double>({2, 1}, {0, 0}), 0), "");
  EXPECT_EQ(run_op_on(def, {{"X", normal<double>({2, 1})}})[0].str(), "double[2, 1]");
  EXPECT_EQ(run_op_on(def, {{"X", integers<int32_t>({0, 3}, 1, 2)}})[0].str(), "int32[0, 3]");
}

}  // namespace
}  // namespace stepnet::testing::constant_fill_test
