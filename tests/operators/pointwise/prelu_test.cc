// PRelu and PReluGradient against a plain loop and central differences.
#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::prelu_test {
namespace {

struct Case {
  Shape x, slope;
  const char* order = "NCHW";
  int64_t channels = 1, inner = 1;  // slopes, and elements of X that follow one another in a channel
};

const Case kCases[] = {
    {{}, {1}},
    {{5}, {}},
    {{3, 4}, {1}, "NHWC"},
    {{3, 4}, {4}, "NCHW", 4, 1},
    {{2, 3, 5}, {3}, "NCHW", 3, 5},
    {{2, 3, 5}, {5}, "NHWC", 5, 1},
    {{4}, {4}, "NHWC", 4, 1},
    {{2, 1, 3}, {1}, "NCHW", 1, 3},
    {{0, 3}, {3}, "NCHW", 3, 1},
};

std::vector<Argument> args_of(const Case& c) { return {make_arg("order", c.order)}; }
OperatorDef prelu_op(const Case& c, const char* output = "Y") {
  return make_op("PRelu", {"X", "Slope"}, {output}, args_of(c));
}

template <class T>
Feeds feeds_for(const Case& c) {
  return {{"X", normal<T>(c.x, 1)}, {"Slope", normal<T>(c.slope, 2)}};
}

Tensor expected(const Case& c, const Feeds& feeds) {
  Tensor y = to_double(feeds[0].second);
  const Tensor slope = to_double(feeds[1].second);
  for (int64_t i = 0; i < y.size(); ++i) {
    double& v = y.data<double>()[i];
    if (v <= 0) v *= slope.data<double>()[i / c.inner % c.channels];
  }
  return y;
}

TEST(PRelu, Values) {
  for (const Case& c : kCases) {
    const Feeds feeds = feeds_for<double>(c), single = feeds_for<float>(c);
    EXPECT_EQ(compare(run_op_on(prelu_op(c), feeds)[0], expected(c, feeds), 0), "") << c.x.str();
    EXPECT_EQ(compare(run_op_on(prelu_op(c, "X"), feeds)[0], expected(c, feeds), 0), "") << c.x.str();
    EXPECT_EQ(compare(run_op_on(prelu_op(c), single)[0], expected(c, single), 1e-6), "") << c.x.str();
  }
}

TEST(PRelu, Gradients) {
  for (const Case& c : kCases)
    EXPECT_EQ(check_gradient(prelu_op(c), feeds_for<double>(c), {"X", "Slope"}), "") << c.x.str();
}

TEST(PRelu, GradientOfGradient) {
  for (const Case& c : kCases) {
    const OperatorDef def = make_op("PReluGradient", {"Y", "dY", "X", "Slope"}, {"dX", "dSlope"}, args_of(c));
    Feeds feeds = feeds_for<double>(c);
    feeds.emplace_back("Y", Tensor::zeros(DType::float64, c.x));
    feeds.emplace_back("dY", normal<double>(c.x, 3));
    EXPECT_EQ(check_gradient(def, feeds, {"dY", "X", "Slope"}), "") << c.x.str();
    EXPECT_EQ(check_gradient(def, feeds, {"dY", "Slope"}, 1e-7, 1e-5, {"dX"}), "") << c.x.str();
    EXPECT_EQ(check_gradient(def, feeds, {"dY", "X"}, 1e-7, 1e-5, {"dSlope"}), "") << c.x.str();
  }
}

TEST(PRelu, InPlaceLosesWhatTheGradientReads) {
  for (const char* wanted : {"X", "Slope"})
    EXPECT_NE(error_of([&] {
                check_gradient(prelu_op(kCases[3], "X"), feeds_for<double>(kCases[3]), {wanted});
              }).find("\"X\" is overwritten in place, but the gradient of"),
              std::string::npos);
}

TEST(PRelu, BadSlopesAreNamed) {
  const auto error = [](const Case& c) { return error_of([&] { run_op_on(prelu_op(c), feeds_for<float>(c)); }); };
  EXPECT_NE(
      error({{2, 3}, {2}}).find("the slope must be one number or [3], one for each channel of X [2, 3], but is [2]"),
      std::string::npos);
  EXPECT_NE(error({{3}, {3}})
                .find("X [3] has no channels in order NCHW, so that the slope must be one number, but it is [3]"),
            std::string::npos);
  EXPECT_NE(error({{2, 3}, {3}, "HWC"}).find("argument \"order\""), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::prelu_test
