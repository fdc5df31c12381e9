// The same elements with other dimensions.
#include "tests/operators/op_test.h"

namespace stepnet::testing::reshape_test {
namespace {

Argument to(const std::vector<int>& shape) { return make_arg("shape", shape); }

std::string reshaped(const Shape& from, const std::vector<int>& shape) {
  const Tensor x = normal<float>(from);
  const auto out = run_op_on(make_op("Reshape", {"X"}, {"Y", "old"}, {to(shape)}), {{"X", x}});
  EXPECT_EQ(compare(out[0], x.reshaped(out[0].shape()), 0), "");
  EXPECT_EQ(out[1].str(), fmt::format("int64[{}]", from.rank()));
  for (int i = 0; i < from.rank(); ++i) EXPECT_EQ(out[1].data<int64_t>()[i], from[i]);
  return out[0].shape().str();
}

TEST(Reshape, ResolvesZeroAndMinusOne) {
  EXPECT_EQ(reshaped({2, 3, 4}, {6, 4}), "[6, 4]");
  EXPECT_EQ(reshaped({2, 3, 4}, {0, -1}), "[2, 12]");
  EXPECT_EQ(reshaped({2, 3, 4}, {-1, 0, 2}), "[4, 3, 2]");
  EXPECT_EQ(reshaped({1}, {}), "[]");
  EXPECT_EQ(reshaped({}, {1, 1}), "[1, 1]");
  EXPECT_EQ(reshaped({2, 0}, {-1, 3}), "[0, 3]");
}

TEST(Reshape, TakesTheShapeAsInput) {
  const Tensor x = normal<float>({2, 3});
  const auto out =
      run_op_on(make_op("Reshape", {"X", "S"}, {"Y", "old"}), {{"X", x}, {"S", Tensor::of<int32_t>({2}, {-1, 1})}});
  EXPECT_EQ(compare(out[0], x.reshaped({6, 1}), 0), "");
  EXPECT_EQ(compare(out[1], Tensor::of<int32_t>({2}, {2, 3}), 0), "");
  EXPECT_EQ(out[1].dtype(), DType::int32);
}

TEST(Reshape, WorksInPlaceAndOnStrings) {
  const Tensor x = normal<float>({2, 3});
  const auto out = run_op_on(make_op("Reshape", {"X"}, {"X", "old"}, {to({3, 2})}), {{"X", x}});
  EXPECT_EQ(compare(out[0], x.reshaped({3, 2}), 0), "");
  EXPECT_EQ(compare(out[1], Tensor::of<int64_t>({2}, {2, 3}), 0), "");
  const Tensor text = Tensor::of<std::string>({2}, {"a", "b"});
  const auto strings = run_op_on(make_op("Reshape", {"X"}, {"Y"}, {to({2, 1})}), {{"X", text}});
  EXPECT_EQ(strings[0].data<std::string>()[1], "b");
}

TEST(Reshape, Gradient) {
  EXPECT_EQ(
      check_gradient(make_op("Reshape", {"X"}, {"Y", "old"}, {to({3, -1})}), {{"X", normal<double>({2, 3})}}, {"X"}),
      "");
  EXPECT_EQ(check_gradient(make_op("Reshape", {"X"}, {"X", "old"}, {to({-1})}), {{"X", normal<double>({2, 3})}}, {"X"}),
            "");
  EXPECT_EQ(check_gradient(make_op("Reshape", {"X", "S"}, {"Y", "old"}),
                           {{"X", normal<double>({2, 0})}, {"S", Tensor::of<int64_t>({1}, {-1})}}, {"X"}),
            "");
}

TEST(Reshape, GradientWithoutOldShape) {
  EXPECT_EQ(check_gradient(make_op("Reshape", {"X"}, {"Y"}, {to({3, 2})}), {{"X", normal<double>({2, 3})}}, {"X"}), "");
  EXPECT_NE(error_of([] {
              check_gradient(make_op("Reshape", {"X"}, {"X"}, {to({3, 2})}), {{"X", normal<double>({2, 3})}}, {"X"});
            }).find("give Reshape its second output"),
            std::string::npos);
}

TEST(Reshape, RefusesShapesThatDoNotFit) {
  auto error = [](const std::vector<int>& shape) {
    return error_of([&] { run_op_on(make_op("Reshape", {"X"}, {"Y"}, {to(shape)}), {{"X", normal<float>({2, 3})}}); });
  };
  EXPECT_NE(error({2, 2}).find("shape [2, 3] has 6 elements, which do not fit shape [2, 2] of 4"), std::string::npos);
  EXPECT_NE(error({-1, 4}).find("do not divide by 4"), std::string::npos);
  EXPECT_NE(error({-1, -1}).find("more than one -1"), std::string::npos);
  EXPECT_NE(error({2, 3, 0}).find("copies dimension 2"), std::string::npos);
  EXPECT_NE(error({-2, 3}).find("only -1 may be negative"), std::string::npos);
  const Feeds large = {{"X", normal<float>({0, int64_t{1} << 32})}, {"S", Tensor::of<int32_t>({1}, {0})}};
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("Reshape", {"X", "S"}, {"Y", "old"}), large);
            }).find("the old size 4294967296 does not fit int32"),
            std::string::npos);
  const Feeds feeds = {{"X", normal<float>({2})}, {"S", Tensor::of<int64_t>({1}, {2})}};
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("Reshape", {"X", "S"}, {"Y"}, {to({2})}), feeds);
            }).find("by the argument \"shape\" and by an input"),
            std::string::npos);
  EXPECT_NE(error_of([&] { run_op_on(make_op("Reshape", {"X"}, {"Y"}), feeds); }).find("given neither"),
            std::string::npos);
}

