// Optimizers of `stepnet train` beside those of the same names in PyTorch, with a learning rate that changes.
#include <gtest/gtest.h>

#include <cmath>

#include "recurrent/train/memory_budget.h"
#include "recurrent/train/training_net.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"

namespace stepnet::optimizers_test {
namespace {

// Twelve steps on the sum of c cos(w), at a rate of 0.1 that shrinks by a tenth in each.
std::vector<double> steps_of(OptimizerOptions options, int steps = 12) {
  const NetDef net = parse_net_text(R"(
    op { type: 'Cos' input: 'w' output: 'cosines' }
    op { type: 'Mul' input: 'cosines' input: 'c' output: 'terms' }
    op { type: 'SumElements' input: 'terms' output: 'loss' })");
  options.lr = 0.1;
  options.lr_policy = "exp";
  options.lr_gamma = 0.9;
  options.clip = 0;
  Workspace workspace;
  workspace.tensor("w") = Tensor::of<double>({3}, {0.5, -1.2, 2});
  workspace.tensor("c") = Tensor::of<double>({3}, {1, 0.5, -2});
  const TrainingNet training = build_training_net(model_of(net, {}, "loss"), {"w"}, workspace, options, steps);
  for (const auto& [name, value] : training.first_values) workspace.tensor(name) = value.clone();
  Net bound(training.net, workspace);
  for (int i = 0; i < steps; ++i) {
    RunContext run;
    bound.run(run);
  }
  const Tensor& w = workspace.fetch("w");
  return {w.data<double>(), w.data<double>() + 3};
}

void expect_close(const std::string& name, const std::vector<double>& is, const std::vector<double>& should) {
  for (size_t i = 0; i < should.size(); ++i) EXPECT_NEAR(is[i], should[i], 2e-6) << name << " " << i;
}

// Recorded from PyTorch 2.15, float64, torch.optim with ExponentialLR.
TEST(Optimizers, EqualThoseOfPyTorch) {
  const std::map<std::string, std::vector<double>> recorded = {
      {"adam", {1.227370161572, -1.918863244080, 1.280249843599}},
      {"adamw", {1.221444561581, -1.907996832860, 1.268323396882}},
      {"adagrad", {0.917010793802, -1.588890089159, 1.609511261903}},
      {"rmsprop", {3.135695511836, -3.140365404084, 0.001514903352}},
      {"sgd", {0.949274543707, -1.548581757133, 0.703772637270}},
      {"momentum", {2.479341361210, -2.532051907344, -0.717123115151}},
      {"nesterov", {2.866154933106, -2.693468913978, -0.348888926255}},
      {"nadam", {1.145490427763, -1.795379776701, 1.401539123299}},
  };
  for (const auto& [name, should] : recorded) expect_close(name, steps_of({.optimizer = name}), should);
  OptimizerOptions options{.optimizer = "adam"};
  options.beta1 = 0.8;
  options.beta2 = 0.95;
  options.epsilon = 0.1;
  expect_close("adam with numbers of its own", steps_of(options), {1.130296468906, -1.796528641933, 1.314962711986});
}

// In the public format the rate is in the momentum and the epsilon elsewhere.
TEST(Optimizers, OfThePublicFormatDiffer) {
  for (const std::string name : {"adam", "rmsprop", "momentum", "nesterov"}) {
    OptimizerOptions options{.optimizer = name}, other{.optimizer = "caffe2-" + name};
    options.epsilon = other.epsilon = 0.1;
    EXPECT_GT(std::abs(steps_of(options)[0] - steps_of(other)[0]), 1e-4) << name;
  }
}

// By its formula.
TEST(Optimizers, Lion) {
  std::vector<double> w = {0.5, -1.2, 2}, m(3, 0.0);
  const double c[] = {1, 0.5, -2};
  double rate = 0.1;
  for (int step = 0; step < 12; ++step, rate *= 0.9)
    for (int i = 0; i < 3; ++i) {
      const double g = -c[i] * std::sin(w[i]), mean = 0.9 * m[i] + 0.1 * g;
      w[i] -= rate * ((mean > 0 ? 1 : mean < 0 ? -1 : 0) + 0.01 * w[i]);
      m[i] = 0.99 * m[i] + 0.01 * g;
    }
  expect_close("lion", steps_of({.optimizer = "lion"}), w);
}

// By the algorithm of its paper, with a parameter as a whole.
TEST(Optimizers, Lamb) {
  std::vector<double> w = {0.5, -1.2, 2}, m(3, 0.0), v(3, 0.0);
  const double c[] = {1, 0.5, -2};
  double rate = 0.1;
  for (int step = 1; step <= 12; ++step, rate *= 0.9) {
    double u[3], of_w = 0, of_u = 0;
    for (int i = 0; i < 3; ++i) {
      const double g = -c[i] * std::sin(w[i]);
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      u[i] = m[i] / (1 - std::pow(0.9, step)) / (std::sqrt(v[i] / (1 - std::pow(0.999, step))) + 1e-6) + 0.01 * w[i];
      of_w += w[i] * w[i];
      of_u += u[i] * u[i];
    }
    for (int i = 0; i < 3; ++i) w[i] -= rate * std::sqrt(of_w / of_u) * u[i];
  }
  expect_close("lamb", steps_of({.optimizer = "lamb"}), w);
}

TEST(Optimizers, RefuseNumbersOutOfRange) {
  using testing::error_text;
  using testing::expect_contains;
  OptimizerOptions options;
  options.beta1 = 1;
  expect_contains(error_text([&] { check_optimizer(options); }), "beta1 must be less than 1");
  options = {.optimizer = "caffe2-adagrad"};
  expect_contains(error_text([&] { check_optimizer(options); }), "there is no optimizer \"caffe2-adagrad\"");
}

}  // namespace
}  // namespace stepnet::optimizers_test
