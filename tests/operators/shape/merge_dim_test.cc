#include "tests/operators/op_test.h"

namespace stepnet::testing::merge_dim_test {
namespace {

const OperatorDef kMerge = make_op("MergeDim", {"X"}, {"Y"});

OperatorDef prepend(int64_t size) { return make_op("PrependDim", {"X"}, {"Y"}, {make_arg("dim_size", size)}); }

struct Case {
  Shape divided, merged;
};
const Case kCases[] = {{{2, 3, 4}, {6, 4}}, {{3, 1}, {3}}, {{1, 5}, {5}}, {{2, 0, 3}, {0, 3}}, {{2, 2, 0}, {4, 0}}};

TEST(MergeDim, ThereAndBack) {
  for (const Case& c : kCases) {
    const Tensor x = normal<float>(c.divided), y = x.reshaped(c.merged);
    EXPECT_EQ(compare(run_op_on(kMerge, {{"X", x}})[0], y, 0), "");
    EXPECT_EQ(compare(run_op_on(prepend(c.divided[0]), {{"X", y}})[0], x, 0), "");
  }
}

TEST(MergeDim, Gradients) {
  for (const Case& c : kCases) {
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

}  // namespace
}  // namespace stepnet::testing::merge_dim_test
