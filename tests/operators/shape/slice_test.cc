#include <limits>

#include "tests/operators/op_test.h"

namespace stepnet::testing::slice_test {
namespace {

OperatorDef slice(const std::vector<int>& starts, const std::vector<int>& ends) {
  return make_op("Slice", {"X"}, {"Y"}, {make_arg("starts", starts), make_arg("ends", ends)});
}

const Tensor kX = Tensor::of<float>({2, 3}, {0, 1, 2, 3, 4, 5});

Tensor sliced(const std::vector<int>& starts, const std::vector<int>& ends) {
  return run_op_on(slice(starts, ends), {{"X", kX}})[0];
}

TEST(Slice, CutsOneDimension) {
  EXPECT_EQ(compare(sliced({0, 1}, {-1, 3}), Tensor::of<float>({2, 2}, {1, 2, 4, 5}), 0), "");
  EXPECT_EQ(compare(sliced({1, 0}, {2, -1}), Tensor::of<float>({1, 3}, {3, 4, 5}), 0), "");
  EXPECT_EQ(compare(sliced({0, 0}, {-1, -2}), Tensor::of<float>({2, 2}, {0, 1, 3, 4}), 0), "");
  EXPECT_EQ(compare(sliced({0, 0}, {-1, -1}), kX, 0), "");
  EXPECT_EQ(sliced({0, 2}, {2, 2}).str(), "float[2, 0]");
}

// Elements [begin, end) of dimension `axis`.
Tensor cut(const Tensor& x, int axis, int64_t begin, int64_t end) {
  const int64_t outer = x.shape().size_between(0, axis), inner = x.shape().size_between(axis + 1, x.rank());
  Tensor y = Tensor::empty(DType::float64, x.shape().with(axis, end - begin));
  int64_t at = 0;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t a = begin; a < end; ++a)
      for (int64_t i = 0; i < inner; ++i) y.data<double>()[at++] = x.data<double>()[(o * x.dim(axis) + a) * inner + i];
  return y;
}

TEST(Slice, IsTheLoop) {
  const Tensor x = normal<double>({3, 4, 2});
  for (int axis = 0; axis < 3; ++axis)
    for (int begin = 0; begin <= x.dim(axis); ++begin)
      for (int end = begin; end <= x.dim(axis); ++end) {
        std::vector<int> starts(3, 0), ends(3, -1);
        starts[axis] = begin;
        ends[axis] = end;
        const OperatorDef def = slice(starts, ends);
        EXPECT_EQ(compare(run_op_on(def, {{"X", x}})[0], cut(x, axis, begin, end), 0), "") << axis << begin << end;
        EXPECT_EQ(check_gradient(def, {{"X", x}}, {"X"}), "") << axis << begin << end;
      }
}

TEST(Slice, TakesUnlistedDimensionsWholeAndClampsTheEnd) {
  EXPECT_EQ(compare(sliced({1}, {100}), Tensor::of<float>({1, 3}, {3, 4, 5}), 0), "");
  EXPECT_EQ(compare(sliced({}, {}), kX, 0), "");
}

TEST(Slice, OfBoundsAndSizesAtTheLimits) {
  const int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  auto slice_of = [](const Shape& x, int64_t start, int64_t end) {
    const OperatorDef def =
        make_op("Slice", {"X"}, {"Y"},
                {make_arg("starts", std::vector<int64_t>{start}), make_arg("ends", std::vector<int64_t>{end})});
    return run_op_on(def, {{"X", Tensor::empty(DType::float32, x)}})[0].shape();
  };
  EXPECT_EQ(slice_of({most, 0}, 0, -1), Shape({most, 0}));
  EXPECT_EQ(slice_of({most, 0}, most - 1, most), Shape({1, 0}));
  EXPECT_EQ(slice_of({3, 2}, most, most), Shape({0, 2}));
  EXPECT_NE(error_of([&] {
              slice_of({most - 1, 0}, least, most);
            }).find("lies before its beginning"),
            std::string::npos);
}

TEST(Slice, TakesBoundsAsInputs) {
  const Feeds feeds = {{"X", kX}, {"s", Tensor::of<int32_t>({2}, {0, 1})}, {"e", Tensor::of<int64_t>({2}, {2, 2})}};
  const OperatorDef def = make_op("Slice", {"X", "s", "e"}, {"Y"});
  EXPECT_EQ(compare(run_op_on(def, feeds)[0], Tensor::of<float>({2, 1}, {1, 4}), 0), "");
  Feeds doubles = feeds;
  doubles[0].second = to_double(kX);
  EXPECT_EQ(check_gradient(def, doubles, {"X"}), "");
}

TEST(Slice, Gradient) {
  const Feeds feeds = {{"X", normal<double>({3, 4, 2})}};
  EXPECT_EQ(check_gradient(slice({0, 1, 0}, {-1, 3, -1}), feeds, {"X"}), "");
  EXPECT_EQ(check_gradient(slice({0, 0, 1}, {-1, -1, 2}), feeds, {"X"}), "");
  EXPECT_EQ(check_gradient(slice({1}, {3}), feeds, {"X"}), "");
  EXPECT_EQ(check_gradient(slice({1}, {1}), feeds, {"X"}), "");
  EXPECT_EQ(check_gradient(slice({}, {}), feeds, {"X"}), "");
}

TEST(Slice, RefusesWhatIsNoRange) {
  auto error = [](const std::vector<int>& starts, const std::vector<int>& ends) {
    return error_of([&] { sliced(starts, ends); });
  };
  EXPECT_NE(error({0, 1}, {1, 2}).find("only one dimension can be sliced, but dimensions 0 and 1 are"),
            std::string::npos);
  EXPECT_NE(error({2}, {1}).find("the start 2 of dimension 0 is after its end 1"), std::string::npos);
  EXPECT_NE(error({-4}, {1}).find("the start -4 of dimension 0 lies before its beginning"), std::string::npos);
  EXPECT_NE(error({0}, {1, 2}).find("1 starts and 2 ends"), std::string::npos);
  EXPECT_NE(error({0, 0, 0}, {1, 1, 1}).find("3 ranges are given for shape [2, 3]"), std::string::npos);
}

TEST(SliceGradient, ChecksTheGradientsShape) {
  const OperatorDef def = make_op("SliceGradient", {"X", "dY"}, {"dX"},
                                  {make_arg("starts", std::vector<int>{1}), make_arg("ends", std::vector<int>{2})});
  EXPECT_NE(error_of([&] {
              run_op_on(def, {{"X", kX}, {"dY", kX}});
            }).find("the slice has shape [1, 3], but its gradient [2, 3]"),
            std::string::npos);
  const Feeds feeds = {{"X", to_double(kX)}, {"dY", normal<double>({1, 3})}};
  EXPECT_EQ(check_gradient(def, feeds, {"dY"}), "");
}

// dY is the last input, as in the public format.
TEST(SliceGradient, TakesBoundsAsInputs) {
  const OperatorDef def = make_op("SliceGradient", {"X", "s", "e", "dY"}, {"dX"});
  const Feeds feeds = {{"X", normal<double>({2, 3})},
                       {"s", Tensor::of<int32_t>({2}, {0, 1})},
                       {"e", Tensor::of<int64_t>({2}, {-1, 2})},
                       {"dY", Tensor::of<double>({2, 1}, {7, 8})}};
  EXPECT_EQ(compare(run_op_on(def, feeds)[0], Tensor::of<double>({2, 3}, {0, 7, 0, 0, 8, 0}), 0), "");
  EXPECT_EQ(check_gradient(def, feeds, {"dY"}), "");
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("SliceGradient", {"X", "dY", "s", "e"}, {"dX"}), feeds);
            }).find("starts must be int32 or int64, but is double[2, 1]; the inputs are X, starts, ends and dY"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("SliceGradient", {"X", "s", "dY"}, {"dX"}), feeds);
            }).find("its inputs are X and dY, or X, starts, ends and dY, but there are 3"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::slice_test
