#include "tests/operators/op_test.h"

namespace stepnet::testing::mask_by_length_test {
namespace {

OperatorDef mask_op(bool with_beyond, const std::vector<Argument>& args = {}) {
  std::vector<std::string> inputs = {"X", "lengths", "timestep"};
  if (with_beyond) inputs.emplace_back("BEYOND");
  return make_op("MaskByLength", inputs, {"Y"}, args);
}

Feeds feeds_of(const Shape& shape, const std::vector<int32_t>& lengths, const std::vector<int32_t>& timesteps) {
  return {{"X", normal<double>(shape)},
          {"lengths", Tensor::of<int32_t>({static_cast<int64_t>(lengths.size())}, lengths)},
          {"timestep", Tensor::of<int32_t>({static_cast<int64_t>(timesteps.size())}, timesteps)},
          {"BEYOND", normal<double>(shape, 2)}};
}

// Row by row, over R timesteps and B samples.
Tensor masked(const Feeds& feeds, bool with_beyond, bool beyond) {
  Tensor y = feeds[0].second.clone();
  const auto lengths = feeds[1].second.span<int32_t>(), timesteps = feeds[2].second.span<int32_t>();
  if (y.size() == 0) return y;
  const size_t size = y.size() / (lengths.size() * timesteps.size());
  for (size_t r = 0; r < timesteps.size(); ++r)
    for (size_t b = 0; b < lengths.size(); ++b)
      for (size_t i = 0; i < size; ++i) {
        const size_t at = (r * lengths.size() + b) * size + i;
        if ((timesteps[r] >= lengths[b]) != beyond)
          y.data<double>()[at] = with_beyond ? feeds[3].second.data<double>()[at] : 0;
      }
  return y;
}

std::vector<Feeds> cases() {
  return {
      feeds_of({1, 3, 2}, {0, 2, 1}, {1}), feeds_of({3, 2}, {0, 2, 1}, {1}), feeds_of({4, 2, 3}, {2, 4}, {0, 1, 2, 3}),
      feeds_of({2, 2}, {1, 9}, {5, 0}),    feeds_of({1, 0, 3}, {}, {2}),     feeds_of({2, 2, 0}, {1, 2}, {0, 1}),
      feeds_of({0, 2, 3}, {1, 2}, {}),     feeds_of({1, 1, 1, 2}, {1}, {0})};
}

TEST(MaskByLength, IsTheLoop) {
  for (const Feeds& feeds : cases()) {
    const Feeds three(feeds.begin(), feeds.begin() + 3);
    SCOPED_TRACE(feeds[0].second.str());
    EXPECT_EQ(compare(run_op_on(mask_op(false), three)[0], masked(feeds, false, false), 0), "");
    EXPECT_EQ(compare(run_op_on(mask_op(true), feeds)[0], masked(feeds, true, false), 0), "");
    EXPECT_EQ(compare(run_op_on(mask_op(false, {make_arg("beyond", true)}), three)[0], masked(feeds, false, true), 0),
              "");
  }
}

TEST(MaskByLength, Gradients) {
  for (const Feeds& feeds : cases()) {
    const Feeds three(feeds.begin(), feeds.begin() + 3);
    SCOPED_TRACE(feeds[0].second.str());
    EXPECT_EQ(check_gradient(mask_op(true), feeds, {"X", "BEYOND"}), "");
    EXPECT_EQ(check_gradient(mask_op(false), three, {"X"}), "");
    EXPECT_EQ(check_gradient(mask_op(false, {make_arg("beyond", true)}), three, {"X"}), "");
  }
}

TEST(MaskByLength, InPlaceAndOfOtherTypes) {
  Feeds feeds = feeds_of({1, 2, 2}, {0, 3}, {1});
  feeds.pop_back();
  feeds[0].second = Tensor::of<int32_t>({1, 2, 2}, {1, 2, 3, 4});
  OperatorDef op = mask_op(false);
  op.set_output(0, "X");
  EXPECT_EQ(compare(run_op_on(op, feeds)[0], Tensor::of<int32_t>({1, 2, 2}, {0, 0, 3, 4}), 0), "");
  feeds[0].second = Tensor::of<bool>({1, 2, 2}, {true, true, true, false});
  EXPECT_EQ(compare(run_op_on(mask_op(false), feeds)[0], Tensor::of<bool>({1, 2, 2}, {false, false, true, false}), 0),
            "");
}

std::string fact_of(const OperatorDef& op, const Feeds& feeds) {
  const std::string text = error_of([&] { run_op_on(op, feeds); });
  return text.substr(0, text.find('\n'));
}

TEST(MaskByLength, Errors) {
  const Feeds good = feeds_of({1, 2, 3}, {1, 2}, {0});
  auto with = [&](size_t i, const Tensor& value) {
    Feeds bad = good;
    bad[i].second = value;
    return fact_of(mask_op(true), bad);
  };
  const std::string name = "MaskByLength: ";
  EXPECT_EQ(with(0, normal<double>({1, 3, 3})),
            name + "X must be [1, 2, ...] for the timesteps [1] and the lengths [2], but is [1, 3, 3]");
  EXPECT_EQ(with(0, normal<double>({})),
            name + "X must be [1, 2, ...] for the timesteps [1] and the lengths [2], but is []");
  EXPECT_EQ(with(1, Tensor::of<int32_t>({1, 2}, {1, 2})),
            name + "lengths must be [B], one for each sample, but is [1, 2]");
  EXPECT_EQ(with(2, Tensor::of<int32_t>({}, {1})), name + "timestep must be [R], but is []");
  EXPECT_EQ(with(3, normal<double>({1, 2, 2})),
            name + "BEYOND must be double[1, 2, 3] as X is, but is double[1, 2, 2]");
  EXPECT_EQ(with(3, normal<float>({1, 2, 3})), name + "BEYOND must be double[1, 2, 3] as X is, but is float[1, 2, 3]");
  EXPECT_EQ(fact_of(mask_op(true, {make_arg("beyond", true)}), good),
            name + "with \"beyond\" there is no input BEYOND");
  Feeds strings = good;
  strings[0].second = Tensor::empty(DType::string, {1, 2, 3});
  strings.pop_back();
  EXPECT_EQ(fact_of(mask_op(false), strings), name + "X holds strings, of which none is zero");
}

}  // namespace
}  // namespace stepnet::testing::mask_by_length_test
