// TransducerLoss against the sum over all alignments, against what torchaudio's rnnt_loss gives, and against central
// differences.
#include <limits>

#include "stepnet/gradients.h"
#include "tests/operators/loss/alignment_testing.h"

namespace stepnet::testing::transducer_loss_test {
namespace {

const std::vector<std::string> kInputs = {"x", "targets", "times", "lengths"};

OperatorDef loss(const std::vector<Argument>& args = {}) { return make_op("TransducerLoss", kInputs, {"loss"}, args); }
Argument reduction(const char* how) { return make_arg("reduction", std::string(how)); }
Argument blank(int64_t c) { return make_arg("blank", c); }

Tensor whole(const Shape& shape, const std::vector<int32_t>& values) {
  return Tensor::of<int32_t>(shape, std::span<const int32_t>(values));
}

Feeds feeds_of(const Tensor& x, const std::vector<int32_t>& targets, const std::vector<int32_t>& times,
               const std::vector<int32_t>& lengths) {
  return {{"x", x},
          {"targets", whole({x.dim(0), x.dim(2) - 1}, targets)},
          {"times", whole({x.dim(0)}, times)},
          {"lengths", whole({x.dim(0)}, lengths)}};
}

Tensor gradient_of(const Feeds& feeds, const std::vector<Argument>& args, const Tensor& dloss) {
  std::vector<std::string> inputs = kInputs;
  inputs.emplace_back("dloss");
  Feeds all = feeds;
  all.emplace_back("dloss", dloss);
  return run_op_on(make_op("TransducerLossGradient", inputs, {"dx"}, args), all)[0];
}

// Recorded from torchaudio 2.11 on PyTorch 2.15, which computes in float32.
TEST(TransducerLoss, IsThatOfTorchaudio) {
  const Tensor x =
      sines({2, 3, 3, 4}, [](double b, double t, double u, double c) { return 1.3 * b + 0.9 * t + 2.1 * u + 0.7 * c; });
  const Feeds feeds = feeds_of(x, {1, 2, 0, 0}, {3, 2}, {2, 1});
  expect_values(run_op_on(loss({reduction("none")}), feeds)[0], {4.9738693, 2.5691199}, 2e-6);
  expect_values(run_op_on(loss({reduction("sum"), blank(3)}), feeds)[0], {7.5429893}, 2e-6);
  expect_values(run_op_on(loss({blank(-1)}), feeds)[0], {3.7714946}, 2e-6);
  expect_values(gradient_of(feeds, {}, Tensor::scalar(1.0)),
                {0.028694859,
                 -0.081937492,
                 0.20594673,
                 -0.15270382,
                 0.12679778,
                 0.044086389,
                 -0.16557999,
                 -0.0053041629,
                 0.018947992,
                 0.015179478,
                 0.03064031,
                 -0.064767785,
                 0.083831079,
                 -0.14878392,
                 0.077754803,
                 -0.012801865,
                 0.19249184,
                 0.050306875,
                 -0.20866618,
                 -0.034132596,
                 0.0091548981,
                 0.02302807,
                 0.089671969,
                 -0.12185496,
                 0.022023704,
                 -0.025611918,
                 0.0027945624,
                 0.00079365354,
                 0.020403845,
                 0.011065958,
                 -0.077644132,
                 0.046174355,
                 0.0180855,
                 0.071068302,
                 0.19082519,
                 -0.27997908,
                 -0.17170569,
                 0.19279832,
                 0.073538534,
                 -0.094631128,
                 0.19740586,
                 0.064058051,
                 0.044881001,
                 -0.30634493,
                 0,
                 0,
                 0,
                 0,
                 -0.034318425,
                 0.02532851,
                 0.0064778649,
                 0.0025120522,
                 0.042074066,
                 0.038625583,
                 0.087391004,
                 -0.16809064,
                 0,
                 0,
                 0,
                 0,
                 0,
                 0,
                 0,
                 0,
                 0,
                 0,
                 0,
                 0,
                 0,
                 0,
                 0,
                 0},
                2e-7);
}

// --- All alignments --------------------------------------------------------------------------------------------------

struct Lattice {
  Tensor p;
  int64_t b, times, width, classes, blank;
  std::vector<int32_t> labels;

