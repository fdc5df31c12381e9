// CrossEntropyLoss and NLLLoss against what PyTorch's cross_entropy and nll_loss give, against the formula, and against
// central differences.
#include <cmath>

#include "stepnet/gradients.h"
#include "tests/operators/loss/alignment_testing.h"

namespace stepnet::testing::nll_loss_test {
namespace {

OperatorDef loss(const std::string& type, const std::vector<Argument>& args = {}, bool weighted = false) {
  std::vector<std::string> inputs = {"X", "T"};
  if (weighted) inputs.emplace_back("weight");
  return make_op(type, inputs, {"loss"}, args);
}
Argument reduction(const char* how) { return make_arg("reduction", std::string(how)); }
Argument smoothing(float share) { return make_arg("label_smoothing", share); }
Argument ignored(int64_t label) { return make_arg("ignore_index", label); }

Tensor gradient_of(const std::string& type, const std::vector<Argument>& args, const Feeds& feeds) {
  const bool weighted = feeds.size() == 3;
  const Tensor l = run_op_on(loss(type, args, weighted), feeds)[0];
  Tensor ones = Tensor::empty(DType::float64, l.shape());
  std::ranges::fill(ones.span<double>(), 1);
  std::vector<std::string> inputs = {"X", "T", "dloss"};
  if (weighted) inputs.emplace_back("weight");
  Feeds all = feeds;
  all.emplace_back("dloss", ones);
  return run_op_on(make_op(type + "Gradient", inputs, {"dX"}, args), all)[0];
}

Tensor recorded_scores(const Shape& shape) {
  Tensor x = Tensor::empty(DType::float64, shape);
  for (int64_t i = 0; i < x.size(); ++i) x.data<double>()[i] = 2 * std::sin(1.7 * static_cast<double>(i) + 0.3);
  return x;
}

struct Recorded {
  const char* type;
  Shape shape, places;
  std::vector<int64_t> labels;
  std::vector<double> weight;
  std::vector<Argument> args;
  std::vector<double> loss, gradient;  // of the sum of the losses
};

// PyTorch 2.15, float64: F.cross_entropy, and F.nll_loss of the same scores.
std::vector<Recorded> recorded() {
  return {
      {"CrossEntropyLoss",
       {3, 4},
       {3},
       {2, 0, 3},
       {},
       {},
       {1.940134030921},
       {0.07057892439464, 0.2408769010423, -0.3197883142629, 0.008332488825926, -0.1582101859279, 0.1312869953956,
        0.007015765463514, 0.01990742506886, 0.239793743622, 0.04257517998746, 0.004646969502912, -0.2870158931123}},
      {"CrossEntropyLoss",
       {3, 4},
       {3},
       {2, -100, 3},
       {0.5, 2, 1.5, 0.75},
       {smoothing(0.25F)},
       {2.682950832995},
       {0.1199169886093, 0.4011069026705, -0.5159875680122, -0.005036323267516, 0, 0, 0, 0, 0.260874775678,
        -0.006771495153255, -0.03634201411125, -0.2177612664135}},
      {"CrossEntropyLoss",
       {3, 4},
       {3},
       {2, 1, 3},
       {0.5, 2, 1.5, 0.75},
       {reduction("sum"), smoothing(0.25F), ignored(1)},
       {6.036639374239},
       {0.2698132243709, 0.9024905310085, -1.160972028028, -0.01133172735191, 0, 0, 0, 0, 0.5869682452754,
        -0.01523586409482, -0.08176953175031, -0.4899628494303}},
      {"CrossEntropyLoss",
       {3, 4},
       {3},
       {2, 1, 3},
       {0.5, 2, 1.5, 0.75},
       {reduction("none")},
       {4.804686160265, 1.863514517759, 1.480218316131},
       {0.3176051597759, 1.08394605469, -1.439047414183, 0.03749619971666, 1.050738884432, -1.212278027627,
        0.04209459278108, 0.1194445504132, 0.5395359231494, 0.09579415497179, 0.01045568138155, -0.6457857595028}},
      {"CrossEntropyLoss",
       {2, 3, 2},
       {2, 2},
       {2, 0, -1, 1},
       {},
       {ignored(-1), smoothing(0.5F)},
       {1.044044117199},
       {0.03777772947107, -0.008174563166938, -0.03764367695385, -0.04815115222931, -0.000134052517215,
        0.05632571539625, 0, -0.002664048949713, 0, -0.08790442147636, 0, 0.09056847042608}},
      {"CrossEntropyLoss",
       {2, 3, 2},
       {2, 2},
       {2, 0, 0, 1},
       {1, 0.25, 3},
       {reduction("none"), smoothing(0.125F)},
       {1.200183694233, 0.5821523245788, 3.933055585512, 0.3880875357774},
       {0.7429162605884, -0.2410787427734, 0.1401550628289, 0.0129534813318, -0.8830713234173, 0.2281252614416,
        -0.8918368827942, 0.02114199742777, 0.9973081559504, -0.06966427828096, -0.1054712731563, 0.04852228085319}},
      {"NLLLoss",
       {3, 4},
       {3},
       {2, -100, 3},
       {0.5, 2, 1.5, 0.75},
       {},
       {0.6065300481027},
       {0, 0, -0.6666666666667, 0, 0, 0, 0, 0, 0, 0, 0, -0.3333333333333}},
      {"NLLLoss",
       {2, 3, 2},
       {2, 2},
       {2, 0, -1, 1},
       {},
       {ignored(-1), reduction("none")},
       {-1.457938080252, -1.818594853651, 0, -0.2155073045989},
       {0, -1, 0, 0, -1, 0, 0, 0, 0, -1, 0, 0}},
  };
}

TEST(CrossEntropyLoss, IsThatOfPyTorch) {
  for (const Recorded& r : recorded()) {
    SCOPED_TRACE(std::string(r.type) + r.shape.str() + (r.args.empty() ? "" : r.args[0].ShortDebugString()));
    Feeds feeds = {{"X", recorded_scores(r.shape)},
                   {"T", Tensor::of<int64_t>(r.places, std::span<const int64_t>(r.labels))}};
    if (!r.weight.empty())
      feeds.emplace_back(
          "weight", Tensor::of<double>({static_cast<int64_t>(r.weight.size())}, std::span<const double>(r.weight)));
    expect_values(run_op_on(loss(r.type, r.args, !r.weight.empty()), feeds)[0], r.loss, 1e-12);
    expect_values(gradient_of(r.type, r.args, feeds), r.gradient, 1e-12);
  }
}

// sum over c of q (-log P), from probabilities, in both layouts and types.
TEST(CrossEntropyLoss, IsTheFormula) {
  constexpr double e = 0.25;
  const double w[] = {0.5, 2, 1.5};
  const Tensor x = normal<double>({2, 3, 2}, 1), t = Tensor::of<int32_t>({2, 2}, {2, 0, -7, 1});
  const Tensor weight = Tensor::of<double>({3}, {0.5, 2, 1.5});
  const auto score = [&](int64_t n, int64_t c, int64_t i) { return x.data<double>()[n * 6 + c * 2 + i]; };
  std::vector<double> each;
  double total = 0;
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t i = 0; i < 2; ++i) {
      const int32_t y = t.data<int32_t>()[n * 2 + i];
      double sum = 0, loss = 0;
      for (int64_t c = 0; c < 3; ++c) sum += std::exp(score(n, c, i));
      for (int64_t c = 0; c < 3; ++c)
        loss -= w[c] * ((c == y ? 1 - e : 0) + e / 3) * std::log(std::exp(score(n, c, i)) / sum);
      each.push_back(y == -7 ? 0 : loss);
      total += y == -7 ? 0 : w[y];
    }
  const Feeds feeds = {{"X", x}, {"T", t}, {"weight", weight}};
  const auto run = [&](const char* how) {
    return run_op_on(loss("CrossEntropyLoss", {reduction(how), smoothing(e), ignored(-7)}, true), feeds)[0];
  };
  const double sum = each[0] + each[1] + each[2] + each[3];
  expect_values(run("none"), each, 1e-13);
  expect_values(run("sum"), {sum}, 1e-13);
  expect_values(run("mean"), {sum / total}, 1e-13);
  EXPECT_EQ(run("none").shape(), Shape({2, 2}));
  EXPECT_EQ(run("mean").shape(), Shape());
}

TEST(CrossEntropyLoss, NothingHasTheMeanZero) {
  for (const char* type : {"CrossEntropyLoss", "NLLLoss"}) {
    const Feeds all_ignored = {{"X", normal<double>({2, 3})}, {"T", Tensor::of<int64_t>({2}, {-100, -100})}};
    expect_values(run_op_on(loss(type), all_ignored)[0], {0}, 0);
    expect_values(gradient_of(type, {}, all_ignored), std::vector<double>(6, 0), 0);
    const Feeds none = {{"X", normal<double>({0, 3})}, {"T", Tensor::of<int64_t>({0}, std::span<const int64_t>())}};
    expect_values(run_op_on(loss(type), none)[0], {0}, 0);
  }
}

TEST(CrossEntropyLoss, LargeScoresStayFinite) {
  const Tensor x = Tensor::of<float>({2, 2}, {3e38F, -3e38F, 1000, -1000});
  const Feeds feeds = {{"X", x}, {"T", Tensor::of<int32_t>({2}, {0, 1})}};
  EXPECT_EQ(compare(run_op_on(loss("CrossEntropyLoss", {reduction("none")}), feeds)[0],
                    Tensor::of<float>({2}, {0, 2000}), 1e-6),
            "");
}

TEST(CrossEntropyLoss, OfManyClassesInFloat) {
  const Tensor x = normal<float>({3, 1000}, 1, 0, 3), t = Tensor::of<int32_t>({3}, {999, 0, 17});
  const OperatorDef def = loss("CrossEntropyLoss", {smoothing(0.125F)});
  EXPECT_EQ(compare(to_double(run_op_on(def, {{"X", x}, {"T", t}})[0]),
                    run_op_on(def, {{"X", to_double(x)}, {"T", t}})[0], 2e-7),
            "");
}

TEST(CrossEntropyLoss, DerivativesOfTwoOrders) {
  const Tensor t = Tensor::of<int32_t>({2, 2}, {2, 0, -1, 1}), weight = Tensor::of<double>({3}, {0.5, 2, 1.5});
  const Feeds feeds = {{"X", normal<double>({2, 3, 2}, 3)}, {"T", t}, {"weight", weight}};
  for (const char* how : {"mean", "sum", "none"})
    for (const float share : {0.0F, 0.25F})
      EXPECT_EQ(check_orders(loss("CrossEntropyLoss", {reduction(how), smoothing(share), ignored(-1)}, true), feeds),
                "")
          << how << share;
  for (const char* how : {"mean", "sum", "none"})
    EXPECT_EQ(check_gradient(loss("NLLLoss", {reduction(how), smoothing(0.25F), ignored(-1)}, true), feeds, {"X"}), "")
        << how;
  EXPECT_EQ(
      check_orders(loss("CrossEntropyLoss"), {{"X", normal<double>({1, 1})}, {"T", Tensor::of<int32_t>({1}, {0})}}),
      "");
}

TEST(CrossEntropyLoss, WeightsHaveNoDerivative) {
  NetDef net;
  *net.add_op() = loss("CrossEntropyLoss", {}, true);
  GradientRequest request;
  request.wanted = {"weight"};
  request.targets = {{"loss", ""}};
  EXPECT_NE(error_of([&] {
              add_gradient_operators(net, request);
            }).find("CrossEntropyLoss has no gradient with respect to its input \"weight\""),
            std::string::npos);
}

TEST(CrossEntropyLoss, MistakesAreNamed) {
  const auto error = [](const Shape& x, const Tensor& t, const std::vector<Argument>& args = {}) {
    return error_of([&] { run_op_on(loss("CrossEntropyLoss", args), {{"X", normal<float>(x)}, {"T", t}}); });
  };
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const Tensor two = Tensor::of<int32_t>({2}, {1, 3}), square = Tensor::of<int32_t>({2, 2}, {0, 1, -1, 2});
  expect(error({2, 3}, two), "the label of sample 1 is 3, but must be in 0..2, or -100, which is ignored");
  expect(error({2, 3, 2}, square), "the label of sample 1, place 0, is -1");
  expect(error({3, 3}, two), "T is [2], but X [3, 3] needs a label for each place beside its classes");
  expect(error({2, 3}, square), "T is [2, 2]");
  expect(error({2}, two), "X is [2], but must be [N, C, ...]");
  expect(error({2, 3}, two, {smoothing(1.5F)}), "must be from 0 to 1, but is 1.5");
  const std::string text = error_of([] {
    run_op_on(loss("NLLLoss", {}, true),
              {{"X", normal<float>({1, 3})}, {"T", Tensor::of<int32_t>({1}, {0})}, {"weight", normal<float>({2})}});
  });
  expect(text, "weight is [2], but X [1, 3] has 3 classes");
}

}  // namespace
}  // namespace stepnet::testing::nll_loss_test