OperatorDef flatten(int axis) { return make_op("Flatten", {"X"}, {"Y"}, {make_arg("axis", axis)}); }
const OperatorDef kToVec = make_op("FlattenToVec", {"X"}, {"Y"});

struct Case {
  Shape x;
  int axis;
  Shape y;
};
const Case kCases[] = {{{2, 3, 4}, 0, {1, 24}}, {{2, 3, 4}, 1, {2, 12}}, {{2, 3, 4}, 2, {6, 4}},
                       {{2, 3, 4}, 3, {24, 1}}, {{2, 3, 4}, -1, {6, 4}}, {{5}, 1, {5, 1}},
                       {{}, 0, {1, 1}},         {{3, 0, 2}, 1, {3, 0}},  {{0, 7}, 1, {0, 7}}};

TEST(Flatten, MakesAMatrix) {
  for (const Case& c : kCases) {
    const Tensor x = normal<float>(c.x);
    EXPECT_EQ(compare(run_op_on(flatten(c.axis), {{"X", x}})[0], x.reshaped(c.y), 0), "");
    EXPECT_EQ(compare(run_op_on(kToVec, {{"X", x}})[0], x.reshaped({x.size()}), 0), "");
  }
  const Tensor x = normal<float>({2, 3, 2});
  EXPECT_EQ(run_op_on(make_op("Flatten", {"X"}, {"Y"}), {{"X", x}})[0].str(), "float[2, 6]");
  const Tensor words = Tensor::of<std::string>({1, 2}, {"a", "b"});
  EXPECT_EQ(run_op_on(kToVec, {{"X", words}})[0].data<std::string>()[1], "b");
}

TEST(Flatten, Gradients) {
  for (const Case& c : kCases) {
    const Feeds feeds = {{"X", normal<double>(c.x)}};
    EXPECT_EQ(check_gradient(flatten(c.axis), feeds, {"X"}), "");
    EXPECT_EQ(check_gradient(kToVec, feeds, {"X"}), "");
  }
}

