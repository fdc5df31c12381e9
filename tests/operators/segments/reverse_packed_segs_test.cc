#include "tests/operators/op_test.h"

namespace stepnet::testing::reverse_packed_segs_test {
namespace {

const OperatorDef kReverse = make_op("ReversePackedSegs", {"X", "L"}, {"Y"});

Feeds feeds_of(const Tensor& x, const std::vector<int32_t>& lengths) {
  return {{"X", x}, {"L", Tensor::of<int32_t>({static_cast<int64_t>(lengths.size())}, lengths)}};
}

struct Case {
  Shape x;
  std::vector<int32_t> lengths;
};
const Case kCases[] = {{{4, 3, 2}, {4, 0, 3}}, {{3, 1, 5}, {2}}, {{1, 2, 1}, {1, 0}},   {{0, 2, 3}, {0, 0}},
                       {{3, 0, 2}, {}},        {{3, 2}, {3, 2}}, {{2, 2, 2, 3}, {1, 2}}};

Tensor reversed(const Case& c, const Tensor& x) {
  Tensor y = x.clone();
  const int64_t batch = x.dim(1), row = x.shape().size_between(2, x.rank());
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < c.lengths[b]; ++t)
      for (int64_t d = 0; d < row; ++d)
        y.data<double>()[((c.lengths[b] - 1 - t) * batch + b) * row + d] = x.data<double>()[(t * batch + b) * row + d];
  return y;
}

TEST(ReversePackedSegs, IsTheLoop) {
  for (const Case& c : kCases) {
    const Tensor x = normal<double>(c.x);
    EXPECT_EQ(compare(run_op_on(kReverse, feeds_of(x, c.lengths))[0], reversed(c, x), 0), "");
  }
  const Feeds feeds = {{"X", Tensor::of<int64_t>({3, 1}, {1, 2, 3})}, {"L", Tensor::of<int64_t>({1}, {2})}};
  EXPECT_EQ(compare(run_op_on(kReverse, feeds)[0], Tensor::of<int64_t>({3, 1}, {2, 1, 3}), 0), "");
}

TEST(ReversePackedSegs, Gradients) {
  for (const Case& c : kCases) EXPECT_EQ(check_gradient(kReverse, feeds_of(normal<double>(c.x), c.lengths), {"X"}), "");
}

TEST(ReversePackedSegs, Errors) {
  auto fact = [](const Shape& x, const std::vector<int32_t>& lengths) {
    const std::string text = error_of([&] { run_op_on(kReverse, feeds_of(normal<float>(x), lengths)); });
    return text.substr(0, text.find('\n'));
  };
  const std::string name = "ReversePackedSegs: ";
  EXPECT_EQ(fact({3, 2, 1}, {1, 4}), name + "length 1 is 4, but data [3, 2, 1] has 3 timesteps");
  EXPECT_EQ(fact({3, 2, 1}, {-1, 4}), name + "length 0 is -1, which is negative");
  EXPECT_EQ(fact({3, 2, 1}, {1}), name + "data [3, 2, 1] has 2 samples, but there are 1 lengths");
  EXPECT_EQ(fact({3}, {1, 1, 1}), name + "data must be [T, B, ...], but is [3]");
}

}  // namespace
}  // namespace stepnet::testing::reverse_packed_segs_test
