#include <limits>

#include "tests/operators/op_test.h"

namespace stepnet::testing::clip_tensor_by_scaling_test {
namespace {

template <class T>
Tensor clipped(T val, float threshold, const std::vector<double>& additional = {}, bool in_place = true) {
  Feeds feeds = {{"X", Tensor::of<T>({2, 2}, {1, -2, 0, 4})}, {"v", Tensor::of<T>({1}, {val})}};
  std::vector<std::string> inputs = {"X", "v"};
  if (!additional.empty()) {
    feeds.emplace_back("a", Tensor::scalar<double>(additional[0]));
    inputs.emplace_back("a");
  }
  return run_op_on(make_op("ClipTensorByScaling", inputs, {in_place ? "X" : "Y"}, {make_arg("threshold", threshold)}),
                   feeds)[0];
}

template <class T>
void expect_clips() {
  const Tensor x = Tensor::of<T>({2, 2}, {1, -2, 0, 4}), half = Tensor::of<T>({2, 2}, {0.5, -1, 0, 2});
  for (const bool in_place : {true, false}) {
    EXPECT_EQ(compare(clipped<T>(8, 4, {}, in_place), half, 0), "");
    EXPECT_EQ(compare(clipped<T>(4, 4, {}, in_place), x, 0), "");
    EXPECT_EQ(compare(clipped<T>(-8, 4, {}, in_place), x, 0), "");
    EXPECT_EQ(compare(clipped<T>(8, 2, {2}, in_place), half, 0), "");
    EXPECT_EQ(compare(clipped<T>(8, 2, {4}, in_place), x, 0), "");
    EXPECT_EQ(compare(clipped<T>(8, 2, {0}, in_place), Tensor::zeros(x.dtype(), x.shape()), 0), "");
    EXPECT_EQ(compare(clipped<T>(std::numeric_limits<T>::quiet_NaN(), 4, {}, in_place), x, 0), "");
  }
}

TEST(ClipTensorByScaling, ScalesByTheRatio) {
  expect_clips<float>();
  expect_clips<double>();
}

TEST(ClipTensorByScaling, KeepsItsThreshold) {
  Workspace workspace;
  NetDef def;
  *def.add_op() = make_op("ClipTensorByScaling", {"X", "v", "a"}, {"Y"}, {make_arg("threshold", 2.0f)});
  for (const char* name : {"X", "v"}) workspace.tensor(name) = Tensor::scalar<float>(8);
  workspace.tensor("a") = Tensor::scalar<float>(0.5f);
  Net net(def, workspace);
  RunContext run;
  for (int i = 0; i < 3; ++i) {
    net.run(run);
    EXPECT_EQ(workspace.fetch("Y").item<float>(), 1) << i;
  }
}

TEST(ClipTensorByScaling, OfNothing) {
  const Feeds feeds = {{"X", normal<float>({0, 3})}, {"v", Tensor::scalar<float>(4)}};
  const OperatorDef def = make_op("ClipTensorByScaling", {"X", "v"}, {"Y"}, {make_arg("threshold", 1.0f)});
  EXPECT_EQ(run_op_on(def, feeds)[0].str(), "float[0, 3]");
}

TEST(ClipTensorByScaling, RefusesWhatDoesNotFit) {
  auto fact = [](const std::vector<Argument>& args, const Tensor& val, const Tensor& more) {
    const std::string text = error_of([&] {
      run_op_on(make_op("ClipTensorByScaling", {"X", "v", "a"}, {"X"}, args),
                {{"X", normal<float>({2})}, {"v", val}, {"a", more}});
    });
    return text.substr(0, text.find('\n'));
  };
  const std::string name = "ClipTensorByScaling: ";
  const Tensor one = Tensor::scalar<float>(1);
  const std::vector<Argument> args = {make_arg("threshold", 1.0f)};
  EXPECT_EQ(fact(args, normal<float>({2}), one), name + "val must be one value, but has shape [2]");
  EXPECT_EQ(fact(args, one, normal<float>({0})), name + "additional_threshold must be one value, but has shape [0]");
  EXPECT_EQ(fact(args, one, Tensor::scalar<float>(-1)), name + "additional_threshold is -1, but must be at least 0");
  EXPECT_EQ(fact({make_arg("threshold", 0.0f)}, one, one),
            name + "argument \"threshold\" must be greater than 0, but is 0");
  EXPECT_NE(fact({}, one, one).find("\"threshold\""), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::clip_tensor_by_scaling_test
