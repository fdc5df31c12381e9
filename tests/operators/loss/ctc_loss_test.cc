// CTCLoss against the sum over all alignments, against what PyTorch's ctc_loss gives, and against central differences.
#include <limits>

#include "stepnet/gradients.h"
#include "tests/operators/loss/alignment_testing.h"

namespace stepnet::testing::ctc_loss_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

const std::vector<std::string> kInputs = {"x", "targets", "times", "lengths"};

OperatorDef loss(const std::vector<Argument>& args = {}) { return make_op("CTCLoss", kInputs, {"loss"}, args); }
OperatorDef gradient(const std::vector<Argument>& args = {}) {
  std::vector<std::string> inputs = kInputs;
  inputs.emplace_back("dloss");
  return make_op("CTCLossGradient", inputs, {"dx"}, args);
}
Argument reduction(const char* how) { return make_arg("reduction", std::string(how)); }
Argument zero_infinity() { return make_arg("zero_infinity", true); }
Argument blank(int64_t c) { return make_arg("blank", c); }

Tensor whole(const Shape& shape, const std::vector<int32_t>& values) {
  return Tensor::of<int32_t>(shape, std::span<const int32_t>(values));
}

Feeds feeds_of(const Tensor& x, const std::vector<int32_t>& targets, const std::vector<int32_t>& times,
               const std::vector<int32_t>& lengths) {
  const int64_t samples = x.dim(1), places = samples > 0 ? static_cast<int64_t>(targets.size()) / samples : 0;
  return {{"x", x},
          {"targets", whole({samples, places}, targets)},
          {"times", whole({samples}, times)},
          {"lengths", whole({samples}, lengths)}};
}

Tensor gradient_of(const Feeds& feeds, const std::vector<Argument>& args, const Tensor& dloss) {
  Feeds all = feeds;
  all.emplace_back("dloss", dloss);
  return run_op_on(gradient(args), all)[0];
}

// --- PyTorch ---------------------------------------------------------------------------------------------------------

Tensor recorded_scores(const Shape& shape) {
  return sines(shape, [](double t, double b, double c, double) { return 1.3 * t + 2.1 * b + 0.7 * c + 0.3 * t * c; });
}

struct Recorded {
  const char* name;
  Shape shape;
  std::vector<int32_t> targets, times, lengths;
  std::vector<Argument> args;
  std::vector<double> loss, gradient;  // of the sum of the losses
};

