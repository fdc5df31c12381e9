// The arithmetic of LearningRate; see learning_rate.cc. Threads: pure functions.
#pragma once

#include <cmath>
#include <optional>
#include <string>

#include "stepnet/operator.h"

namespace stepnet {

struct RateArgs {
  float base_lr = 0;
  std::string policy;
  std::optional<float> gamma, power, start_multiplier;
  std::optional<int64_t> stepsize, max_iter, num_iter, active_period, inactive_period;
  float multiplier = 0, end_multiplier = 0;
  bool active_first = true;
};

enum class RatePolicy { fixed, step, exp, inv, poly, linear_warmup, constant_warmup, alter, hill };

// A policy with the arguments that it needs.
struct RatePlan {
  RatePolicy policy = RatePolicy::fixed;
  double base = 0;                                  // the rate at multiplier 1
  double gamma = 0, power = 0, start = 0, end = 0;  // multipliers: the first, and the least at the end
  int64_t length = 1, period = 1;                   // iterations of a stage, and of all stages
  bool active_first = true;
};

// Throws Error on a policy that is none, or that lacks an argument.
RatePlan plan_rate(const RateArgs& args);

constexpr double inverse_decay(const RatePlan& plan, int64_t iter) {
  return std::pow(1 + plan.gamma * static_cast<double>(iter), -plan.power);
}

constexpr double linear_warmup(const RatePlan& plan, int64_t iter) {
  const auto length = static_cast<double>(plan.length);
  return iter >= plan.length ? 1 : plan.start + (1 - plan.start) * static_cast<double>(iter) / length;
}

constexpr double rate_multiplier(const RatePlan& plan, int64_t iter) {
  const auto at = static_cast<double>(iter), length = static_cast<double>(plan.length);
  switch (plan.policy) {
    case RatePolicy::step:
      return std::pow(plan.gamma, static_cast<double>(iter / plan.length));
    case RatePolicy::exp:
      return std::pow(plan.gamma, at);
    case RatePolicy::inv:
      return inverse_decay(plan, iter);
    case RatePolicy::poly:
      return std::pow(iter < plan.length ? 1 - at / length : 0.0, plan.power);
    case RatePolicy::linear_warmup:
      return linear_warmup(plan, iter);
    case RatePolicy::constant_warmup:
      return iter >= plan.length ? 1 : plan.start;
    case RatePolicy::alter:
      return (iter % plan.period < plan.length) == plan.active_first ? 1 : 0;
    case RatePolicy::hill: {
      const double decayed = iter < plan.length ? 0 : inverse_decay(plan, iter - plan.length);
      return iter < plan.length ? linear_warmup(plan, iter) : decayed > plan.end ? decayed : plan.end;
    }
    default:
      return 1;
  }
}

// Of an iteration, from 0 on.
constexpr double rate_at(const RatePlan& plan, int64_t iter) { return plan.base * rate_multiplier(plan, iter); }

}  // namespace stepnet
