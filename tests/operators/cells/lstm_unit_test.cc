// LSTMUnit against a plain loop and central differences, in both of its forms.
#include <cmath>

#include "stepnet/record.h"
#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::lstm_unit_test {
namespace {

struct Options {
  double forget_bias = 0;
  bool drop = false;
  bool lengths = true;
};

double s(double v) { return 1 / (1 + std::exp(-v)); }

std::pair<Tensor, Tensor> naive(const Feeds& feeds, const Options& o, int64_t d) {
  Tensor h = to_double(feeds[0].second), c = to_double(feeds[1].second);
  const Tensor gates = to_double(feeds[2].second);
  for (int64_t n = 0; n < h.size() / d; ++n) {
    const bool valid = !o.lengths || feeds[4].second.data<int32_t>()[0] < feeds[3].second.data<int32_t>()[n];
    const double* x = gates.data<double>() + n * 4 * d;
    for (int64_t j = 0; j < d; ++j) {
      double &hj = h.data<double>()[n * d + j], &cj = c.data<double>()[n * d + j];
      if (valid) {
        cj = s(x[d + j] + o.forget_bias) * cj + s(x[j]) * std::tanh(x[3 * d + j]);
        hj = s(x[2 * d + j]) * std::tanh(cj);
      } else if (o.drop) {
        hj = cj = 0;
      }
    }
  }
  return {h, c};
}

OperatorDef unit(const Options& o) {
  std::vector<std::string> inputs = {"H_prev", "C_prev", "gates"};
  if (o.lengths) inputs.emplace_back("lengths");
  inputs.emplace_back("t");
  return make_op("LSTMUnit", inputs, {"H", "C"},
                 {make_arg("forget_bias", static_cast<float>(o.forget_bias)), make_arg("drop_states", o.drop),
                  make_arg("sequence_lengths", o.lengths)});
}

template <class T>
Feeds feeds_for(const Shape& states, const Options& o) {
  const int64_t d = states[states.rank() - 1], rows = states.size_between(0, states.rank() - 1);
  Feeds feeds = {{"H_prev", normal<T>(states, 1)},
                 {"C_prev", normal<T>(states, 2)},
                 {"gates", normal<T>(states.with(states.rank() - 1, 4 * d), 3, 0, 2)}};
  if (o.lengths) feeds.emplace_back("lengths", integers<int32_t>({rows}, 1, 3, 4));
  feeds.emplace_back("t", Tensor::of<int32_t>({1}, {1}));
  return feeds;
}

const Options kOptions[] = {{}, {1.5, false, true}, {-0.5, true, true}, {0, false, false}, {2, true, false}};

TEST(LstmUnit, ForwardIsTheFormula) {
  for (const Options& o : kOptions)
    for (const Shape& states : {Shape{1, 5, 3}, Shape{5, 17}, Shape{1, 1}, Shape{0, 4}, Shape{3, 0}, Shape{2, 3, 4}}) {
      const auto [h, c] = naive(feeds_for<double>(states, o), o, std::max<int64_t>(states.at(-1), 1));
      const auto y = run_op_on(unit(o), feeds_for<double>(states, o));
      EXPECT_EQ(compare(y[0], h, 1e-14), "") << states.str();
      EXPECT_EQ(compare(y[1], c, 1e-14), "") << states.str();
    }
}

TEST(LstmUnit, AStateThatNobodyReadsMayBeAbsent) {
  for (const Options& o : kOptions) {
    const Feeds feeds = feeds_for<float>({5, 23}, o);
    const std::vector<Tensor> both = run_op_on(unit(o), feeds);
    for (const int absent : {0, 1}) {
      OperatorDef op = unit(o);
      op.mutable_output(absent)->clear();
      const std::vector<Tensor> one = run_op_on(op, feeds);
      EXPECT_FALSE(one[absent].defined());
      EXPECT_EQ(compare(one[1 - absent], both[1 - absent], 0), "");
    }
  }
}

// What calls it as a function is given both.
TEST(LstmUnit, HasTwoOutputsUnlessToldOtherwise) {
  std::vector<autograd::Variable> inputs;
  for (const auto& feed : feeds_for<float>({5, 3}, {})) inputs.emplace_back(feed.second);
  EXPECT_EQ(autograd::run("LSTMUnit", inputs).size(), 2);
}

TEST(LstmUnit, EachGradientReadsWhatItNeeds) {
  const Options with, without = {0, false, false};
  EXPECT_EQ(gradient_reads(unit(with), "H_prev"), "lengths t");
  EXPECT_EQ(gradient_reads(unit(without), "H_prev"), "");
  EXPECT_EQ(gradient_reads(unit(with), "C_prev"), "gates lengths t C");
  EXPECT_EQ(gradient_reads(unit(without), "C_prev"), "gates C");
  EXPECT_EQ(gradient_reads(unit(with), "gates"), "C_prev gates lengths t C");
  EXPECT_EQ(gradient_reads(unit(without), "gates"), "C_prev gates C");
}

TEST(LstmUnit, FloatIsCloseToDouble) {
  const Shape states = {70, 130};
  const Feeds feeds = feeds_for<float>(states, {});
  const auto [h, c] = naive(feeds, {}, 130);
  const auto y = run_op_on(unit({}), feeds);
  EXPECT_EQ(y[0].dtype(), DType::float32);
  EXPECT_EQ(compare(y[0], h, 1e-6), "");
  EXPECT_EQ(compare(y[1], c, 1e-6), "");
}

TEST(LstmUnit, Gradients) {
  for (const Options& o : kOptions)
    for (const Shape& states : {Shape{1, 4, 3}, Shape{2, 1}, Shape{0, 4}, Shape{3, 0}}) {
      const Feeds feeds = feeds_for<double>(states, o);
      const std::vector<std::string> wrt = {"H_prev", "C_prev", "gates"};
      EXPECT_EQ(check_gradient(unit(o), feeds, wrt), "") << states.str();
      for (const char* only : {"H", "C"})
        EXPECT_EQ(check_gradient(unit(o), feeds, wrt, 1e-7, 1e-5, {only}), "") << states.str() << only;
    }
}

TEST(LstmUnit, GradientsOfTheGatesMayOverwriteThem) {
  Feeds feeds = feeds_for<double>({4, 5}, {});
  for (const char* name : {"H", "C", "dH", "dC"}) feeds.emplace_back(name, normal<double>({4, 5}, 10 + feeds.size()));
  std::vector<std::string> inputs;
  for (const auto& feed : feeds) inputs.push_back(feed.first);
  const auto apart = run_op_on(make_op("LSTMUnitGradient", inputs, {"a", "b", "c"}), feeds);
  const auto over = run_op_on(make_op("LSTMUnitGradient", inputs, {"a", "b", "gates"}), feeds);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(compare(over[i], apart[i], 0), "");
}

TEST(LstmUnit, BothRanksGoTogether) {
  Feeds feeds = feeds_for<double>({4, 3}, {});
  const auto [h, c] = naive(feeds, {}, 3);
  feeds[2].second = feeds[2].second.reshaped({1, 4, 12});
  EXPECT_EQ(compare(run_op_on(unit({}), feeds)[0], h, 1e-14), "");
}

TEST(LstmUnit, BadInputIsNamed) {
  auto error = [](int input, const Tensor& value) {
    Feeds feeds = feeds_for<float>({4, 3}, {});
    feeds[input].second = value;
    return error_of([&] { run_op_on(unit({}), feeds); });
  };
  auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(error(0, normal<float>({4, 2})), "H_prev must be [4, 3] as C_prev is, but is [4, 2]"));
  EXPECT_TRUE(has(error(2, normal<float>({4, 9})),
                  "gates must be [4, 12], four times the 3 states of C_prev [4, 3], but is [4, 9]"));
  EXPECT_TRUE(has(error(3, integers<int32_t>({5}, 0, 1)),
                  "seq_lengths must be [4], one for each row of C_prev [4, 3], but is [5]"));
  EXPECT_TRUE(has(error(4, integers<int32_t>({2}, 0, 1)), "timestep must be one int32, but is int32[2]"));
  const Options without{0, false, false};
  OperatorDef def = unit(without);
  def.add_input("t");
  EXPECT_TRUE(has(error_of([&] {
                    run_op_on(def, feeds_for<float>({4, 3}, without));
                  }),
                  "with sequence_lengths: 0 it takes 4 inputs, but has 5"));
}

}  // namespace
}  // namespace stepnet::testing::lstm_unit_test