TEST(Flatten, RefusesAnAxisThatIsNotThere) {
  auto fact = [](int axis, const Shape& x) {
    const std::string text = error_of([&] { run_op_on(flatten(axis), {{"X", normal<float>(x)}}); });
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(fact(3, {2, 3}), "Flatten: axis 3 is out of range for 2 dimensions");
  EXPECT_EQ(fact(-3, {2, 3}), "Flatten: axis -3 is out of range for 2 dimensions");
  EXPECT_EQ(fact(1, {}), "Flatten: axis 1 is out of range for 0 dimensions");
}

const OperatorDef kMerge = make_op("MergeDim", {"X"}, {"Y"});

OperatorDef prepend(int64_t size) { return make_op("PrependDim", {"X"}, {"Y"}, {make_arg("dim_size", size)}); }

struct Division {
  Shape divided, merged;
};
const Division kDivisions[] = {
    {{2, 3, 4}, {6, 4}}, {{3, 1}, {3}}, {{1, 5}, {5}}, {{2, 0, 3}, {0, 3}}, {{2, 2, 0}, {4, 0}}};

TEST(MergeDim, ThereAndBack) {
  for (const Division& c : kDivisions) {
    const Tensor x = normal<float>(c.divided), y = x.reshaped(c.merged);
    EXPECT_EQ(compare(run_op_on(kMerge, {{"X", x}})[0], y, 0), "");
    EXPECT_EQ(compare(run_op_on(prepend(c.divided[0]), {{"X", y}})[0], x, 0), "");
  }
}

TEST(MergeDim, Gradients) {
  for (const Division& c : kDivisions) {
    EXPECT_EQ(check_gradient(kMerge, {{"X", normal<double>(c.divided)}}, {"X"}), "");
    EXPECT_EQ(check_gradient(prepend(c.divided[0]), {{"X", normal<double>(c.merged)}}, {"X"}), "");
  }
}

TEST(MergeDim, Errors) {
  auto fact = [](const OperatorDef& def, const Shape& x) {
    const std::string text = error_of([&] { run_op_on(def, {{"X", normal<float>(x)}}); });
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(fact(kMerge, {3}), "MergeDim: two dimensions are needed to make one of them, but the input is [3]");
  EXPECT_EQ(fact(prepend(2), {3, 1}), "PrependDim: the first dimension of [3, 1] has size 3, which 2 does not divide");
  EXPECT_EQ(fact(prepend(0), {3}), "PrependDim: argument \"dim_size\" must be at least 1, but is 0");
  EXPECT_EQ(fact(prepend(1), {}), "PrependDim: the input is a single value, which has no dimension to divide");
  EXPECT_EQ(fact(prepend(1), {1, 1, 1, 1, 1, 1, 1, 1}), "PrependDim: a tensor has at most 8 dimensions");
}

const OperatorDef kResize = make_op("ResizeLike", {"X", "S"}, {"Y"});

TEST(ResizeLike, KeepsTheElementsAndTakesTheShape) {
  const Tensor x = normal<float>({2, 3});
  const Tensor shaped = run_op_on(kResize, {{"X", x}, {"S", integers<int32_t>({3, 1, 2}, 0, 1)}})[0];
  EXPECT_EQ(shaped.str(), "float[3, 1, 2]");
  EXPECT_EQ(compare(shaped, x.reshaped({3, 1, 2}), 0), "");
  EXPECT_EQ(run_op_on(kResize, {{"X", normal<float>({2, 0})}, {"S", normal<float>({0, 5})}})[0].str(), "float[0, 5]");
  EXPECT_EQ(run_op_on(kResize, {{"X", normal<float>({1})}, {"S", normal<float>({})}})[0].str(), "float[]");
}

TEST(ResizeLike, Gradient) {
  const Feeds feeds = {{"X", normal<double>({2, 3})}, {"S", normal<double>({6})}};
  EXPECT_EQ(check_gradient(kResize, feeds, {"X"}), "");
}

TEST(ResizeLike, SizesMustBeEqual) {
  EXPECT_NE(error_of([] {
              run_op_on(kResize, {{"X", normal<float>({2, 3})}, {"S", normal<float>({5})}});
            }).find("data [2, 3] has 6 elements, which do not fit the shape [5] of shape_tensor"),
            std::string::npos);
}

OperatorDef dims_op(const char* type, const std::vector<int>& dims, const char* output = "Y") {
  return make_op(type, {"X"}, {output}, {make_arg("dims", dims)});
}

struct Squeezing {
  Shape longer;
  std::vector<int> dims;
  Shape shorter;
};

const Squeezing kSqueezings[] = {{{1, 3, 4}, {0}, {3, 4}}, {{2, 1, 3, 1}, {3, 1}, {2, 3}},
                                 {{1, 1}, {0, 1}, {}},     {{2, 1, 3}, {1, 1}, {2, 3}},
                                 {{0, 1}, {1}, {0}},       {{2, 3}, {}, {2, 3}}};

TEST(Squeeze, RemovesAndExpandDimsInserts) {
  for (const Squeezing& c : kSqueezings) {
    const Tensor x = normal<float>(c.longer);
    EXPECT_EQ(compare(run_op_on(dims_op("Squeeze", c.dims), {{"X", x}})[0], x.reshaped(c.shorter), 0), "");
    EXPECT_EQ(compare(run_op_on(dims_op("ExpandDims", c.dims), {{"X", x.reshaped(c.shorter)}})[0], x, 0), "");
    EXPECT_EQ(compare(run_op_on(dims_op("Squeeze", c.dims, "X"), {{"X", x}})[0], x.reshaped(c.shorter), 0), "");
  }
}

TEST(Squeeze, Gradients) {
  for (const Squeezing& c : kSqueezings) {
    EXPECT_EQ(check_gradient(dims_op("Squeeze", c.dims), {{"X", normal<double>(c.longer)}}, {"X"}), "");
    EXPECT_EQ(check_gradient(dims_op("ExpandDims", c.dims), {{"X", normal<double>(c.shorter)}}, {"X"}), "");
  }
}

TEST(Squeeze, BadDimsAreNamed) {
  auto error = [](const char* type, const std::vector<int>& dims, const Shape& x) {
    return error_of([&] { run_op_on(dims_op(type, dims), {{"X", normal<float>(x)}}); });
  };
  auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(
      has(error("Squeeze", {1}, {1, 3}), "argument \"dims\" names dimension 1 of [1, 3], whose size is 3 and not 1"));
  EXPECT_TRUE(has(error("Squeeze", {2}, {1, 3}), "argument \"dims\" names dimension 2, but the shape has 2"));
  EXPECT_TRUE(has(error("ExpandDims", {-1}, {3}), "argument \"dims\" names dimension -1, but the shape has 2"));
  EXPECT_TRUE(has(error("ExpandDims", {4}, {3}), "argument \"dims\" names dimension 4, but the shape has 2"));
  EXPECT_TRUE(has(error("ExpandDims", {0}, {1, 1, 1, 1, 1, 1, 1, 1}), "has more than 8"));
}

}  // namespace
}  // namespace stepnet::testing::reshape_test