  double share(int64_t t, int64_t u, int64_t c) const {
    return p.data<double>()[((b * p.dim(1) + t) * width + u) * classes + c];
  }
  // Of all ways from (t, u) to the end.
  double ways(int64_t t, int64_t u) const {
    const auto length = static_cast<int64_t>(labels.size());
    double sum = 0;
    if (u < length) sum += share(t, u, labels[u]) * ways(t, u + 1);
    if (t + 1 < times) sum += share(t, u, blank) * ways(t + 1, u);
    if (t + 1 == times && u == length) sum += share(t, u, blank);
    return sum;
  }
};

double by_all_alignments(const Tensor& x, int64_t b, int64_t times, const std::vector<int32_t>& labels, int64_t blank) {
  return -std::log(Lattice{shares_of(x, x.dim(3)), b, times, x.dim(2), x.dim(3), blank, labels}.ways(0, 0));
}

TEST(TransducerLoss, IsTheSumOverAllAlignments) {
  const std::vector<std::vector<int32_t>> targets = {{}, {1}, {2, 2}, {1, 2, 1}, {2, 1, 1, 1}};
  for (int32_t times = 1; times <= 5; ++times)
    for (const std::vector<int32_t>& labels : targets) {
      const auto length = static_cast<int32_t>(labels.size());
      const Tensor x = normal<double>({1, 5, length + 1, 3}, 3 + times);
      const Feeds feeds = feeds_of(x, labels, {times}, {length});
      expect_values(run_op_on(loss({blank(0)}), feeds)[0], {by_all_alignments(x, 0, times, labels, 0)}, 1e-12);
    }
}

TEST(TransducerLoss, OfSeveralSamples) {
  const Tensor x = normal<double>({3, 4, 3, 4}, 5);
  const Feeds feeds = feeds_of(x, {1, 0, 2, 99, -5, 9}, {4, 3, 1}, {2, 1, 0});
  const std::vector<double> each = {by_all_alignments(x, 0, 4, {1, 0}, 3), by_all_alignments(x, 1, 3, {2}, 3),
                                    by_all_alignments(x, 2, 1, {}, 3)};
  expect_values(run_op_on(loss({reduction("none")}), feeds)[0], each, 1e-12);
  expect_values(run_op_on(loss({reduction("sum")}), feeds)[0], {each[0] + each[1] + each[2]}, 1e-12);
  expect_values(run_op_on(loss(), feeds)[0], {(each[0] + each[1] + each[2]) / 3}, 1e-12);
}

// What stands behind the ends is not read, whatever it is, and has a gradient of 0.
TEST(TransducerLoss, NothingBehindTheEndsCounts) {
  Tensor x = normal<double>({1, 4, 3, 2}, 1);
  const Feeds feeds = feeds_of(x, {0, 99}, {2}, {1});
  const Tensor before = run_op_on(loss(), feeds)[0].clone();
  const auto counts = [](int64_t i) { return i / 6 < 2 && i / 2 % 3 <= 1; };
  for (int64_t i = 0; i < x.size(); ++i)
    if (!counts(i)) x.data<double>()[i] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(compare(run_op_on(loss(), feeds)[0], before, 0), "");
  const Tensor dx = gradient_of(feeds, {}, Tensor::scalar(1.0));
  for (int64_t i = 0; i < x.size(); ++i) EXPECT_EQ(dx.data<double>()[i] != 0, counts(i)) << i;
}

TEST(TransducerLoss, LogarithmsOfProbabilitiesAreScores) {
  const Tensor x = normal<double>({2, 4, 3, 5}, 2);
  const Tensor logs = logarithms(shares_of(x, 5)), one = Tensor::scalar(1.0);
  const auto feeds = [](const Tensor& scores) { return feeds_of(scores, {1, 1, 0, 2}, {4, 3}, {2, 2}); };
  EXPECT_EQ(compare(run_op_on(loss(), feeds(logs))[0], run_op_on(loss(), feeds(x))[0], 1e-14), "");
  EXPECT_EQ(compare(gradient_of(feeds(logs), {}, one), gradient_of(feeds(x), {}, one), 1e-14), "");
}

TEST(TransducerLoss, LargeNumbersStayFinite) {
  Tensor x = Tensor::zeros(DType::float32, {1, 1000, 2, 3});
  for (int64_t i = 0; i < x.size(); i += 3) x.data<float>()[i] = 100;
  const Feeds feeds = feeds_of(x, {1}, {1000}, {1});
  EXPECT_NEAR(static_cast<double>(run_op_on(loss(), feeds)[0].data<float>()[0]), 100 * 1001, 100);
  const Tensor dx = gradient_of(feeds, {}, Tensor::scalar(1.0F));
  for (const float v : dx.span<float>()) ASSERT_TRUE(std::isfinite(v));
}

TEST(TransducerLoss, FloatIsDoubleRounded) {
  const Tensor x = normal<float>({2, 9, 4, 7}, 4);
  const auto feeds = [](const Tensor& scores) { return feeds_of(scores, {1, 2, 2, 3, 0, 0}, {9, 7}, {3, 2}); };
  EXPECT_EQ(compare(to_double(run_op_on(loss(), feeds(x))[0]), run_op_on(loss(), feeds(to_double(x)))[0], 1e-7), "");
  EXPECT_EQ(compare(to_double(gradient_of(feeds(x), {}, Tensor::scalar(1.0F))),
                    gradient_of(feeds(to_double(x)), {}, Tensor::scalar(1.0)), 1e-7),
            "");
}

TEST(TransducerLoss, DerivativesOfTwoOrders) {
  const Feeds feeds = feeds_of(normal<double>({3, 3, 3, 3}, 7), {1, 0, 1, 1, 0, 1}, {3, 2, 1}, {2, 0, 1});
  for (const char* how : {"mean", "sum", "none"}) EXPECT_EQ(check_orders(loss({reduction(how)}), feeds), "") << how;
  EXPECT_EQ(check_orders(loss(), feeds_of(normal<double>({1, 1, 1, 1}), {}, {1}, {0})), "");
}

TEST(TransducerLoss, ThirdDerivativesAreRefused) {
  NetDef net;
  *net.add_op() = loss();
  GradientRequest request;
  request.wanted = {"x"};
  std::string target = "loss";
  for (int order = 0; order < 2; ++order) {
    request.targets = {{target, ""}};
    target = add_gradient_operators(net, request).gradients.at("x").dense;
  }
  request.targets = {{target, ""}};
  EXPECT_NE(error_of([&] { add_gradient_operators(net, request); }).find("TransducerLossHessian"), std::string::npos);
}

TEST(TransducerLoss, MistakesAreNamed) {
  const Tensor x = normal<float>({2, 4, 3, 3});
  const auto expect_error = [&](const Feeds& feeds, const std::string& text, const std::vector<Argument>& args = {}) {
    const std::string error = error_of([&] { run_op_on(loss(args), feeds); });
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  expect_error(feeds_of(x, {0, 1, 1, 3}, {4, 4}, {2, 2}), "the label at place 1 of sample 1 is 3, but must be in 0..2");
  expect_error(feeds_of(x, {0, -1, 1, 1}, {4, 4}, {2, 2}), "the label at place 1 of sample 0 is -1");
  expect_error(feeds_of(x, {0, 1, 2, 1}, {4, 4}, {2, 2}), "the label at place 0 of sample 1 is 2, which is the blank");
  expect_error(feeds_of(x, {0, 1, 1, 1}, {4, 5}, {2, 2}), "logit_lengths of sample 1 is 5, but must be in 1..4");
  expect_error(feeds_of(x, {0, 1, 1, 1}, {0, 4}, {2, 2}), "logit_lengths of sample 0 is 0, but must be in 1..4");
  expect_error(feeds_of(x, {0, 1, 1, 1}, {4, 4}, {2, 3}), "target_lengths of sample 1 is 3, but must be in 0..2");
  const Feeds good = feeds_of(x, {0, 1, 1, 1}, {4, 4}, {2, 2});
  expect_error(good, "the blank is 3, but logits [2, 4, 3, 3] have classes 0..2", {blank(3)});
  expect_error(good, "the blank is -4", {blank(-4)});
  Feeds wide = good;
  wide[1].second = whole({2, 3}, {0, 0, 0, 0, 0, 0});
  expect_error(wide, "targets is [2, 3], but for logits [2, 4, 3, 3] must be [2, 2]");
}

}  // namespace
}  // namespace stepnet::testing::transducer_loss_test
