// Delay against rows by hand, and central differences.
#include "tests/operators/op_test.h"

namespace stepnet::testing::delay_test {
namespace {

OperatorDef delay(bool reverse, bool first, const std::vector<std::string>& outputs = {"Y", "last"}) {
  return make_op("Delay", first ? std::vector<std::string>{"X", "first"} : std::vector<std::string>{"X"}, outputs,
                 {make_arg("reverse", reverse)});
}

void expect(const OperatorDef& def, const Feeds& feeds, const Tensor& y, const Tensor& last) {
  const std::vector<Tensor> made = run_op_on(def, feeds);
  EXPECT_EQ(compare(made.at(0), y, 0), "");
  EXPECT_EQ(compare(made.at(1), last, 0), "");
}

TEST(Delay, MovesRows) {
  const Feeds feeds = {{"X", Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6})},
                       {"first", Tensor::of<float>({1, 2}, {7, 8})}};
  expect(delay(false, true), feeds, Tensor::of<float>({3, 2}, {7, 8, 1, 2, 3, 4}), Tensor::of<float>({1, 2}, {5, 6}));
  expect(delay(true, true), feeds, Tensor::of<float>({3, 2}, {3, 4, 5, 6, 7, 8}), Tensor::of<float>({1, 2}, {1, 2}));
  const Feeds alone = {feeds[0]};
  expect(delay(false, false), alone, Tensor::of<float>({3, 2}, {0, 0, 1, 2, 3, 4}), Tensor::of<float>({1, 2}, {5, 6}));
  expect(delay(true, false), alone, Tensor::of<float>({3, 2}, {3, 4, 5, 6, 0, 0}), Tensor::of<float>({1, 2}, {1, 2}));
}

TEST(Delay, WithoutTimestepsTheFirstRowIsTheLast) {
  const Feeds feeds = {{"X", Tensor::of<double>({0, 2}, {})}, {"first", Tensor::of<double>({1, 2}, {7, 8})}};
  for (const bool reverse : {false, true}) {
    expect(delay(reverse, true), feeds, feeds[0].second, feeds[1].second);
    expect(delay(reverse, false), {feeds[0]}, feeds[0].second, Tensor::zeros(DType::float64, {1, 2}));
  }
}

TEST(Delay, Gradients) {
  for (const Shape& shape : {Shape{3, 2}, Shape{1, 2}, Shape{0, 2}, Shape{2, 0}})
    for (const bool reverse : {false, true})
      for (const std::vector<std::string>& outputs : {std::vector<std::string>{"Y"}, {"Y", "last"}, {"", "last"}}) {
        const Feeds feeds = {{"X", normal<double>(shape)}, {"first", normal<double>({1, shape[1]}, 2)}};
        EXPECT_EQ(check_gradient(delay(reverse, true, outputs), feeds, {"X", "first"}), "") << shape.str() << reverse;
        EXPECT_EQ(check_gradient(delay(reverse, false, outputs), {feeds[0]}, {"X"}), "") << shape.str() << reverse;
      }
}

TEST(Delay, SaysWhatDoesNotFit) {
  const Feeds feeds = {{"X", normal<float>({4, 3})}, {"first", normal<float>({1, 2})}};
  const std::string text = error_of([&] { run_op_on(delay(false, true), feeds); });
  EXPECT_NE(text.find("first must be [1, 3], one timestep of X [4, 3], but is [1, 2]"), std::string::npos) << text;
}

}  // namespace
}  // namespace stepnet::testing::delay_test
