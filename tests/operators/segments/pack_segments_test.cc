// PackSegments, UnpackSegments and ReversePackedSegs against plain loops and central differences.
#include <algorithm>
#include <limits>

#include "tests/operators/op_test.h"

namespace stepnet::testing::pack_segments_test {
namespace {

namespace of_pack_segments {

OperatorDef pack_op(const std::vector<Argument>& args = {}) { return make_op("PackSegments", {"L", "X"}, {"Y"}, args); }
OperatorDef unpack_op() { return make_op("UnpackSegments", {"L", "X"}, {"Y"}); }
OperatorDef gradient_op() { return make_op("UnpackSegmentsGradient", {"L", "X", "d"}, {"dX"}); }

Feeds feeds_of(const Tensor& x, const std::vector<int32_t>& lengths) {
  return {{"L", Tensor::of<int32_t>({static_cast<int64_t>(lengths.size())}, lengths)}, {"X", x}};
}

struct Segments {
  std::vector<int32_t> lengths;
  int64_t sum, longest;
};
const Segments kSegments[] = {{{3, 1, 2}, 6, 3}, {{0, 4}, 4, 4}, {{2}, 2, 2}, {{0, 0}, 0, 0}, {{}, 0, 0}};

// [n, k, d] is row k of segment n, else `beyond`.
Tensor packed(const Tensor& x, const Segments& s, int64_t rows, double beyond) {
  const auto segments = static_cast<int64_t>(s.lengths.size());
  const int64_t width = x.dim(1);
  Tensor y = Tensor::empty(DType::float64, {segments, rows, width});
  for (int64_t n = 0, start = 0; n < segments; start += s.lengths[n++])
    for (int64_t k = 0; k < rows; ++k)
      for (int64_t d = 0; d < width; ++d)
        y.data<double>()[(n * rows + k) * width + d] =
            k < s.lengths[n] ? x.data<double>()[(start + k) * width + d] : beyond;
  return y;
}

TEST(PackSegments, IsTheLoop) {
  for (const Segments& s : kSegments) {
    const Tensor x = normal<double>({s.sum, 5});
    EXPECT_EQ(compare(run_op_on(pack_op(), feeds_of(x, s.lengths))[0], packed(x, s, s.longest, 0), 0), "");
    const double infinity = std::numeric_limits<double>::infinity();
    const auto minus_infinity = pack_op({make_arg("pad_minf", 1)});
    EXPECT_EQ(compare(run_op_on(minus_infinity, feeds_of(x, s.lengths))[0], packed(x, s, s.longest, -infinity), 0), "");
  }
}

TEST(PackSegments, PresenceMask) {
  const auto def = make_op("PackSegments", {"L", "X"}, {"Y", "M"}, {make_arg("return_presence_mask", true)});
  const auto y = run_op_on(def, feeds_of(normal<float>({3, 2}), {2, 0, 1}));
  EXPECT_EQ(y[0].str(), "float[3, 2, 2]");
  EXPECT_EQ(y[1].dtype(), DType::boolean);
  EXPECT_EQ(compare(y[1], Tensor::of<bool>({3, 2}, {true, true, false, false, true, false}), 0), "");
  EXPECT_EQ(check_gradient(def, feeds_of(normal<double>({3, 2}), {2, 0, 1}), {"X"}), "");
}

TEST(PackSegments, ThereAndBack) {
  for (const Segments& s : kSegments)
    for (const int64_t more : {0, 2}) {
      const Tensor x = normal<double>({s.sum, 5});
      const Tensor y = packed(x, s, s.longest + more, 9);
      EXPECT_EQ(compare(run_op_on(unpack_op(), feeds_of(y, s.lengths))[0], x, 0), "");
    }
}

TEST(PackSegments, OfAnyRankAndType) {
  const Tensor rows = Tensor::of<int64_t>({3}, {1, 2, 3});
  const Feeds feeds = {{"L", Tensor::of<int64_t>({2}, {1, 2})}, {"X", rows}};
  EXPECT_EQ(compare(run_op_on(pack_op(), feeds)[0], Tensor::of<int64_t>({2, 2}, {1, 0, 2, 3}), 0), "");
  const Tensor words = Tensor::of<std::string>({3}, {"a", "b", "c"});
  const Tensor y = run_op_on(pack_op(), feeds_of(words, {1, 2}))[0];
  EXPECT_EQ(std::vector<std::string>(y.data<std::string>(), y.data<std::string>() + 4),
            (std::vector<std::string>{"a", "", "b", "c"}));
  EXPECT_EQ(run_op_on(unpack_op(), feeds_of(y, {1, 2}))[0].data<std::string>()[2], "c");
  const Tensor deep = normal<float>({3, 2, 1, 2});
  EXPECT_EQ(
      compare(run_op_on(unpack_op(), feeds_of(run_op_on(pack_op(), feeds_of(deep, {2, 1}))[0], {2, 1}))[0], deep, 0),
      "");
}

// Of each segment at most so many rows; the gradient of the others is zero.
TEST(PackSegments, MaximalLength) {
  for (const Segments& s : kSegments)
    for (const int64_t most : {0, 1, 2, 5}) {
      const auto segments = static_cast<int64_t>(s.lengths.size());
      const Tensor x = normal<double>({s.sum, 2});
      Tensor y = Tensor::zeros(DType::float64, {segments, most, 2}),
             mask = Tensor::zeros(DType::boolean, {segments, most});
      std::vector<double> kept;
      for (int64_t n = 0, start = 0; n < segments; start += s.lengths[n++])
        for (int64_t k = 0; k < std::min<int64_t>(most, s.lengths[n]); ++k) {
          mask.data<bool>()[n * most + k] = true;
          for (int64_t d = 0; d < 2; ++d) {
            kept.push_back(x.data<double>()[(start + k) * 2 + d]);
            y.data<double>()[(n * most + k) * 2 + d] = kept.back();
          }
        }
      const std::vector<Argument> args = {make_arg("max_length", most), make_arg("return_presence_mask", true)};
      const OperatorDef pack = make_op("PackSegments", {"L", "X"}, {"Y", "M"}, args);
      const auto packed = run_op_on(pack, feeds_of(x, s.lengths));
      EXPECT_EQ(compare(packed[0], y, 0), "");
      EXPECT_EQ(compare(packed[1], mask, 0), "");
      EXPECT_EQ(check_gradient(pack, feeds_of(x, s.lengths), {"X"}), "");
      const OperatorDef unpack = make_op("UnpackSegments", {"L", "X"}, {"Y"}, {args[0]});
      const Tensor rows = Tensor::of<double>({static_cast<int64_t>(kept.size()) / 2, 2}, kept);
      EXPECT_EQ(compare(run_op_on(unpack, feeds_of(y, s.lengths))[0], rows, 0), "");
      EXPECT_EQ(check_gradient(unpack, feeds_of(y, s.lengths), {"X"}), "");
      const OperatorDef gradient = make_op("PackSegmentsGradient", {"L", "X"}, {"Y"}, {args[0]});
      EXPECT_EQ(check_gradient(gradient, feeds_of(y, s.lengths), {"X"}), "");
    }
}

TEST(PackSegments, Gradients) {
  for (const Segments& s : kSegments) {
    EXPECT_EQ(check_gradient(pack_op(), feeds_of(normal<double>({s.sum, 2}), s.lengths), {"X"}), "");
    const auto segments = static_cast<int64_t>(s.lengths.size());
    const Tensor sequence = normal<double>({segments, s.longest + 2, 2});
    EXPECT_EQ(check_gradient(unpack_op(), feeds_of(sequence, s.lengths), {"X"}), "");
    Feeds feeds = feeds_of(sequence, s.lengths);
    feeds.emplace_back("d", normal<double>({s.sum, 2}, 3));
    EXPECT_EQ(check_gradient(gradient_op(), feeds, {"d"}), "");
  }
}

std::string fact_of(const OperatorDef& op, const Feeds& feeds) {
  const std::string text = error_of([&] { run_op_on(op, feeds); });
  return text.substr(0, text.find('\n'));
}

TEST(PackSegments, Errors) {
  const std::string pack = "PackSegments: ", unpack = "UnpackSegments: ";
  const Tensor four = normal<double>({4, 2}), segments = normal<double>({2, 3, 2});
  EXPECT_EQ(fact_of(pack_op(), feeds_of(four, {3, 2})), pack + "the lengths add up to 5, but there are 4 rows");
  EXPECT_EQ(fact_of(pack_op(), feeds_of(four, {5, -1})), pack + "length 1 is -1, which is negative");
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(fact_of(pack_op(), {{"L", Tensor::of<int64_t>({3}, {5, most, most})}, {"X", four}}),
            pack + "the lengths up to length 1 add up to more than 64 bits can count");
  EXPECT_EQ(fact_of(pack_op(), feeds_of(normal<double>({}), {1})), pack + "the tensor is one value, which has no rows");
  EXPECT_EQ(fact_of(pack_op(), {{"L", Tensor::of<int32_t>({}, {4})}, {"X", four}}),
            pack + "lengths must have one dimension, but have shape []");
  EXPECT_EQ(fact_of(pack_op({make_arg("pad_minf", 1)}), feeds_of(integers<int32_t>({2}, 0, 1), {2})),
            pack + "argument \"pad_minf\" is set, but elements are int32");
  EXPECT_EQ(fact_of(make_op("PackSegments", {"L", "X"}, {"Y", "M"}), feeds_of(four, {4})),
            pack + "there is an output for the presence mask, but argument \"return_presence_mask\" is not set");
  EXPECT_EQ(fact_of(unpack_op(), feeds_of(segments, {1, 4})),
            unpack + "length 1 is 4, but the packed segments [2, 3, 2] have 3 rows each");
  EXPECT_EQ(fact_of(unpack_op(), feeds_of(segments, {1})),
            unpack + "the packed segments [2, 3, 2] are 2, but there are 1 lengths");
  EXPECT_EQ(fact_of(unpack_op(), feeds_of(segments, {1, -2})), unpack + "length 1 is -2, which is negative");
  EXPECT_EQ(fact_of(unpack_op(), feeds_of(normal<double>({3}), {1, 1, 1})),
            unpack + "the packed segments must be [N, longest, ...], but are [3]");
  EXPECT_EQ(fact_of(pack_op({make_arg("max_length", -2)}), feeds_of(four, {4})),
            pack + "argument \"max_length\" must be at least -1, but is -2");
  EXPECT_NE(fact_of(pack_op({make_arg("max_length", most)}), feeds_of(four, {4})).find("64 bits can count"),
            std::string::npos);
  EXPECT_EQ(
      fact_of(make_op("UnpackSegments", {"L", "X"}, {"Y"}, {make_arg("max_length", 4)}), feeds_of(segments, {1, 5})),
      unpack + "length 1 is 5, but the packed segments [2, 3, 2] have 3 rows each");
  const std::string back = "PackSegmentsGradient: ";
  EXPECT_EQ(fact_of(make_op("PackSegmentsGradient", {"L", "X"}, {"Y"}), feeds_of(segments, {1, 2})),
            back + "it needs the argument \"max_length\"");
  EXPECT_EQ(fact_of(make_op("PackSegmentsGradient", {"L", "X"}, {"Y"}, {make_arg("max_length", 2)}),
                    feeds_of(segments, {1, 5})),
            back + "the gradient [2, 3, 2] has 3 rows for each segment, but max_length is 2");
  Feeds feeds = feeds_of(segments, {1, 2});
  feeds.emplace_back("d", normal<double>({2, 2}));
  EXPECT_EQ(fact_of(gradient_op(), feeds),
            "UnpackSegmentsGradient: the gradient must be double[3, 2], but is double[2, 2]");
}

}  // namespace of_pack_segments

namespace of_reverse_packed_segs {

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

}  // namespace of_reverse_packed_segs

}  // namespace
}  // namespace stepnet::testing::pack_segments_test
