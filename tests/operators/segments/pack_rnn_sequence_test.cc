#include "tests/operators/op_test.h"

namespace stepnet::testing::pack_rnn_sequence_test {
namespace {

OperatorDef pack_op() { return make_op("PackRNNSequence", {"values", "lengths"}, {"output"}); }
OperatorDef unpack_op() { return make_op("UnpackRNNSequence", {"values", "lengths"}, {"output"}); }

Feeds feeds_of(const Tensor& values, const std::vector<int32_t>& lengths) {
  return {{"values", values}, {"lengths", Tensor::of<int32_t>({static_cast<int64_t>(lengths.size())}, lengths)}};
}

struct Samples {
  std::vector<int32_t> lengths;
  int64_t sum, longest;
};
const Samples kSamples[] = {{{3, 1, 2}, 6, 3}, {{0, 4}, 4, 4}, {{2}, 2, 2},
                            {{0, 0}, 0, 0},    {{}, 0, 0},     {{1, 1, 1}, 3, 1}};

// Element by element: [at of the sample + t, d] is [t, b, d], else zero.
Tensor packed(const Tensor& values, const Samples& s, int64_t steps) {
  const auto batch = static_cast<int64_t>(s.lengths.size());
  const int64_t width = values.dim(1);
  Tensor y = Tensor::zeros(DType::float64, {steps, batch, width});
  for (int64_t t = 0; t < steps; ++t)
    for (int64_t b = 0, start = 0; b < batch; start += s.lengths[b++])
      for (int64_t d = 0; d < width && t < s.lengths[b]; ++d)
        y.data<double>()[(t * batch + b) * width + d] = values.data<double>()[(start + t) * width + d];
  return y;
}

TEST(PackRnnSequence, IsTheLoop) {
  for (const Samples& s : kSamples) {
    const Tensor values = normal<double>({s.sum, 5});
    EXPECT_EQ(compare(run_op_on(pack_op(), feeds_of(values, s.lengths))[0], packed(values, s, s.longest), 0), "");
  }
}

TEST(PackRnnSequence, ThereAndBack) {
  for (const Samples& s : kSamples)
    for (const int64_t more : {0, 2}) {
      const Tensor values = normal<double>({s.sum, 5});
      Tensor sequence = packed(values, s, s.longest + more);
      // What is behind a sample's end goes nowhere.
      for (int64_t t = 0; t < sequence.dim(0); ++t)
        for (size_t b = 0; b < s.lengths.size(); ++b)
          if (t >= s.lengths[b]) sequence.row(t).row(static_cast<int64_t>(b)).copy_from(normal<double>({5}, 7));
      EXPECT_EQ(compare(run_op_on(unpack_op(), feeds_of(sequence, s.lengths))[0], values, 0), "");
    }
}

TEST(PackRnnSequence, OfAnyRankAndType) {
  const Tensor rows = Tensor::of<int64_t>({3}, {1, 2, 3});
  const Tensor columns = run_op_on(pack_op(), feeds_of(rows, {1, 2}))[0];
  EXPECT_EQ(compare(columns, Tensor::of<int64_t>({2, 2}, {1, 2, 0, 3}), 0), "");
  EXPECT_EQ(compare(run_op_on(unpack_op(), feeds_of(columns, {1, 2}))[0], rows, 0), "");
  const Tensor deep = normal<float>({3, 2, 1, 2});
  EXPECT_EQ(
      compare(run_op_on(unpack_op(), feeds_of(run_op_on(pack_op(), feeds_of(deep, {2, 1}))[0], {2, 1}))[0], deep, 0),
      "");
}

TEST(PackRnnSequence, Gradients) {
  for (const Samples& s : kSamples) {
    EXPECT_EQ(check_gradient(pack_op(), feeds_of(normal<double>({s.sum, 2}), s.lengths), {"values"}), "");
    const auto batch = static_cast<int64_t>(s.lengths.size());
    const Tensor sequence = normal<double>({s.longest + 2, batch, 2});
    EXPECT_EQ(check_gradient(unpack_op(), feeds_of(sequence, s.lengths), {"values"}), "");
    Feeds feeds = feeds_of(sequence, s.lengths);
    feeds.emplace_back("d", normal<double>({s.sum, 2}, 3));
    EXPECT_EQ(check_gradient(make_op("UnpackRNNSequenceGradient", {"values", "lengths", "d"}, {"dx"}), feeds, {"d"}),
              "");
  }
}

std::string fact_of(const OperatorDef& op, const Feeds& feeds) {
  const std::string text = error_of([&] { run_op_on(op, feeds); });
  return text.substr(0, text.find('\n'));
}

TEST(PackRnnSequence, Errors) {
  const std::string pack = "PackRNNSequence: ", unpack = "UnpackRNNSequence: ";
  const Tensor four = normal<double>({4, 2}), sequence = normal<double>({3, 2, 2});
  EXPECT_EQ(fact_of(pack_op(), feeds_of(four, {3, 2})), pack + "the lengths add up to 5 rows, but the values have 4");
  EXPECT_EQ(fact_of(pack_op(), feeds_of(four, {5, -1})), pack + "a length must be at least 0, but is -1");
  EXPECT_EQ(fact_of(pack_op(), feeds_of(normal<double>({}), {1})),
            pack + "the values are one value, which has no rows");
  EXPECT_EQ(fact_of(pack_op(), feeds_of(Tensor::empty(DType::string, {1}), {1})),
            pack + "the values are strings, of which none is zero");
  EXPECT_EQ(fact_of(pack_op(), {{"values", four}, {"lengths", Tensor::of<int32_t>({}, {4})}}),
            pack + "lengths must be [B], but is []");
  EXPECT_EQ(fact_of(unpack_op(), feeds_of(sequence, {1, 4})),
            unpack + "a sample has 4 timesteps, but the packed sequence [3, 2, 2] has 3");
  EXPECT_EQ(fact_of(unpack_op(), feeds_of(sequence, {1})),
            unpack + "the packed sequence [3, 2, 2] has 2 samples, but there are 1 lengths");
  EXPECT_EQ(fact_of(unpack_op(), feeds_of(sequence, {1, -2})), unpack + "a length must be at least 0, but is -2");
  EXPECT_EQ(fact_of(unpack_op(), feeds_of(normal<double>({3}), {3})),
            unpack + "the packed sequence must be [T, B, ...], but is [3]");
  Feeds feeds = feeds_of(sequence, {1, 2});
  feeds.emplace_back("d", normal<double>({2, 2}));
  EXPECT_EQ(fact_of(make_op("UnpackRNNSequenceGradient", {"values", "lengths", "d"}, {"dx"}), feeds),
            "UnpackRNNSequenceGradient: the gradient must be double[3, 2], but is double[2, 2]");
}

}  // namespace
}  // namespace stepnet::testing::pack_rnn_sequence_test
