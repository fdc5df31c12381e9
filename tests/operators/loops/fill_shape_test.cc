// The shape rules shared by the fill operators, through ConstantFill.
#include "operators/loops/fill_shape.h"

#include "tests/operators/op_test.h"

namespace stepnet::testing::fill_shape_test {
namespace {

Shape filled(const std::vector<Argument>& args, const Feeds& feeds = {}) {
  std::vector<std::string> inputs;
  for (const auto& feed : feeds) inputs.push_back(feed.first);
  return run_op_on(make_op("ConstantFill", inputs, {"Y"}, args), feeds)[0].shape();
}

TEST(FillShape, ComesFromTheArgument) {
  EXPECT_EQ(filled({make_arg("shape", std::vector<int>{2, 0, 3})}), (Shape{2, 0, 3}));
  EXPECT_EQ(filled({}), Shape{});
  EXPECT_EQ(filled({make_arg("shape", std::vector<int>{2}), make_arg("run_once", 0)}), (Shape{2}));
}

TEST(FillShape, ComesFromTheInputsShape) {
  const Feeds x = {{"X", normal<float>({3, 1})}};
  EXPECT_EQ(filled({}, x), (Shape{3, 1}));
  EXPECT_EQ(filled({make_arg("extra_shape", std::vector<int>{4})}, x), (Shape{3, 1, 4}));
}

TEST(FillShape, ComesFromTheInputsValues) {
  const Argument as_shape = make_arg("input_as_shape", true);
  EXPECT_EQ(filled({as_shape}, {{"X", Tensor::of<int64_t>({2}, {5, 6})}}), (Shape{5, 6}));
  EXPECT_EQ(filled({as_shape}, {{"X", Tensor::of<int32_t>({1}, {0})}}), (Shape{0}));
  EXPECT_EQ(filled({as_shape, make_arg("extra_shape", std::vector<int>{7})}, {{"X", Tensor::of<int64_t>({1}, {5})}}),
            (Shape{5, 7}));
  EXPECT_EQ(filled({as_shape}, {{"X", Tensor::of<int64_t>({0}, {})}}), Shape{});
}

TEST(FillShape, IsUnknownUntilTheValuesAre) {
  NetDef net;
  *net.add_op() = make_op("ConstantFill", {"X"}, {"Y"}, {make_arg("input_as_shape", true)});
  *net.add_op() = make_op("UniformFill", {"X"}, {"Z"});
  auto known = infer_net(net, {{"X", TensorType::of(DType::int64, {2})}});
  EXPECT_FALSE(known["Y"].known);
  EXPECT_EQ(known["Z"].str(), "float[2]");
  known = infer_net(net, {});
  EXPECT_FALSE(known["Y"].known);
  EXPECT_FALSE(known["Z"].known);
}

TEST(FillShape, RefusesWhatContradicts) {
  const Feeds x = {{"X", normal<float>({3})}};
  auto error = [&](const std::vector<Argument>& args, const Feeds& feeds) {
    return error_of([&] { filled(args, feeds); });
  };
  EXPECT_NE(error({make_arg("shape", std::vector<int>{3})}, x).find("not from both"), std::string::npos);
  EXPECT_NE(error({make_arg("shape", 3)}, {}).find("\"ints\", but it has i"), std::string::npos);
  EXPECT_NE(error({make_arg("input_as_shape", true)}, {}).find("needs an input"), std::string::npos);
  EXPECT_NE(error({make_arg("input_as_shape", true)}, x).find("must be int32 or int64"), std::string::npos);
  EXPECT_NE(error({make_arg("input_as_shape", true)}, {{"X", integers<int64_t>({1, 1}, 1, 2)}})
                .find("must have one dimension"),
            std::string::npos);
}

TEST(FillShape, RefusesSizesThatAreNegativeOrTooLarge) {
  auto error = [](const std::vector<int64_t>& shape) { return error_of([&] { filled({make_arg("shape", shape)}); }); };
  EXPECT_NE(error({2, -1}).find("size -1"), std::string::npos);
  EXPECT_NE(error({1ll << 40, 1ll << 40}).find("64 bits"), std::string::npos);
  EXPECT_NE(error({1, 1, 1, 1, 1, 1, 1, 1, 1}).find("at most 8"), std::string::npos);
}

TEST(FillShape, MayBeInPlace) {
  const Feeds x = {{"X", normal<float>({3, 2})}};
  const auto out = run_op_on(make_op("ConstantFill", {"X"}, {"X"}, {make_arg("value", 4.0f)}), x);
  EXPECT_EQ(compare(out[0], Tensor::of<float>({3, 2}, {4, 4, 4, 4, 4, 4}), 0), "");
}

}  // namespace
}  // namespace stepnet::testing::fill_shape_test
