// Private training: clipped by stream, with noise, resumed to the bit; and what its epsilon is.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/compute/threads.h"
#include "recurrent/train/privacy.h"
#include "stepnet/trainer.h"
#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"

namespace stepnet::private_training_test {
namespace {

using testing::error_text;
using testing::expect_contains;
using testing::saved_bytes;
using testing::TempFolder;
using testing::tiny_net;

class PrivateTraining : public ::testing::Test {
 protected:
  PrivateTraining() {
    set_threads(1);
    testing::write_all(text_, testing::tiny_text());
  }
  ~PrivateTraining() override { set_threads(0); }

  TrainOptions options(int64_t iterations, const std::string& folder = "") {
    TrainOptions o = testing::tiny_options(text_, iterations);
    o.optimizer.clip = 0;
    if (!folder.empty()) o.out = folder_.file(folder);
    return o;
  }
  static std::vector<double> losses(const TrainOptions& o) {
    std::vector<double> all;
    TrainEvents events;
    events.iteration = [&](const TrainProgress& p) { all.push_back(p.loss); };
    Trainer(tiny_net(), o, events).run();
    return all;
  }
  // Elements of all parameters after the run.
  std::vector<double> parameters(TrainOptions o, const std::string& folder) {
    o.out = folder_.file(folder);
    Trainer(tiny_net(), o).run();
    std::vector<double> all;
    const auto loaded = load_latest(o.out);
    for (const auto& [name, value] : loaded->contents.tensors)
      if (name.rfind("parameter/", 0) == 0)
        all.insert(all.end(), value.data<float>(), value.data<float>() + value.size());
    return all;
  }
  // What one step of plain descent at rate 1 adds to the parameters.
  std::vector<double> step(double clip, double noise, uint64_t seed = 1) {
    TrainOptions o = options(1);
    o.seed = seed;
    o.optimizer.optimizer = "sgd";
    o.optimizer.dp_clip = clip;
    o.optimizer.dp_noise = noise;
    o.optimizer.lr = 1;
    const std::string name = fmt::format("{}_{}_{}", clip, noise, seed);
    std::vector<double> after = parameters(o, name);
    o.optimizer.lr = 1e-30;
    const std::vector<double> before = parameters(o, name + "_before");
    for (size_t i = 0; i < after.size(); ++i) after[i] -= before[i];
    return after;
  }