// PyTorch 2.15, float64: F.ctc_loss(x.log_softmax(2), ...).
std::vector<Recorded> recorded() {
  return {
      {"the mean",
       {5, 2, 4},
       {1, 2, 3, 3},
       {5, 4},
       {2, 2},
       {},
       {2.967227071874},
       {-0.0155033320849,
        -0.1681095813254,
        0.1029733454795,
        0.08063956793081,
        0.09797727455573,
        0.05925054015355,
        0.01503276482788,
        -0.1722605795372,
        0.007214970373397,
        -0.02463871857245,
        0.01414491326498,
        0.003278834934076,
        -0.1079013403533,
        0.01675440513119,
        0.02395881678908,
        0.06718811843307,
        -0.07659698671037,
        0.0005875561943524,
        -0.004662374762163,
        0.08067180527818,
        -0.07254711561438,
        0.0135773871457,
        0.130074834741,
        -0.07110510627232,
        -0.004864833961101,
        0.004840561662574,
        -0.1099636065285,
        0.109987878827,
        -0.1243226436881,
        0.1882287497815,
        0.04241908850337,
        -0.1063251945968,
        -0.01031627820688,
        0.1560384187121,
        -0.1506815747162,
        0.004959434210964,
        0,
        0,
        0,
        0}},
      {"each",
       {5, 2, 4},
       {1, 2, 3, 3},
       {5, 4},
       {2, 2},
       {reduction("none")},
       {3.622361184479, 8.246547103018},
       {-0.0620133283396,
        -0.6724383253015,
        0.4118933819178,
        0.3225582717232,
        0.3919090982229,
        0.2370021606142,
        0.06013105931152,
        -0.6890423181486,
        0.02885988149359,
        -0.0985548742898,
        0.05657965305991,
        0.0131153397363,
        -0.4316053614133,
        0.06701762052475,
        0.09583526715632,
        0.2687524737323,
        -0.3063879468415,
        0.00235022477741,
        -0.01864949904865,
        0.3226872211127,
        -0.2901884624575,
        0.05430954858278,
        0.520299338964,
        -0.2844204250893,
        -0.01945933584441,
        0.0193622466503,
        -0.4398544261139,
        0.439951515308,
        -0.4972905747524,
        0.7529149991262,
        0.1696763540135,
        -0.4253007783873,
        -0.04126511282751,
        0.6241536748485,
        -0.6027262988648,
        0.01983773684386,
        0,
        0,
        0,
        0}},
      {"another blank, one label and none",
       {4, 3, 3},
       {1, 0, 0, 1, 0, 0},
       {4, 2, 3},
       {2, 1, 0},
       {blank(2), reduction("sum")},
       {4.57737347545},
       {0.08471535007452,
        -0.2771347588108,
        0.1924194087363,
        -0.2424694217816,
        0.2421403651838,
        0.0003290565978103,
        0.2925527865282,
        0.2343677438639,
        -0.5269205303921,
        0.230184992512,
        -0.2561385128122,
        0.02595352030018,
        -0.1303474450698,
        0.1549575709176,
        -0.02461012584776,
        0.02935179024627,
        0.185058902852,
        -0.2144106930982,
        -0.1070657418579,
        0.07485729735645,
        0.03220844450141,
        0,
        0,
        0,
        0.2512011430886,
        0.6505426784647,
        -0.9017438215534,
        -0.007138452829229,
        0.05087528960597,
        -0.04373683677674,
        0,
        0,
        0,
        0,
        0,
        0}},
      {"the mean with none",
       {4, 3, 3},
       {1, 0, 0, 1, 0, 0},
       {4, 2, 3},
       {2, 1, 0},
       {blank(2)},
       {1.392412506982},
       {0.01411922501242,
        -0.04618912646846,
        0.03206990145604,
        -0.08082314059387,
        0.08071345506126,
        0.0001096855326034,
        0.09751759550941,
        0.07812258128797,
        -0.1756401767974,
        0.03836416541866,
        -0.04268975213536,
        0.004325586716696,
        -0.04344914835661,
        0.05165252363919,
        -0.008203375282585,
        0.009783930082091,
        0.06168630095065,
        -0.07147023103275,
        -0.01784429030964,
        0.01247621622608,
        0.005368074083568,
        0,
        0,
        0,
        0.08373371436288,
        0.2168475594882,
        -0.3005812738511,
        -0.001189742138205,
        0.008479214934328,
        -0.007289472796123,
        0,
        0,
        0,
        0,
        0,
        0}},
      {"impossible",
       {3, 2, 3},
       {1, 1, 2, 1},
       {2, 3},
       {2, 2},
       {reduction("none")},
       {kInfinity, 3.904335556911},
       {kNaN, kNaN, kNaN, -0.01143988817197, 0.2421403651838, -0.2307004770118, kNaN, kNaN, kNaN, 0.4477640566575,
        0.1009551412592, -0.5487191979167, 0, 0, 0, 0.01154573786526, -0.897217010402, 0.8856712725367}},
      {"impossible, as zero",
       {3, 2, 3},
       {1, 1, 2, 1},
       {2, 3},
       {2, 2},
       {zero_infinity()},
       {0.9760838892278},
       {0, 0, 0, -0.002859972042993, 0.06053509129595, -0.05767511925296, 0, 0, 0, 0.1119410141644, 0.0252387853148,
        -0.1371797994792, 0, 0, 0, 0.002886434466314, -0.2243042526005, 0.2214178181342}},
      {"no timesteps",
       {2, 2, 3},
       {1, 1, 2, 1},
       {0, 0},
       {0, 1},
       {reduction("none")},
       {0, kInfinity},
       {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
      {"no timesteps, as zero",
       {2, 2, 3},
       {1, 1, 2, 1},
       {0, 0},
       {0, 1},
       {reduction("none"), zero_infinity()},
       {0, 0},
       {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
  };
}

TEST(CTCLoss, IsThatOfPyTorch) {
  for (const Recorded& r : recorded()) {
    SCOPED_TRACE(r.name);
    const Feeds feeds = feeds_of(recorded_scores(r.shape), r.targets, r.times, r.lengths);
    const Tensor l = run_op_on(loss(r.args), feeds)[0];
    expect_values(l, r.loss, 2e-12);
    Tensor ones = Tensor::empty(DType::float64, l.shape());
    std::ranges::fill(ones.span<double>(), 1);
    expect_values(gradient_of(feeds, r.args, ones), r.gradient, 2e-12);
  }
}

// --- All alignments --------------------------------------------------------------------------------------------------

std::vector<int32_t> collapsed(const std::vector<int32_t>& alignment, int32_t blank) {
  std::vector<int32_t> labels;
  for (size_t t = 0; t < alignment.size(); ++t)
    if (alignment[t] != blank && (t == 0 || alignment[t] != alignment[t - 1])) labels.push_back(alignment[t]);
  return labels;
}

// -log of the sum over all sequences of classes that stand for the labels, of sample b.
double by_all_alignments(const Tensor& x, int64_t b, int64_t times, const std::vector<int32_t>& labels, int32_t blank) {
  const int64_t samples = x.dim(1), classes = x.dim(2);
  const Tensor p = shares_of(x, classes);
  std::vector<int32_t> alignment(static_cast<size_t>(times), 0);
  double sum = 0;
  for (;;) {
    if (collapsed(alignment, blank) == labels) {
      double product = 1;
      for (int64_t t = 0; t < times; ++t) product *= p.data<double>()[(t * samples + b) * classes + alignment[t]];
      sum += product;
    }
    int64_t t = 0;
    while (t < times && ++alignment[t] == classes) alignment[t++] = 0;
    if (t == times) return -std::log(sum);
  }
}

TEST(CTCLoss, IsTheSumOverAllAlignments) {
  const Tensor x = normal<double>({5, 1, 3}, 3);
  const std::vector<std::vector<int32_t>> targets = {{},        {1},       {1, 2},    {1, 1},
                                                     {2, 1, 2}, {2, 2, 1}, {1, 1, 1}, {2, 2, 2, 2}};
  for (int32_t times = 0; times <= 5; ++times)
    for (const std::vector<int32_t>& labels : targets) {
      const Feeds feeds = feeds_of(x, labels, {times}, {static_cast<int32_t>(labels.size())});
      expect_values(run_op_on(loss({reduction("sum")}), feeds)[0], {by_all_alignments(x, 0, times, labels, 0)}, 1e-12);
    }
}

TEST(CTCLoss, OfSeveralSamples) {
  const Tensor x = normal<double>({4, 3, 4}, 5);
  const Feeds feeds = feeds_of(x, {1, 0, 7, 2, 2, -5, 3, 9, 9}, {4, 4, 3}, {2, 1, 0});
  Feeds bad = feeds;
  EXPECT_NE(error_of([&] { run_op_on(loss({blank(2)}), bad); }).find("which is the blank"), std::string::npos);
  bad[1].second = whole({3, 3}, {1, 0, 7, 3, 2, -5, 3, 9, 9});
  const std::vector<double> each = {by_all_alignments(x, 0, 4, {1, 0}, 2), by_all_alignments(x, 1, 4, {3}, 2),
                                    by_all_alignments(x, 2, 3, {}, 2)};
  expect_values(run_op_on(loss({blank(2), reduction("none")}), bad)[0], each, 1e-12);
  expect_values(run_op_on(loss({blank(2), reduction("sum")}), bad)[0], {each[0] + each[1] + each[2]}, 1e-12);
  expect_values(run_op_on(loss({blank(2)}), bad)[0], {(each[0] / 2 + each[1] + each[2]) / 3}, 1e-12);
}

// What stands behind the ends is not read, whatever it is, and has a gradient of 0.
TEST(CTCLoss, NothingBehindTheEndsCounts) {
  Tensor x = normal<double>({4, 2, 3}, 1);
  const Feeds feeds = feeds_of(x, {1, 2, 2, 99}, {2, 4}, {2, 1});
  const Tensor before = run_op_on(loss(), feeds)[0].clone();
  for (int64_t t = 2; t < 4; ++t)
    for (int64_t c = 0; c < 3; ++c) x.data<double>()[t * 6 + c] = kNaN;
  EXPECT_EQ(compare(run_op_on(loss(), feeds)[0], before, 0), "");
  const Tensor dx = gradient_of(feeds, {}, Tensor::scalar(1.0));
  for (int64_t t = 0; t < 4; ++t)
    for (int64_t c = 0; c < 3; ++c) EXPECT_EQ(dx.data<double>()[t * 6 + c] != 0, t < 2) << t << c;
}

TEST(CTCLoss, LogarithmsOfProbabilitiesAreScores) {
  const Tensor x = normal<double>({6, 2, 5}, 2);
  const Tensor logs = logarithms(shares_of(x, 5));
  const auto feeds = [](const Tensor& scores) { return feeds_of(scores, {1, 1, 4, 2, 3, 2}, {6, 5}, {3, 2}); };
  EXPECT_EQ(compare(run_op_on(loss(), feeds(logs))[0], run_op_on(loss(), feeds(x))[0], 1e-14), "");
  const Tensor one = Tensor::scalar(1.0);
  EXPECT_EQ(compare(gradient_of(feeds(logs), {}, one), gradient_of(feeds(x), {}, one), 1e-14), "");
}

// Of scores as large as float has, and of many timesteps, whose probabilities are no numbers of double.
TEST(CTCLoss, LargeNumbersStayFinite) {
  Tensor x = Tensor::zeros(DType::float32, {2000, 1, 3});
  for (int64_t t = 0; t < 2000; ++t) x.data<float>()[t * 3 + t % 2] = 100;
  const Feeds feeds = feeds_of(x, {2}, {2000}, {1});
  const Tensor l = run_op_on(loss(), feeds)[0];
  EXPECT_NEAR(static_cast<double>(l.data<float>()[0]), 1000 * 100, 200);
  const Tensor dx = gradient_of(feeds, {}, Tensor::scalar(1.0F));
  for (const float v : dx.span<float>()) ASSERT_TRUE(std::isfinite(v));
  x.data<float>()[0] = 3e38F;
  EXPECT_TRUE(std::isfinite(run_op_on(loss(), feeds)[0].data<float>()[0]));
}

TEST(CTCLoss, FloatIsDoubleRounded) {
  const Tensor x = normal<float>({20, 3, 7}, 4);
  const std::vector<int32_t> targets = {1, 2, 2, 3, 6, 6, 6, 5, 1, 2, 3, 4};
  const Feeds single = feeds_of(x, targets, {20, 19, 7}, {4, 4, 2}),
              wide = feeds_of(to_double(x), targets, {20, 19, 7}, {4, 4, 2});
  EXPECT_EQ(compare(to_double(run_op_on(loss(), single)[0]), run_op_on(loss(), wide)[0], 1e-7), "");
  EXPECT_EQ(compare(to_double(gradient_of(single, {}, Tensor::scalar(1.0F))),
                    gradient_of(wide, {}, Tensor::scalar(1.0)), 1e-7),
            "");
}

// --- Derivatives -----------------------------------------------------------------------------------------------------

TEST(CTCLoss, DerivativesOfTwoOrders) {
  const Tensor x = normal<double>({6, 3, 4}, 7);
  const Feeds feeds = feeds_of(x, {1, 1, 2, 3, 2, 3, 1, 1, 1}, {6, 5, 2}, {3, 0, 2});
  for (const char* how : {"mean", "sum", "none"})
    EXPECT_EQ(check_orders(loss({reduction(how), zero_infinity()}), feeds), "") << how;
  EXPECT_EQ(check_orders(loss(), feeds_of(normal<double>({1, 1, 1}), {}, {1}, {0})), "");
  EXPECT_EQ(check_orders(loss(), feeds_of(normal<double>({1, 1, 2}), {1}, {1}, {1})), "");
}

TEST(CTCLoss, ThirdDerivativesAreRefused) {
  NetDef net;
  *net.add_op() = loss();
  GradientRequest request;
  request.wanted = {"x"};
  request.targets = {{"loss", ""}};
  const std::string first = add_gradient_operators(net, request).gradients.at("x").dense;
  request.targets = {{first, ""}};
  const std::string second = add_gradient_operators(net, request).gradients.at("x").dense;
  request.targets = {{second, ""}};
  EXPECT_NE(error_of([&] { add_gradient_operators(net, request); }).find("CTCLossHessian"), std::string::npos);
}

// --- Mistakes --------------------------------------------------------------------------------------------------------

TEST(CTCLoss, MistakesAreNamed) {
  const Tensor x = normal<float>({4, 2, 3});
  const auto expect_error = [&](const Feeds& feeds, const std::string& text, const std::vector<Argument>& args = {}) {
    const std::string error = error_of([&] { run_op_on(loss(args), feeds); });
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  expect_error(feeds_of(x, {1, 2, 1, 3}, {4, 4}, {2, 2}), "the label at place 1 of sample 1 is 3, but must be in 0..2");
  expect_error(feeds_of(x, {1, -1, 1, 2}, {4, 4}, {2, 2}), "the label at place 1 of sample 0 is -1");
  expect_error(feeds_of(x, {1, 2, 0, 2}, {4, 4}, {2, 2}), "the label at place 0 of sample 1 is 0, which is the blank");
  expect_error(feeds_of(x, {1, 2, 1, 2}, {4, 5}, {2, 2}), "input_lengths of sample 1 is 5, but must be in 0..4");
  expect_error(feeds_of(x, {1, 2, 1, 2}, {-1, 4}, {2, 2}), "input_lengths of sample 0 is -1");
  expect_error(feeds_of(x, {1, 2, 1, 2}, {4, 4}, {2, 3}), "target_lengths of sample 1 is 3, but must be in 0..2");
  expect_error(feeds_of(x, {1, 2, 1, 2}, {4, 4}, {-2, 2}), "target_lengths of sample 0 is -2");
  expect_error(feeds_of(x, {1, 2, 1, 2}, {4, 4}, {2, 2}), "the blank is 3, but logits [4, 2, 3] have classes 0..2",
               {blank(3)});
  expect_error(feeds_of(x, {1, 2, 1, 2}, {4, 4}, {2, 2}), "reduction", {reduction("average")});
  Feeds flat = feeds_of(x, {1, 2, 1, 2}, {4, 4}, {2, 2});
  flat[1].second = whole({4}, {1, 2, 1, 2});
  expect_error(flat, "targets is [4], but must be [B, S] with B = 2");
  flat[0].second = normal<float>({4, 3});
  expect_error(flat, "logits is [4, 3], but must be [T, B, C]");
}

}  // namespace
}  // namespace stepnet::testing::ctc_loss_test
