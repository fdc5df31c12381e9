// LearningRate: Y = base_lr m(iter), where the policy gives the multiplier m:
//
//   fixed            1
//   step             gamma^(iter / stepsize), integer division
//   exp              gamma^iter
//   inv              (1 + gamma iter)^-power
//   poly             (1 - iter / max_iter)^power; 0 after max_iter
//   linearWarmup     from start_multiplier to 1 in num_iter iterations, then 1
//   constantWarmup   multiplier for num_iter iterations, then 1
//   alter            1 and 0 in turns of active_period and inactive_period iterations
//   hill             linearWarmup, then inv from num_iter on, but at least end_multiplier
//
// No derivative: iter is an integer.

#include <algorithm>
#include <cmath>

#include "core/operator.h"

namespace stepnet {
namespace {

struct RateArgs {
  float base_lr = 0;
  std::string policy;
  std::optional<float> gamma, power, start_multiplier;
  std::optional<int64_t> stepsize, max_iter, num_iter, active_period, inactive_period;
  float multiplier = 0, end_multiplier = 0;
  bool active_first = true;
};

template <class T>
T needed(const RateArgs& args, const std::optional<T>& value, const char* name) {
  require(value.has_value(), "policy \"{}\" needs the argument \"{}\"", args.policy, name);
  return *value;
}

int64_t positive(const RateArgs& args, const std::optional<int64_t>& value, const char* name) {
  const int64_t v = needed(args, value, name);
  require(v > 0, "argument \"{}\" must be greater than 0, but is {}", name, v);
  return v;
}

double gamma(const RateArgs& args) { return needed(args, args.gamma, "gamma"); }
double power(const RateArgs& args) { return needed(args, args.power, "power"); }

double step(const RateArgs& args, int64_t iter) {
  return std::pow(gamma(args), static_cast<double>(iter / positive(args, args.stepsize, "stepsize")));
}

double inverse(const RateArgs& args, int64_t iter) {
  return std::pow(1 + gamma(args) * static_cast<double>(iter), -power(args));
}

double polynomial(const RateArgs& args, int64_t iter) {
  const auto last = static_cast<double>(positive(args, args.max_iter, "max_iter"));
  return std::pow(std::max(0.0, 1 - static_cast<double>(iter) / last), power(args));
}

double linear_warmup(const RateArgs& args, int64_t iter) {
  const double start = needed(args, args.start_multiplier, "start_multiplier");
  const int64_t length = positive(args, args.num_iter, "num_iter");
  return iter >= length ? 1 : start + (1 - start) * static_cast<double>(iter) / static_cast<double>(length);
}

double constant_warmup(const RateArgs& args, int64_t iter) {
  return iter >= positive(args, args.num_iter, "num_iter") ? 1 : args.multiplier;
}

double alternate(const RateArgs& args, int64_t iter) {
  const int64_t active = positive(args, args.active_period, "active_period");
  const int64_t inactive = positive(args, args.inactive_period, "inactive_period");
  int64_t period = 0;
  require(!__builtin_add_overflow(active, inactive, &period), "active_period and inactive_period are too large");
  const bool first_part = iter % period < (args.active_first ? active : inactive);
  return first_part == args.active_first ? 1 : 0;
}

double hill(const RateArgs& args, int64_t iter) {
  const int64_t length = positive(args, args.num_iter, "num_iter");
  const double decayed = inverse(args, std::max<int64_t>(iter - length, 0));
  const double warm = linear_warmup(args, iter);
  return iter < length ? warm : std::max<double>(decayed, args.end_multiplier);
}

using Policy = double (*)(const RateArgs&, int64_t);
struct NamedPolicy {
  const char* name;
  Policy multiplier;
  int flops;
};
const NamedPolicy kPolicies[] = {
    {"fixed", [](const RateArgs&, int64_t) { return 1.0; }, 0},
    {"step", step, 1},
    {"exp", [](const RateArgs& args, int64_t iter) { return std::pow(gamma(args), static_cast<double>(iter)); }, 1},
    {"inv", inverse, 3},
    {"poly", polynomial, 3},
    {"linearWarmup", linear_warmup, 3},
    {"constantWarmup", constant_warmup, 0},
    {"alter", alternate, 0},
    {"hill", hill, 6},
};

const NamedPolicy& find_policy(const std::string& name) {
  std::vector<std::string> names;
  for (const NamedPolicy& p : kPolicies) {
    if (name == p.name) return p;
    names.emplace_back(p.name);
  }
  fail("there is no policy \"{}\"; there are {}.{}", name, fmt::join(names, ", "), suggest(name, names));
}

void shape(const RateArgs& args, ShapeCall& call) {
  find_policy(args.policy).multiplier(args, 0);  // missing arguments show before the first run
  if (call.known(0)) require(call.shape(0).size() == 1, "iter must be one value, but has shape {}", call.shape(0));
  call.set(0, DType::float32, Shape{});
}

void learning_rate(const RateArgs& args, const Tensor& iter, Tensor& rate) {
  const auto at = iter.item<int64_t>();
  require(at >= 0, "iter is {}, which is negative", at);
  *rate.data<float>() = static_cast<float>(args.base_lr * find_policy(args.policy).multiplier(args, at));
}

double flops(const RateArgs& args, const ShapeCall&) { return 1 + find_policy(args.policy).flops; }

REGISTER(learning_rate) {
  return op<RateArgs>("LearningRate")
      .doc("base_lr times a multiplier that depends on the iteration; see the policies.")
      .required_arg("base_lr", &RateArgs::base_lr, "the rate at multiplier 1; negative for WeightedSum and Adam")
      .required_arg("policy", &RateArgs::policy,
                    "fixed, step, exp, inv, poly, linearWarmup, constantWarmup, alter or hill")
      .arg("gamma", &RateArgs::gamma, {}, "step, exp, inv, hill: the factor")
      .arg("power", &RateArgs::power, {}, "inv, poly, hill: the exponent")
      .arg("stepsize", &RateArgs::stepsize, {}, "step: iterations between two changes")
      .arg("max_iter", &RateArgs::max_iter, {}, "poly: the iteration at which the rate is 0")
      .arg("start_multiplier", &RateArgs::start_multiplier, {}, "linearWarmup, hill: the first multiplier")
      .arg("num_iter", &RateArgs::num_iter, {}, "linearWarmup, constantWarmup, hill: iterations of warm-up")
      .arg("multiplier", &RateArgs::multiplier, 0.5f, "constantWarmup: the multiplier during warm-up")
      .arg("active_period", &RateArgs::active_period, {}, "alter: iterations at 1")
      .arg("inactive_period", &RateArgs::inactive_period, {}, "alter: iterations at 0")
      .arg("active_first", &RateArgs::active_first, true, "alter: begin at 1")
      .arg("end_multiplier", &RateArgs::end_multiplier, 0.0f, "hill: the least multiplier after warm-up")
      .input("iter", "the iteration, one value")
      .types({DType::int64, DType::int32})
      .output("learning_rate", "float, no dimensions")
      .types({DType::float32})
      .shape(shape)
      .flops(flops)
      .cpu(learning_rate)
      .stop_gradient()
      .example({"iter=int64,1:7"}, {"base_lr=-0.5", "policy=fixed"})
      .example({"iter=int64,1:7"}, {"base_lr=0.5", "policy=step", "gamma=0.5", "stepsize=3"})
      .example({"iter=int32,1:7"}, {"base_lr=0.5", "policy=exp", "gamma=0.5"})
      .example({"iter=int64,:7"}, {"base_lr=0.5", "policy=inv", "gamma=0.5", "power=2"})
      .example({"iter=int64,1:7"}, {"base_lr=0.5", "policy=poly", "power=2", "max_iter=10"})
      .example({"iter=int64,1:7"}, {"base_lr=0.5", "policy=linearWarmup", "start_multiplier=0.25", "num_iter=10"})
      .example({"iter=int64,1:7"}, {"base_lr=0.5", "policy=constantWarmup", "multiplier=0.25", "num_iter=10"})
      .example({"iter=int64,1:7"}, {"base_lr=0.5", "policy=alter", "active_period=3", "inactive_period=2"})
      .example({"iter=int64,1:7"}, {"base_lr=0.5", "policy=hill", "start_multiplier=0.25", "num_iter=5", "gamma=0.5",
                                    "power=2", "end_multiplier=0.125"});
}

}  // namespace
}  // namespace stepnet
