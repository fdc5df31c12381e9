// Ftrl, GFtrl and SparseFtrl against plain loops, and against what Caffe2 1.10 gives.
#include <cmath>

#include "tests/operators/optimizer_steps.h"

namespace stepnet::testing::ftrl_test {
namespace {

const std::vector<Argument> kArgs = {make_arg("beta", 0.5F), make_arg("lambda1", 0.25F), make_arg("lambda2", 0.125F)};
constexpr double kAlpha = 0.25;

// n and z of one element after the step.
void move(double param, double grad, double& n, double& z) {
  const double grown = n + grad * grad;
  z += grad - (std::sqrt(grown) - std::sqrt(n)) / kAlpha * param;
  n = grown;
}

double bottom(double n) { return (0.5 + std::sqrt(n)) / kAlpha + 0.125; }

void step(int, int64_t at, std::span<const double> grad, std::map<std::string, Values>& states) {
  for (size_t i = 0; i < grad.size(); ++i) {
    const size_t e = static_cast<size_t>(at) * grad.size() + i;
    double &p = states["p"][e], &n = states["nz"][2 * e], &z = states["nz"][2 * e + 1];
    move(p, grad[i], n, z);
    p = std::abs(z) <= 0.25 ? 0 : -(z - std::copysign(0.25, z)) / bottom(n);
  }
}

// Columns of a matrix of three rows.
void group_step(int, int64_t, std::span<const double> grad, std::map<std::string, Values>& states) {
  const size_t columns = grad.size() / 3;
  for (size_t j = 0; j < columns; ++j) {
    double squares = 0;
    for (size_t e = j; e < grad.size(); e += columns) {
      move(states["p"][e], grad[e], states["nz"][2 * e], states["nz"][2 * e + 1]);
      squares += states["nz"][2 * e + 1] * states["nz"][2 * e + 1];
    }
    const double least = 0.25 * std::sqrt(3.0), norm = std::sqrt(squares);
    for (size_t e = j; e < grad.size(); e += columns)
      states["p"][e] = norm <= least ? 0 : -states["nz"][2 * e + 1] * (1 - least / norm) / bottom(states["nz"][2 * e]);
  }
}

OptimizerSteps steps_of(const std::string& type, const Shape& shape) {
  const bool sparse = type == "SparseFtrl";
  Shape both = shape;
  both.push_back(2);
  const OperatorDef def = sparse ? make_op(type, {"p", "nz", "i", "g", "alpha"}, {"p", "nz"}, kArgs)
                                 : make_op(type, {"p", "nz", "g", "alpha"}, {"p", "nz"}, kArgs);
  return {def,
          {{"p", normal<double>(shape, 1)},
           {"nz", uniform<double>(both, 0, 2, 2)},
           {"alpha", Tensor::scalar<float>(static_cast<float>(kAlpha))}},
          {"p", "nz"},
          sparse ? shape.size_between(1, shape.rank()) : shape.size(),
          type == "GFtrl" ? group_step : step};
}

TEST(Ftrl, FollowsItsFormula) {
  for (const Shape& shape : {Shape{3, 4}, Shape{0}, Shape{}, Shape{100000}})
    EXPECT_EQ(check_dense_steps(steps_of("Ftrl", shape), shape), "") << shape.str();
}

TEST(GFtrl, FollowsItsFormula) {
  for (const Shape& shape : {Shape{3, 4}, Shape{3}, Shape{3, 0, 2}, Shape{3, 5, 2000}})
    EXPECT_EQ(check_dense_steps(steps_of("GFtrl", shape), shape), "") << shape.str();
}

TEST(SparseFtrl, StepsRowAfterRow) {
  for (const Shape& table : {Shape{5, 3, 2}, Shape{5}, Shape{5, 0}})
    EXPECT_EQ(check_table_steps(steps_of("SparseFtrl", table)), "") << table.str();
  EXPECT_EQ(check_table_threads(steps_of("SparseFtrl", {70, 64}), {70, 64}), "");
}

const std::vector<Argument> kTheirs = {make_arg("alpha", 0.1F), make_arg("beta", 0.5F), make_arg("lambda1", 0.05F),
                                       make_arg("lambda2", 0.2F)};

Feeds dense_feeds() {
  return {{"p", Tensor::of<float>({3}, {1, 2, -0.5F})},
          {"nz", Tensor::of<float>({3, 2}, {0.3F, 0.5F, 0.4F, -2, 0.1F, 0.02F})},
          {"g", Tensor::of<float>({3}, {0.5F, -0.6F, 0.01F})}};
}

TEST(Ftrl, IsThatOfThePublicFormat) {
  auto y = run_op_on(make_op("Ftrl", {"p", "nz", "g"}, {"p", "nz"}, kTheirs), dense_feeds());
  EXPECT_EQ(compare(y[0], Tensor::of<float>({3}, {0.070462815F, 0.52712971F, 0}), 1e-5), "");
  EXPECT_EQ(
      compare(y[1], Tensor::of<float>({3, 2}, {0.55F, -0.93897289F, 0.76F, -7.38648462F, 0.1001F, 0.030790385F}), 1e-5),
      "");
  y = run_op_on(make_op("Ftrl", {"p", "nz", "g"}, {"p", "nz"}), dense_feeds());
  EXPECT_EQ(compare(y[0], Tensor::of<float>({3}, {0.10845751F, 0.26266026F, -0.0001701915F}), 1e-5), "");
  Feeds feeds = dense_feeds();
  feeds.emplace_back("a", Tensor::of<float>({1}, {0.2F}));
  y = run_op_on(make_op("Ftrl", {"p", "nz", "g", "a"}, {"p", "nz"}, {kTheirs.begin() + 1, kTheirs.end()}), feeds);
  EXPECT_EQ(compare(y[0], Tensor::of<float>({3}, {0, 0.70028514F, 0}), 1e-5), "");
}

// The i-th of `count` values that grow evenly to 1.2 from 0.1.
std::vector<float> even(int count, float factor) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(factor * (0.1F + 1.1F * static_cast<float>(i) / 11));
  return values;
}

TEST(SparseFtrl, IsThatOfThePublicFormat) {
  const Feeds feeds = {{"p", Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6})},
                       {"nz", Tensor::of<float>({3, 2, 2}, std::span<const float>(even(12, 1)))},
                       {"i", Tensor::of<int64_t>({2}, {2, 0})},
                       {"g", Tensor::of<float>({2, 2}, {0.1F, 0.2F, 0.3F, 0.4F})}};
  const auto y = run_op_on(make_op("SparseFtrl", {"p", "nz", "i", "g"}, {"p", "nz"}, kTheirs), feeds);
  EXPECT_EQ(
      compare(y[0], Tensor::of<float>({3, 2}, {0.067645997F, 0.1469004F, 3, 4, -0.05340825F, -0.013608458F}), 1e-5),
      "");
}

