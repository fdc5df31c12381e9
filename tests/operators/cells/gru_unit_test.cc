// GRUUnit against a plain loop and central differences, in both of its forms.
#include <cmath>

#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::gru_unit_test {
namespace {

struct Options {
  bool drop = false;
  bool lengths = true;
};

double s(double v) { return 1 / (1 + std::exp(-v)); }

Tensor naive(const Feeds& feeds, const Options& o) {
  Tensor h = to_double(feeds[0].second);
  const Tensor gates = to_double(feeds[1].second);
  const int64_t d = std::max<int64_t>(h.shape().at(-1), 1);
  for (int64_t n = 0; n < h.size() / d; ++n) {
    const bool valid = !o.lengths || feeds[3].second.data<int32_t>()[0] < feeds[2].second.data<int32_t>()[n];
    const double* x = gates.data<double>() + n * 3 * d;
    for (int64_t j = 0; j < d; ++j) {
      double& value = h.data<double>()[n * d + j];
      const double update = s(x[d + j]);
      if (valid) {
        value = update * value + (1 - update) * std::tanh(x[2 * d + j]);
      } else if (o.drop) {
        value = 0;
      }
    }
  }
  return h;
}

OperatorDef unit(const Options& o) {
  std::vector<std::string> inputs = {"H_prev", "gates"};
  if (o.lengths) inputs.emplace_back("lengths");
  inputs.emplace_back("t");
  return make_op("GRUUnit", inputs, {"H"}, {make_arg("drop_states", o.drop), make_arg("sequence_lengths", o.lengths)});
}

template <class T>
Feeds feeds_for(const Shape& states, const Options& o) {
  const int64_t d = states.at(-1), rows = states.size_between(0, states.rank() - 1);
  Feeds feeds = {{"H_prev", normal<T>(states, 1)},
                 {"gates", normal<T>(states.with(states.rank() - 1, 3 * d), 3, 0, 2)}};
  if (o.lengths) feeds.emplace_back("lengths", integers<int32_t>({rows}, 1, 3, 4));
  feeds.emplace_back("t", Tensor::of<int32_t>({1}, {1}));
  return feeds;
}

const Options kOptions[] = {{false, true}, {true, true}, {false, false}, {true, false}};

TEST(GruUnit, ForwardIsTheFormula) {
  for (const Options& o : kOptions)
    for (const Shape& states : {Shape{1, 5, 3}, Shape{5, 17}, Shape{1, 1}, Shape{0, 4}, Shape{3, 0}, Shape{2, 600}}) {
      const Feeds feeds = feeds_for<double>(states, o), single = feeds_for<float>(states, o);
      EXPECT_EQ(compare(run_op_on(unit(o), feeds)[0], naive(feeds, o), 1e-14), "") << states.str();
      EXPECT_EQ(compare(run_op_on(unit(o), single)[0], naive(single, o), 1e-6), "") << states.str();
    }
}

TEST(GruUnit, Gradients) {
  for (const Options& o : kOptions)
    for (const Shape& states : {Shape{1, 4, 3}, Shape{2, 1}, Shape{0, 4}, Shape{3, 0}, Shape{1, 300}})
      EXPECT_EQ(check_gradient(unit(o), feeds_for<double>(states, o), {"H_prev", "gates"}), "") << states.str();
}

// With the gates' values as outputs the gradients read these, and have the same bits.
TEST(GruUnit, GradientsReadTheActivationsIfTheyAreThere) {
  for (const Options& o : kOptions)
    for (const Shape& states : {Shape{1, 4, 3}, Shape{2, 1}, Shape{0, 4}, Shape{3, 0}, Shape{2, 300}}) {
      OperatorDef def = unit(o);
      def.add_output("u");
      def.add_output("c");
      const Feeds feeds = feeds_for<double>(states, o);
      EXPECT_EQ(check_gradient(def, feeds, {"H_prev", "gates"}), "") << states.str();
      EXPECT_EQ(check_gradient(def, feeds, {"H_prev", "gates"}, 1e-7, 1e-5, {"H"}), "") << states.str();
      EXPECT_EQ(check_gradient(def, feeds, {"gates"}, 1e-7, 1e-5, {"u"}), "") << states.str();
      const auto made = run_op_on(def, feeds);
      Feeds more = feeds;
      more.insert(more.end(), {{"H", made[0]}, {"u", made[1]}, {"c", made[2]}, {"d", normal<double>(states, 9)}});
      std::vector<std::string> by_sums = {"H_prev", "gates"}, by_values = {"H_prev", "gates", "u", "c", "d"};
      if (o.lengths) by_sums.emplace_back("lengths"), by_values.insert(by_values.end(), {"lengths", "t"});
      by_sums.insert(by_sums.end(), {"t", "H", "d"});
      const std::vector<Argument> args(def.arg().begin(), def.arg().end());
      const auto expected = run_op_on(make_op("GRUUnitGradient", by_sums, {"a", "b"}, args), more);
      const OperatorDef of_values = make_op("GRUUnitActivatedGradient", by_values, {"a", "b"}, args);
      const auto found = run_op_on(of_values, more);
      for (size_t i = 0; i < 2; ++i) EXPECT_EQ(compare(found[i], expected[i], 0), "") << states.str();
      EXPECT_EQ(check_gradient(of_values, more, {"H_prev", "u", "c", "d"}), "") << states.str();
    }
  OperatorDef def = unit({});
  def.add_output("u");
  def.add_output("c");
  EXPECT_EQ(gradient_reads(def, "H_prev"), "lengths t u");
  EXPECT_EQ(gradient_reads(def, "gates"), "H_prev lengths t u c");
}

TEST(GruUnit, GradientsOfTheGatesMayOverwriteThem) {
  Feeds feeds = feeds_for<double>({4, 5}, {});
  for (const char* name : {"H", "dH"}) feeds.emplace_back(name, normal<double>({4, 5}, 10 + feeds.size()));
  std::vector<std::string> inputs;
  for (const auto& feed : feeds) inputs.push_back(feed.first);
  const auto apart = run_op_on(make_op("GRUUnitGradient", inputs, {"a", "b"}), feeds);
  const auto over = run_op_on(make_op("GRUUnitGradient", inputs, {"a", "gates"}), feeds);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(compare(over[i], apart[i], 0), "");
}

TEST(GruUnit, BadInputIsNamed) {
  auto error = [](int input, const Tensor& value) {
    Feeds feeds = feeds_for<float>({4, 3}, {});
    feeds[input].second = value;
    return error_of([&] { run_op_on(unit({}), feeds); });
  };
  auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(error(1, normal<float>({4, 12})),
                  "gates must be [4, 9], three times the 3 states of H_prev [4, 3], but is [4, 12]"));
  EXPECT_TRUE(has(error(2, integers<int32_t>({5}, 0, 1)),
                  "seq_lengths must be [4], one for each row of H_prev [4, 3], but is [5]"));
  EXPECT_TRUE(has(error(3, integers<int32_t>({2}, 0, 1)), "timestep must be one int32, but is int32[2]"));
  const Options without{false, false};
  OperatorDef def = unit(without);
  def.add_input("t");
  EXPECT_TRUE(has(error_of([&] {
                    run_op_on(def, feeds_for<float>({4, 3}, without));
                  }),
                  "with sequence_lengths: 0 it takes 3 inputs, but has 4"));
}

}  // namespace
}  // namespace stepnet::testing::gru_unit_test
