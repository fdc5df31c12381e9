// The gradient pass on random nets, against central differences in float64.
//
// The nets have fan-out, steps in place, operators whose gradient is passed through, several targets and given
// gradients, which together make the pass reuse gradient names. Every gradient is compared with numeric ones, so a
// name that is overwritten while its value is still needed shows.
#include <gtest/gtest.h>

#include <algorithm>

#include "stepnet/net.h"
#include "stepnet/random.h"
#include "tests/core/gradient_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::gradients_random_test {
namespace {

constexpr int kInputs = 3;
const Shape kShape = {2};

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t n) { return random_int(seed_, next_++, 0, n - 1); }
  bool chance(double p) { return random_uniform(seed_, next_++) < p; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[below(static_cast<int64_t>(from.size()))];
  }

 private:
  uint64_t seed_;
  uint64_t next_ = 0;
};

struct RandomNet {
  NetDef net;
  std::vector<std::string> inputs;
  Targets targets;
  std::vector<std::string> given;  // names of given gradients
};

// A blob that some operator reads back in its gradient must not be overwritten; the pass says so, and then the net is
// thrown again without that step.
RandomNet random_net(uint64_t seed) {
  Dice dice(seed);
  RandomNet r;
  r.net.set_name("random");
  std::vector<std::string> blobs;
  for (int i = 0; i < kInputs; ++i) blobs.push_back(r.inputs.emplace_back("x" + std::to_string(i)));
  const std::vector<std::string> types = {"Add", "Add", "Mul", "Sum", "Sub", "Sub", "Tanh", "Sigmoid", "Negative"};
  const int64_t count = 3 + dice.below(12);
  for (int64_t i = 0; i < count; ++i) {
    const std::string& type = dice.pick(types);
    const bool unary = type == "Tanh" || type == "Sigmoid" || type == "Negative";
    const int64_t arity = unary ? 1 : type == "Sum" ? 1 + dice.below(4) : 2;
    std::vector<std::string> in;
    for (int64_t k = 0; k < arity; ++k) in.push_back(dice.pick(blobs));
    // Some blobs are written again, by an operator that reads them or by one that does not.
    std::string out = "h" + std::to_string(i);
    if (dice.chance(0.3))
      out = dice.pick(in);
    else if (dice.chance(0.15))
      out = dice.pick(blobs);
    const OperatorDef op = make_op(type, in, {out});
    try {
      bind_op(op, "random", 0);
    } catch (const Error&) {
      continue;  // not allowed in place
    }
    *r.net.add_op() = op;
    if (std::find(blobs.begin(), blobs.end(), out) == blobs.end()) blobs.push_back(out);
  }
  std::set<std::string> seen, chosen;
  for (const OperatorDef& op : r.net.op()) {
    seen.insert(op.input().begin(), op.input().end());
    seen.insert(op.output(0));
  }
  blobs.assign(seen.begin(), seen.end());
  for (int64_t i = 0, n = blobs.empty() ? 0 : 1 + dice.below(3); i < n; ++i) chosen.insert(dice.pick(blobs));
  for (const std::string& target : chosen) {
    const bool is_given = dice.chance(0.5);
    // Sometimes the name that the pass itself would take.
    const std::string name = !is_given ? "" : dice.chance(0.5) ? target + "_grad" : "given_" + target;
    if (is_given) r.given.push_back(name);
    r.targets.emplace_back(target, name);
  }
  for (const std::string& name : r.inputs) r.net.add_external_input(name);
  for (const std::string& name : r.given) r.net.add_external_input(name);
  return r;
}

class Runner {
 public:
  Runner(const RandomNet& r, const NetDef& net) : r_(r) {
    feed("", 0, 0);
    net_ = std::make_unique<Net>(net, workspace_);
  }

  // Runs with element i of one input changed by `delta`.
  void run(const std::string& input = "", int64_t i = 0, double delta = 0) {
    feed(input, i, delta);
    RunContext context;
    net_->run(context);
  }
  const Tensor& fetch(const std::string& name) const { return workspace_.fetch(name); }

  // What the targets' gradients are the gradients of: the sum of the targets, weighted by those that are given.
  double objective() const {
    double sum = 0;
    for (const auto& [blob, given] : r_.targets) {
      const Tensor weight = given.empty() ? Tensor() : weight_of(given);
      for (int64_t i = 0; i < kShape.size(); ++i)
        sum += (given.empty() ? 1.0 : weight.data<double>()[i]) * fetch(blob).data<double>()[i];
    }
    return sum;
  }

 private:
  static Tensor weight_of(const std::string& given) { return normal<double>(kShape, 77 + given.size() * 7 + given[1]); }