TEST(GFtrl, IsThatOfThePublicFormat) {
  const Feeds feeds = {{"p", Tensor::of<float>({3, 2}, {0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F})},
                       {"nz", Tensor::of<float>({3, 2, 2}, std::span<const float>(even(12, 0.2F)))},
                       {"g", Tensor::of<float>({3, 2}, {0.1F, -0.2F, 0.3F, 0.4F, -0.5F, 0.6F})}};
  std::vector<Argument> args = kTheirs;
  args[2] = make_arg("lambda1", 0.5F);
  const auto y = run_op_on(make_op("GFtrl", {"p", "nz", "g"}, {"p", "nz"}, args), feeds);
  EXPECT_EQ(compare(y[0],
                    Tensor::of<float>({3, 2}, {-0.006368048F, 0.0031190885F, -0.0026037213F, 0.0012488498F, 0.05056398F,
                                               0.0070942389F}),
                    1e-5),
            "");
}

TEST(Ftrl, RefusesWhatDoesNotFit) {
  EXPECT_EQ(step_error(steps_of("Ftrl", {6}), "g", normal<double>({3, 2})), "Ftrl: grad has shape [3, 2], but var [6]");
  EXPECT_EQ(step_error(steps_of("Ftrl", {6}), "nz", normal<double>({6})),
            "Ftrl: n_z must hold two values for each of var's, as [..., 2], but has shape [6], and var [6]");
  EXPECT_EQ(step_error(steps_of("Ftrl", {6}), "alpha", Tensor::scalar<float>(0)),
            "Ftrl: alpha must be greater than 0, but is 0");
  EXPECT_EQ(step_error(steps_of("SparseFtrl", {5, 2}), "i", Tensor::of<int32_t>({2}, {0, 5})),
            "SparseFtrl: index 1 is 5, which is outside of 0 to 4");
  OptimizerSteps both = steps_of("Ftrl", {6});
  *both.def.add_arg() = make_arg("alpha", 0.5F);
  EXPECT_EQ(step_error(both, "g", normal<double>({6})), "Ftrl: alpha is both an argument and an input; leave one out");
}

}  // namespace
}  // namespace stepnet::testing::ftrl_test