  TempFolder folder_;
  std::string text_ = folder_.file("text");
};

double norm(const std::vector<double>& v) {
  double square = 0;
  for (const double x : v) square += x * x;
  return std::sqrt(square);
}

TEST_F(PrivateTraining, WithoutClippingIsOrdinaryTraining) {
  TrainOptions o = options(20);
  const std::vector<double> ordinary = losses(o);
  o.optimizer.dp_clip = 1e6;
  const std::vector<double> by_stream = losses(o);
  ASSERT_EQ(ordinary.size(), by_stream.size());
  for (size_t i = 0; i < ordinary.size(); ++i) EXPECT_NEAR(ordinary[i], by_stream[i], 1e-4) << i;
}

TEST_F(PrivateTraining, StreamsAreClipped) {
  const double whole = norm(step(1e6, 0));
  const std::vector<double> clipped = step(0.01, 0);
  EXPECT_LE(norm(clipped), 0.01 * (1 + 1e-4));  // a mean of four vectors of that norm
  EXPECT_GT(norm(clipped), 0.0025);
  EXPECT_GT(whole, 0.02);
}

TEST_F(PrivateTraining, NoiseHasItsDeviation) {
  const std::vector<double> moved = step(1e-3, 2000);
  EXPECT_NEAR(norm(moved) / std::sqrt(static_cast<double>(moved.size())), 1e-3 * 2000 / 4, 0.02);
  const std::vector<double> other = step(1e-3, 2000, 2);
  EXPECT_NE(moved, other);
}

TEST_F(PrivateTraining, ResumesToTheBit) {
  TrainOptions o = options(12, "whole");
  o.optimizer.dp_clip = 0.5;
  o.optimizer.dp_noise = 0.7;
  o.checkpoint_every = 5;
  Trainer(tiny_net(), o).run();
  TrainOptions first = o;
  first.out = folder_.file("parts");
  std::atomic<bool> stop{false};
  first.stop = &stop;
  TrainEvents events;
  events.iteration = [&](const TrainProgress& p) { stop = p.iteration >= 7; };
  Trainer(tiny_net(), first, events).run();
  TrainOptions rest = options(0, "parts");
  rest.resume = true;
  rest.optimizer = {};
  Trainer resumed(tiny_net(), rest);
  EXPECT_EQ(resumed.options().optimizer.dp_noise, 0.7);
  resumed.run();
  EXPECT_EQ(saved_bytes(folder_.file("whole")), saved_bytes(folder_.file("parts")));
}

TEST_F(PrivateTraining, Learns) {
  TrainOptions o = options(150);
  o.optimizer.dp_clip = 1;
  o.optimizer.dp_noise = 0.05;
  const std::vector<double> all = losses(o);
  EXPECT_LT(all.back(), 0.6 * all.front());
}

TEST_F(PrivateTraining, RefusesWhatItCannotKeep) {
  TrainOptions o = options(1);
  o.optimizer.dp_noise = 1;
  const auto error = [&](const NetDef& net = tiny_net()) { return error_text([&] { Trainer(net, o); }); };
  expect_contains(error(), "which is not given");
  o.optimizer.dp_clip = -1;
  expect_contains(error(), "must be above 0");
  o.optimizer.dp_clip = 1;
  o.dp_delta = 0;
  expect_contains(error(), "delta must be between 0 and 1");
  o.dp_delta = 1e-5;
  o.precision = "bfloat16";
  expect_contains(error(), "in float32");
  o.precision = "float32";
  o.loss_scale = "8";
  expect_contains(error(), "without a scale of the loss");
  o.loss_scale = "";
  NetDef net = tiny_net();
  OperatorDef op = parse_net_text("op { type: 'Tanh' input: 'W_out' output: 'other' }").op(0);
  *net.add_op() = op;
  expect_contains(error(net), "it reads the parameter \"W_out\" in a way");
}

// --- The accountant ------------------------------------------------------------------------------------------------

// By its definition: how much more likely the one mechanism's results are than exp(epsilon) times the other's.
double delta_by_integration(double noise, double epsilon) {
  const double step = noise * 1e-4;
  double sum = 0;
  const auto density = [&](double x) { return std::exp(-x * x / (2 * noise * noise)); };
  for (double x = -12 * noise; x < 12 * noise + 1; x += step)
    sum += std::max(0.0, density(x - 1) - std::exp(epsilon) * density(x));
  return sum * step / (noise * std::sqrt(2 * M_PI));
}

TEST(Privacy, EqualsItsDefinition) {
  for (const double noise : {0.5, 1.0, 3.0})
    for (const double epsilon : {0.1, 1.0, 4.0})
      EXPECT_NEAR(gaussian_delta(noise, epsilon), delta_by_integration(noise, epsilon), 1e-6)
          << noise << " " << epsilon;
}

TEST(Privacy, EpsilonIsTheLeast) {
  for (const double noise : {0.3, 1.0, 5.0, 100.0})
    for (const int64_t steps : {1, 10, 10000}) {
      const double epsilon = gaussian_epsilon(noise, steps, 1e-5), all = noise / std::sqrt(static_cast<double>(steps));
      EXPECT_LE(gaussian_delta(all, epsilon), 1e-5);
      EXPECT_GT(gaussian_delta(all, epsilon * 0.999), 1e-5);
    }
  EXPECT_EQ(gaussian_epsilon(0, 3, 1e-5), std::numeric_limits<double>::infinity());
  EXPECT_EQ(gaussian_epsilon(0, 0, 1e-5), 0);
}

}  // namespace
}  // namespace stepnet::private_training_test
