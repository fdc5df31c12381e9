// Gradients that are scaled down.
#include <cmath>
#include <limits>

#include "core/compute/threads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::global_norm_clip_test {
namespace {

OperatorDef clip(float max_norm, const std::vector<std::string>& in, const std::vector<std::string>& out) {
  return make_op("GlobalNormClip", in, out, {make_arg("max_norm", max_norm)});
}

const Feeds kFeeds = {{"a", Tensor::of<float>({2}, {3, 0})}, {"b", Tensor::of<double>({1, 1}, {-4})}};

TEST(GlobalNormClip, ScalesAllGradientsTogether) {
  for (const auto& outputs : {std::vector<std::string>{"a", "b", "norm"}, {"c", "d", "norm"}}) {
    const auto out = run_op_on(clip(2.5f, {"a", "b"}, outputs), kFeeds);
    EXPECT_EQ(compare(out[0], Tensor::of<float>({2}, {1.5f, 0}), 1e-6), "");
    EXPECT_EQ(compare(out[1], Tensor::of<double>({1, 1}, {-2}), 1e-12), "");
    EXPECT_EQ(out[2].str(), "float[]");
    EXPECT_FLOAT_EQ(out[2].item<float>(), 5);
  }
}

TEST(GlobalNormClip, LeavesSmallGradientsAlone) {
  for (const auto& outputs : {std::vector<std::string>{"a", "b", "norm"}, {"c", "d", "norm"}}) {
    const auto out = run_op_on(clip(5, {"a", "b"}, outputs), kFeeds);
    EXPECT_EQ(compare(out[0], kFeeds[0].second, 0), "");
    EXPECT_EQ(compare(out[1], kFeeds[1].second, 0), "");
  }
  const auto none = run_op_on(clip(1, {"a"}, {"a", "norm"}), {{"a", normal<float>({0})}});
  EXPECT_EQ(none[1].item<float>(), 0);
}

TEST(GlobalNormClip, NormDoesNotDependOnThreads) {
  const Feeds feeds = {{"a", normal<float>({300000})}};
  const OperatorDef def = clip(1, {"a"}, {"a", "norm"});
  const auto threaded = run_op_on(def, feeds);
  double sum = 0;
  for (const float v : feeds[0].second.span<float>()) sum += static_cast<double>(v) * v;
  EXPECT_NEAR(threaded[1].item<float>(), std::sqrt(sum), 1e-3);
  const SerialScope serial;
  const auto alone = run_op_on(def, feeds);
  EXPECT_EQ(compare(alone[0], threaded[0], 0), "");
  EXPECT_EQ(alone[1].item<float>(), threaded[1].item<float>());
}

TEST(GlobalNormClip, NamesTheGradientThatIsNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Feeds feeds = kFeeds;
  feeds.emplace_back("bad", Tensor::of<float>({3}, {0, nan, 1}));
  EXPECT_NE(error_of([&] {
              run_op_on(clip(1, {"a", "b", "bad"}, {"a", "b", "bad", "norm"}), feeds);
            }).find("the gradient \"bad\" has nan at element 1"),
            std::string::npos);
  feeds.back().second = Tensor::of<double>({2}, {1e300, 1e300});
  EXPECT_NE(error_of([&] {
              run_op_on(clip(1, {"a", "b", "bad"}, {"a", "b", "bad", "norm"}), feeds);
            }).find("too large for a double"),
            std::string::npos);
}

TEST(GlobalNormClip, RefusesWhatItCannotClip) {
  EXPECT_NE(error_of([] {
              run_op_on(clip(1, {"a", "b"}, {"a", "norm"}), kFeeds);
            }).find("2 gradients need 3 outputs, the last for the norm, but there are 2"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              run_op_on(clip(0, {"a"}, {"a", "norm"}), kFeeds);
            }).find("must be greater than 0"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              run_op_on(clip(1, {"i"}, {"i", "norm"}), {{"i", integers<int32_t>({2}, 0, 1)}});
            }).find("must be float or double, but is int32[2]"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              run_op_on(clip(1, {"a", "b"}, {"b", "a", "norm"}), kFeeds);
            }).find("cannot have the name of the input"),
            std::string::npos);
}

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
}  // namespace stepnet::testing::global_norm_clip_test