  void feed(const std::string& input, int64_t i, double delta) {
    for (size_t k = 0; k < r_.inputs.size(); ++k) {
      Tensor& x = workspace_.tensor(r_.inputs[k]) = normal<double>(kShape, 10 + k, 0, 0.7);
      if (r_.inputs[k] == input) x.data<double>()[i] += delta;
    }
    for (const std::string& name : r_.given) workspace_.tensor(name) = weight_of(name);
  }

  const RandomNet& r_;
  Workspace workspace_;
  std::unique_ptr<Net> net_;
};

Tensor numeric_gradient(const RandomNet& r, const std::string& input) {
  constexpr double kStep = 1e-5;
  Runner runner(r, r.net);
  Tensor gradient = Tensor::zeros(DType::float64, kShape);
  for (int64_t i = 0; i < kShape.size(); ++i) {
    runner.run(input, i, kStep);
    const double above = runner.objective();
    runner.run(input, i, -kStep);
    gradient.data<double>()[i] = (above - runner.objective()) / (2 * kStep);
  }
  return gradient;
}

// Differentiates; false if a step in place overwrites what a gradient needs.
bool try_differentiate(const RandomNet& r, const std::set<std::string>& wanted, Backward& b) {
  try {
    b = differentiate(r.net, r.targets, wanted);
    return true;
  } catch (const Error& e) {
    const std::string text = e.what();
    const bool expected = text.find("version") != std::string::npos || text.find("in place") != std::string::npos ||
                          text.find("depends on none") != std::string::npos;
    EXPECT_TRUE(expected) << text;
    return false;
  }
}

std::string dump(const RandomNet& r, const Backward& b, uint64_t seed) {
  std::string text = fmt::format("seed {}\n", seed);
  for (const std::string& line : lines_of(b.net)) text += "  " + line + "\n";
  for (const auto& [blob, given] : r.targets) text += fmt::format("  target {} given \"{}\"\n", blob, given);
  return text;
}

// False for an input that the net overwrites before it reads it: the name then means what the net computes.
bool is_read_first(const NetDef& net, const std::string& name) {
  for (const OperatorDef& op : net.op()) {
    if (std::find(op.input().begin(), op.input().end(), name) != op.input().end()) return true;
    if (op.output(0) == name) return false;
  }
  return false;
}

// Compares every gradient of an input, and returns how many there were.
int compare_with_differences(const RandomNet& r, const Backward& b, uint64_t seed) {
  Runner runner(r, b.net);
  runner.run();
  runner.run();  // a second run starts from the first one's leftovers
  int compared = 0;
  for (const std::string& input : r.inputs) {
    const auto found = b.map.find(input);
    if (found == b.map.end() || !is_read_first(r.net, input)) continue;
    EXPECT_EQ(compare(runner.fetch(found->second), numeric_gradient(r, input), 1e-8), "") << input << "\n"
                                                                                          << dump(r, b, seed);
    ++compared;
  }
  return compared;
}

TEST(GradientsRandom, EqualCentralDifferences) {
  int nets = 0, compared = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    const RandomNet r = random_net(seed);
    Backward b;
    if (!try_differentiate(r, {}, b)) continue;
    ++nets;
    compared += compare_with_differences(r, b, seed);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(nets, 1000);
  EXPECT_GT(compared, 1500);
}

// The operators of the backward pass, but for those that are none where shapes are equal, and the copies of what these
// show: with several gradients of an operator, it may be told that they are.
int64_t steps_of(const Backward& b) {
  return std::ranges::count_if(b.lines, [](const std::string& line) {
    return line.find("MatchShape") == line.npos && line.find("Copy(") == line.npos;
  });
}

// Wanted blobs may also be ones that the net computes.
TEST(GradientsRandom, SubsetsEqualTheWhole) {
  int compared = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    const RandomNet r = random_net(seed);
    std::set<std::string> all(r.inputs.begin(), r.inputs.end());
    for (const OperatorDef& op : r.net.op()) all.insert(op.output(0));
    Backward whole;
    if (!try_differentiate(r, all, whole)) continue;
    Runner whole_run(r, whole.net);
    whole_run.run();
    for (const std::string& name : all) {
      Backward part;
      if (!try_differentiate(r, {name}, part)) continue;
      ASSERT_EQ(part.map.count(name), whole.map.count(name)) << name << "\n" << dump(r, part, seed);
      if (part.map.count(name) == 0) continue;
      EXPECT_LE(steps_of(part), steps_of(whole));
      Runner part_run(r, part.net);
      part_run.run();
      ASSERT_EQ(compare(part_run.fetch(part.map.at(name)), whole_run.fetch(whole.map.at(name)), 1e-12), "")
          << name << "\n"
          << dump(r, part, seed) << dump(r, whole, seed);
      ++compared;
    }
    compared += compare_with_differences(r, whole, seed);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(compared, 3000);
}

}  // namespace
}  // namespace stepnet::testing::gradients_random_test
