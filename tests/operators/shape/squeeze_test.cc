// Squeeze and ExpandDims: shapes, and that each is the other's gradient.
#include "tests/operators/op_test.h"

namespace stepnet::testing::squeeze_test {
namespace {

OperatorDef dims_op(const char* type, const std::vector<int>& dims, const char* output = "Y") {
  return make_op(type, {"X"}, {output}, {make_arg("dims", dims)});
}

struct Case {
  Shape longer;
  std::vector<int> dims;
  Shape shorter;
};

const Case kCases[] = {{{1, 3, 4}, {0}, {3, 4}}, {{2, 1, 3, 1}, {3, 1}, {2, 3}},
                       {{1, 1}, {0, 1}, {}},     {{2, 1, 3}, {1, 1}, {2, 3}},
                       {{0, 1}, {1}, {0}},       {{2, 3}, {}, {2, 3}}};

TEST(Squeeze, RemovesAndExpandDimsInserts) {
  for (const Case& c : kCases) {
    const Tensor x = normal<float>(c.longer);
    EXPECT_EQ(compare(run_op_on(dims_op("Squeeze", c.dims), {{"X", x}})[0], x.reshaped(c.shorter), 0), "");
    EXPECT_EQ(compare(run_op_on(dims_op("ExpandDims", c.dims), {{"X", x.reshaped(c.shorter)}})[0], x, 0), "");
    EXPECT_EQ(compare(run_op_on(dims_op("Squeeze", c.dims, "X"), {{"X", x}})[0], x.reshaped(c.shorter), 0), "");
  }
}

TEST(Squeeze, Gradients) {
  for (const Case& c : kCases) {
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
}  // namespace stepnet::testing::squeeze_test
