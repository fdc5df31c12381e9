// BatchNorm and SpatialBN against plain loops and central differences, to the second order.
#include <cmath>
#include <map>

#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::batch_norm_test {
namespace {

const char* const kNames[] = {"BatchNorm", "SpatialBN"};

OperatorDef batch_norm(const std::string& type, bool is_test, const std::string& order = "NCHW") {
  const std::vector<std::string> outputs =
      is_test ? std::vector<std::string>{"Y"} : std::vector<std::string>{"Y", "mean", "var", "saved", "inv"};
  return make_op(type, {"X", "scale", "bias", "mean", "var"}, outputs,
                 {make_arg("is_test", is_test), make_arg("epsilon", 0.25F), make_arg("momentum", 0.75F),
                  make_arg("order", order)});
}

template <class T>
Feeds feeds_for(const Shape& x, int64_t channels) {
  return {{"X", normal<T>(x, 1, 3, 2)},
          {"scale", normal<T>({channels}, 2)},
          {"bias", normal<T>({channels}, 3)},
          {"mean", normal<T>({channels}, 4)},
          {"var", uniform<T>({channels}, 0.5, 2, 5)}};
}

// The channel of each element of X.
std::vector<int64_t> channels_of(const Shape& x, bool last) {
  std::vector<int64_t> channels;
  for (int64_t i = 0; i < x.size(); ++i)
    channels.push_back(last ? i % x.at(-1) : i / x.size_between(2, x.rank()) % x[1]);
  return channels;
}

// The outputs Y, running_mean, running_var, saved_mean and saved_inv_std.
std::vector<Tensor> naive(const Feeds& feeds, bool is_test, bool last, bool unbiased = false) {
  std::vector<Tensor> v;
  for (const auto& feed : feeds) v.push_back(to_double(feed.second));
  const double* x = v[0].data<double>();
  const std::vector<int64_t> channel = channels_of(v[0].shape(), last);
  std::vector<Tensor> out = {v[0].clone(), v[3].clone(), v[4].clone(), v[3].clone(), v[4].clone()};
  for (int64_t c = 0; c < v[1].size(); ++c) {
    double mean = 0, var = 0, m = 0;
    for (size_t i = 0; i < channel.size(); ++i)
      if (channel[i] == c) mean += x[i], ++m;
    mean /= m;
    for (size_t i = 0; i < channel.size(); ++i)
      if (channel[i] == c) var += (x[i] - mean) * (x[i] - mean) / m;
    if (is_test) mean = v[3].data<double>()[c], var = v[4].data<double>()[c];
    const double inv = 1 / std::sqrt(var + 0.25);
    for (size_t i = 0; i < channel.size(); ++i)
      if (channel[i] == c)
        out[0].data<double>()[i] = (x[i] - mean) * inv * v[1].data<double>()[c] + v[2].data<double>()[c];
    out[1].data<double>()[c] = 0.75 * v[3].data<double>()[c] + 0.25 * mean;
    out[2].data<double>()[c] = 0.75 * v[4].data<double>()[c] + 0.25 * var * (unbiased && m > 1 ? m / (m - 1) : 1);
    out[3].data<double>()[c] = mean;
    out[4].data<double>()[c] = inv;
  }
  return out;
}

template <class T>
void expect_formula(const Shape& x, const std::string& order, double tol) {
  const bool last = order == "NHWC";
  const Feeds feeds = feeds_for<T>(x, last ? x.at(-1) : x[1]);
  for (const char* type : kNames)
    for (const bool is_test : {false, true}) {
      const std::vector<Tensor> y = run_op_on(batch_norm(type, is_test, order), feeds);
      const std::vector<Tensor> wanted = naive(feeds, is_test, last, type == std::string("SpatialBN"));
      for (size_t i = 0; i < y.size(); ++i)
        EXPECT_EQ(compare(y[i], wanted[i], tol), "") << type << x.str() << order << is_test << i;
    }
}

TEST(BatchNorm, ForwardIsTheFormula) {
  expect_formula<double>({6, 3}, "NCHW", 1e-13);
  expect_formula<double>({4, 3, 5}, "NCHW", 1e-13);
  expect_formula<double>({2, 3, 2, 4}, "NCHW", 1e-13);
  expect_formula<double>({2, 2, 4, 3}, "NHWC", 1e-13);
  expect_formula<double>({1, 1}, "NCHW", 1e-13);
  expect_formula<double>({3, 0}, "NCHW", 1e-13);
  expect_formula<float>({70, 130}, "NCHW", 1e-5);
}

// As Caffe2 1.10 gives it.
TEST(SpatialBN, RunningVarianceIsDividedByOneLess) {
  const Feeds feeds = {{"X", Tensor::of<float>({2, 2, 3}, {1, 4, 9, 16, 0, 1, 4, 9, 16, 0, 1, 4})},
                       {"scale", Tensor::of<float>({2}, {1, 2})},
                       {"bias", Tensor::of<float>({2}, {0.5F, -0.5F})},
                       {"mean", Tensor::of<float>({2}, {0.1F, 0.2F})},
                       {"var", Tensor::of<float>({2}, {1, 2})}};
  OperatorDef def = batch_norm("SpatialBN", false);
  def.mutable_arg(1)->set_f(0.01F);  // epsilon
  const auto y = run_op_on(def, feeds);
  EXPECT_EQ(compare(y[1], Tensor::of<float>({2}, {1.8666668F, 1.0666667F}), 1e-6), "");
  EXPECT_EQ(compare(y[2], Tensor::of<float>({2}, {7.8916674F, 11.166667F}), 1e-6), "");
  EXPECT_EQ(compare(y[4], Tensor::of<float>({2}, {0.20491306F, 0.17613873F}), 1e-6), "");
}

TEST(SpatialBN, GradientThroughTheRunningVariance) {
  for (const Shape& x : {Shape{5, 3}, Shape{1, 3}, Shape{2, 3, 2}}) {
    const Feeds feeds = feeds_for<double>(x, 3);
    for (const char* type : kNames)
      EXPECT_EQ(check_gradient(batch_norm(type, false), feeds, {"X"}, 1e-7, 1e-5, {"var"}), "") << type << x.str();
  }
}

TEST(SpatialBN, OfSeveralBatchesIsRefused) {
  OperatorDef def = batch_norm("SpatialBN", false);
  *def.add_arg() = make_arg("num_batches", 2);
  EXPECT_NE(error_of([&] {
              run_op_on(def, feeds_for<float>({5, 3}, 3));
            }).find("\"num_batches\" is not implemented: it would take sums over several batches"),
            std::string::npos);
}

TEST(BatchNorm, ALargeMeanLosesNothing) {
  Feeds feeds = feeds_for<float>({512, 1}, 1);
  feeds[0].second = normal<float>({512, 1}, 1, 1e4, 1);
  EXPECT_EQ(compare(run_op_on(batch_norm("BatchNorm", false), feeds)[4], naive(feeds, false, false)[4], 1e-5), "");
}

TEST(BatchNorm, YMayBeX) {
  const Feeds feeds = feeds_for<double>({6, 3}, 3);
  OperatorDef def = batch_norm("BatchNorm", false);
  const std::vector<Tensor> wanted = run_op_on(def, feeds);
  def.set_output(0, "X");
  const std::vector<Tensor> y = run_op_on(def, feeds);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(compare(y[i], wanted[i], 0), "") << i;
}

TEST(BatchNorm, GradientsInTraining) {
  for (const char* type : kNames)
    for (const Shape& x : {Shape{5, 3}, Shape{3, 3, 2}, Shape{1, 3}, Shape{2, 3, 1, 2}})
      EXPECT_EQ(
          check_gradient(batch_norm(type, false), feeds_for<double>(x, 3), {"X", "scale", "bias"}, 1e-7, 1e-5, {"Y"}),
          "")
          << type << x.str();
  const Feeds feeds = feeds_for<double>({2, 4, 3}, 3);
  EXPECT_EQ(check_gradient(batch_norm("BatchNorm", false, "NHWC"), feeds, {"X", "scale", "bias"}, 1e-7, 1e-5, {"Y"}),
            "");
}

TEST(BatchNorm, GradientsThroughTheStatistics) {
  const Feeds feeds = feeds_for<double>({5, 3}, 3);
  const OperatorDef def = batch_norm("BatchNorm", false);
  for (const char* output : {"saved", "inv"})
    EXPECT_EQ(check_gradient(def, feeds, {"X"}, 1e-7, 1e-5, {output}), "") << output;
  EXPECT_EQ(check_gradient(def, feeds, {"X", "scale", "bias"}, 1e-7, 1e-5, {"Y", "saved", "inv"}), "");
}

TEST(BatchNorm, GradientsInATest) {
  for (const char* type : kNames)
    for (const auto& [x, order] :
         {std::pair{Shape{5, 3}, "NCHW"}, {Shape{2, 3, 2}, "NCHW"}, {Shape{2, 2, 3}, "NHWC"}, {Shape{0, 3}, "NCHW"}})
      EXPECT_EQ(
          check_gradient(batch_norm(type, true, order), feeds_for<double>(x, 3), {"X", "scale", "bias", "mean", "var"}),
          "")
          << type << x.str();
}

TEST(BatchNorm, GradientsOfGradients) {
  for (const auto& [x, order] : {std::pair{Shape{5, 3}, "NCHW"}, {Shape{2, 3, 2}, "NCHW"}, {Shape{2, 2, 3}, "NHWC"}}) {
    const Feeds feeds = {
        {"X", normal<double>(x, 1)},      {"scale", normal<double>({3}, 2)},        {"dY", normal<double>(x, 3)},
        {"mean", normal<double>({3}, 4)}, {"inv", uniform<double>({3}, 0.5, 2, 5)}, {"dmean", normal<double>({3}, 6)},
        {"dinv", normal<double>({3}, 7)}};
    const std::vector<std::string> inputs = {"X", "scale", "dY", "mean", "inv", "dmean", "dinv"};
    for (const char* type : kNames) {
      const OperatorDef def = make_op(std::string(type) + "Gradient", inputs, {"dX", "dscale", "dbias"},
                                      {make_arg("order", std::string(order))});
      EXPECT_EQ(check_gradient(def, feeds, inputs), "") << x.str();
      EXPECT_EQ(check_gradient(def, feeds, inputs, 1e-7, 1e-5, {"dX"}), "") << x.str();
      EXPECT_EQ(check_gradient(def, feeds, {"X", "dY", "mean", "inv"}, 1e-7, 1e-5, {"dscale"}), "") << x.str();
      EXPECT_EQ(check_gradient(def, feeds, {"dY"}, 1e-7, 1e-5, {"dbias"}), "") << x.str();
    }
  }
}

TEST(BatchNorm, BadInputIsNamed) {
  const auto error = [](const OperatorDef& def, const Feeds& feeds) {
    return error_of([&] { run_op_on(def, feeds); });
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const OperatorDef train = batch_norm("BatchNorm", false);
  EXPECT_TRUE(has(error(train, feeds_for<float>({4}, 3)), "X is [4], but must have a batch and channels"));
  EXPECT_TRUE(has(error(train, feeds_for<float>({4, 2}, 3)), "scale is [3], but X [4, 2] has 2 channels"));
  EXPECT_TRUE(has(error(train, feeds_for<float>({0, 3}, 3)), "X [0, 3] has no elements in a channel"));
  OperatorDef few = train;
  few.mutable_output()->RemoveLast();
  EXPECT_TRUE(has(error(few, feeds_for<float>({4, 3}, 3)), "with is_test: 0 it has 5 outputs, but here 4 outputs"));
  OperatorDef apart = train;
  apart.set_output(1, "other");
  EXPECT_TRUE(has(error(apart, feeds_for<float>({4, 3}, 3)),
                  "output \"running_mean\" must be the same blob as input \"est_mean\" (mean), not \"other\""));
  EXPECT_TRUE(has(error(batch_norm("BatchNorm", true, "CHWN"), feeds_for<float>({4, 3}, 3)), "argument \"order\""));
}

TEST(BatchNorm, EachGradientReadsWhatItNeeds) {
  for (const char* type : kNames) {
    OperatorDef def = batch_norm(type, false);
    EXPECT_EQ(gradient_reads(def, "bias"), "");
    EXPECT_EQ(gradient_reads(def, "scale"), "X saved inv");
    EXPECT_EQ(gradient_reads(def, "X"), "X scale saved inv");
  }
}

// The gradient of one input alone, of whatever else there is nothing but the shape.
TEST(BatchNorm, OneGradientAlone) {
  for (const char* order : {"NCHW", "NHWC"})
    for (const char* one : {"scale", "bias"}) {
      const OperatorDef def = batch_norm("BatchNorm", false, order);
      const Feeds feeds = feeds_for<double>({3, 2, 2}, 2);
      std::map<std::string, Tensor> given(feeds.begin(), feeds.end());
      given["saved"] = normal<double>({2}, 6);
      given["inv"] = uniform<double>({2}, 0.5, 2, 7);
      given["dY"] = normal<double>({3, 2, 2}, 8);
      const bool bias = std::string(one) == "bias";
      const auto gradient = [&](bool all) {
        return make_op("BatchNormGradient", {"X", "scale", "dY", "saved", "inv"},
                       {all ? "dX" : "", all || !bias ? "dscale" : "", all || bias ? "dbias" : ""},
                       {make_arg("order", std::string(order))});
      };
      const Feeds fed(given.begin(), given.end());
      const auto all = run_op_on(gradient(true), fed), alone = run_op_on(gradient(false), fed);
      EXPECT_EQ(compare(alone[bias ? 2 : 1], all[bias ? 2 : 1], 0), "") << one << order;
    }
}

}  // namespace
}  // namespace stepnet::testing::batch_norm_test
