// The arithmetic of LearningRate; see learning_rate.cc. Threads: pure functions.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "stepnet/operator.h"

namespace stepnet {

struct RateArgs {
  float base_lr = 0;
  std::string policy;
  std::optional<float> gamma, power, start_multiplier;
  std::optional<int64_t> stepsize, max_iter, num_iter, active_period, inactive_period;
  float multiplier = 0, end_multiplier = 0;
  bool active_first = true;
  std::optional<float> multiplier_1, multiplier_2, max_lr;
  int64_t num_iter_1 = 0, num_iter_2 = 0;
  float decay = 0;
  float start_warmup_multiplier = 0;
  int64_t constant_warmup_num_iter = 0, linear_warmup_num_iter = 0;
  float cyclical_max_lr = 0, cyclical_decay = 0;
  int64_t cyclical_step_size = 0;
  float min_lr = 0, t_mult = 0, lr_shrink = 0;
  int64_t period = 0;
  float cosine_min_lr = 0, cosine_max_lr = 0, cosine_t_mult = 0, cosine_lr_shrink = 0;
  int64_t cosine_period = 0;
  float m1 = 0, m2 = 0, m3 = 0;
  int64_t n1 = 0, n2 = 0;
  std::vector<int64_t> sub_policy_num_iters;
  std::vector<Argument> sub_policies;  // as they are named, "sub_policy_0_policy"
};

enum class RatePolicy {
  fixed,
  step,
  exp,
  inv,
  poly,
  linear_warmup,
  constant_warmup,
  alter,
  hill,
  gate,
  slope,
  cyclical,
  constant_then_linear_warmup,
  composite_cyclical,
  cosine,
  composite_cosine,
  piece_warmup
};

// A policy with the arguments that it needs.
struct RatePlan {
  RatePolicy policy = RatePolicy::fixed;
  double base = 0;                                  // the rate at multiplier 1
  double gamma = 0, power = 0, start = 0, end = 0;  // multipliers: the first, and the least at the end
  double middle = 0;                                // the multiplier between them
  int64_t length = 1, period = 1;                   // iterations of a stage, and of all stages
  int64_t before = 0;                               // iterations before that stage
  int64_t half = 1;                                 // iterations of half a cycle, or of a whole one that only falls
  double peak = 1, decay = 1;                       // the first cycle's greatest multiplier; what is left in the next
  double valley = 1, stretch = 1;                   // its least one; how much longer the next cycle is
  bool active_first = true;
};

// One policy after the other, each with a factor; what is no composite has one part.
struct RateSchedule {
  static constexpr int kMostParts = 16;  // a kernel gets them by value
  struct Part {
    RatePlan plan;
    int64_t from = 0;  // the iteration with which it begins
    double scale = 1;
  };
  int count = 0;
  Part parts[kMostParts];
};

// Throws Error on a policy that is none, or that lacks an argument.
RateSchedule plan_rate(const RateArgs& args);

constexpr double inverse_decay(const RatePlan& plan, int64_t iter) {
  return std::pow(1 + plan.gamma * static_cast<double>(iter), -plan.power);
}

constexpr double linear_warmup(const RatePlan& plan, int64_t iter) {
  const auto length = static_cast<double>(plan.length);
  return iter >= plan.length ? 1 : plan.start + (1 - plan.start) * static_cast<double>(iter) / length;
}

// As long as `before` lasts, the first multiplier.
constexpr double delayed_warmup(const RatePlan& plan, int64_t iter) {
  return iter < plan.before ? plan.start : linear_warmup(plan, iter - plan.before);
}

constexpr bool warms_up(const RatePlan& plan, int64_t iter) {
  return iter < plan.before || iter - plan.before < plan.length;
}

// In a straight line from 1 to the cycle's peak and back.
constexpr double cycle(const RatePlan& plan, int64_t iter) {
  const int64_t cycles = iter / (2 * plan.half);
  const double x = static_cast<double>(iter) / static_cast<double>(plan.half) - static_cast<double>(2 * cycles + 1);
  return 1 + (plan.peak - 1) * std::pow(plan.decay, static_cast<double>(cycles)) * (1 - (x < 0 ? -x : x));
}

// From a cycle's peak down to its valley along half a wave; the next is stretched and shrunk.
constexpr double cosine_cycle(const RatePlan& plan, int64_t iter) {
  const auto at = static_cast<double>(iter), first = static_cast<double>(plan.half);
  double cycle = std::floor(at / first), length = first, begin = cycle * first;
  if (plan.stretch != 1) {
    // The first n cycles take first (1 - stretch^n) / (1 - stretch) iterations.
    cycle = std::floor(std::log(1 - at / first * (1 - plan.stretch)) / std::log(plan.stretch));
    length = first * std::pow(plan.stretch, cycle);
    begin = (first - length) / (1 - plan.stretch);
  }
  const double shrink = std::pow(plan.decay, cycle), wave = 1 + std::cos(M_PI * ((at - begin) / length));
  const double low = plan.valley * shrink, high = plan.peak * shrink;
  return low + 0.5 * (high - low) * wave;
}

constexpr double sloping(const RatePlan& plan, int64_t iter) {
  const double steepness = (plan.end - plan.start) / static_cast<double>(plan.length);
  const double along = plan.start + steepness * static_cast<double>(iter - plan.before);
  return iter < plan.before ? plan.start : along > plan.end ? along : plan.end;
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
    case RatePolicy::gate:
      return iter < plan.length ? plan.start : plan.end;
    case RatePolicy::slope:
      return sloping(plan, iter);
    case RatePolicy::cyclical:
      return cycle(plan, iter);
    case RatePolicy::constant_then_linear_warmup:
      return delayed_warmup(plan, iter);
    case RatePolicy::composite_cyclical:
      return warms_up(plan, iter) ? delayed_warmup(plan, iter) : cycle(plan, iter - plan.before - plan.length);
    case RatePolicy::cosine:
      return cosine_cycle(plan, iter);
    case RatePolicy::composite_cosine:
      return warms_up(plan, iter) ? delayed_warmup(plan, iter) : cosine_cycle(plan, iter - plan.before - plan.length);
    case RatePolicy::piece_warmup:
      return iter < plan.before ? plan.start : iter < plan.length ? plan.middle : plan.end;
    default:
      return 1;
  }
}

// Of an iteration, from 0 on.
constexpr double rate_at(const RateSchedule& schedule, int64_t iter) {
  int part = 0;
  while (part + 1 < schedule.count && iter >= schedule.parts[part + 1].from) ++part;
  const RateSchedule::Part& now = schedule.parts[part];
  return now.plan.base * rate_multiplier(now.plan, iter) * now.scale;
}

}  // namespace stepnet
