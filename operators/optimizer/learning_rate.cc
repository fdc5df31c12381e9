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

#include "operators/optimizer/learning_rate.h"

namespace stepnet {
namespace {

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

float gamma(const RateArgs& args) { return needed(args, args.gamma, "gamma"); }
float power(const RateArgs& args) { return needed(args, args.power, "power"); }

void plan_step(const RateArgs& args, RatePlan& plan) {
  plan.gamma = gamma(args);
  plan.length = positive(args, args.stepsize, "stepsize");
}

void plan_inverse(const RateArgs& args, RatePlan& plan) {
  plan.gamma = gamma(args);
  plan.power = power(args);
}

void plan_polynomial(const RateArgs& args, RatePlan& plan) {
  plan.power = power(args);
  plan.length = positive(args, args.max_iter, "max_iter");
}

void plan_linear_warmup(const RateArgs& args, RatePlan& plan) {
  plan.start = needed(args, args.start_multiplier, "start_multiplier");
  plan.length = positive(args, args.num_iter, "num_iter");
}

void plan_constant_warmup(const RateArgs& args, RatePlan& plan) {
  plan.start = args.multiplier;
  plan.length = positive(args, args.num_iter, "num_iter");
}

void plan_alternate(const RateArgs& args, RatePlan& plan) {
  const int64_t active = positive(args, args.active_period, "active_period");
  const int64_t inactive = positive(args, args.inactive_period, "inactive_period");
  require(!__builtin_add_overflow(active, inactive, &plan.period), "active_period and inactive_period are too large");
  plan.length = args.active_first ? active : inactive;
  plan.active_first = args.active_first;
}

void plan_hill(const RateArgs& args, RatePlan& plan) {
  plan_linear_warmup(args, plan);
  plan_inverse(args, plan);
  plan.end = args.end_multiplier;
}

struct NamedPolicy {
  const char* name;
  RatePolicy policy;
  void (*plan)(const RateArgs&, RatePlan&);
  int flops;
};
const NamedPolicy kPolicies[] = {
    {"fixed", RatePolicy::fixed, [](const RateArgs&, RatePlan&) {}, 0},
    {"step", RatePolicy::step, plan_step, 1},
    {"exp", RatePolicy::exp, [](const RateArgs& args, RatePlan& plan) { plan.gamma = gamma(args); }, 1},
    {"inv", RatePolicy::inv, plan_inverse, 3},
    {"poly", RatePolicy::poly, plan_polynomial, 3},
    {"linearWarmup", RatePolicy::linear_warmup, plan_linear_warmup, 3},
    {"constantWarmup", RatePolicy::constant_warmup, plan_constant_warmup, 0},
    {"alter", RatePolicy::alter, plan_alternate, 0},
    {"hill", RatePolicy::hill, plan_hill, 6},
};

}  // namespace

RatePlan plan_rate(const RateArgs& args) {
  std::vector<std::string> names;
  for (const NamedPolicy& p : kPolicies) {
    names.emplace_back(p.name);
    if (args.policy != p.name) continue;
    RatePlan plan;
    plan.policy = p.policy;
    plan.base = args.base_lr;
    p.plan(args, plan);
    return plan;
  }
  fail("there is no policy \"{}\"; there are {}.{}", args.policy, fmt::join(names, ", "), suggest(args.policy, names));
}

namespace {

void shape(const RateArgs& args, ShapeCall& call) {
  plan_rate(args);  // missing arguments show before the first run
  if (call.known(0)) require(call.shape(0).size() == 1, "iter must be one value, but has shape {}", call.shape(0));
  call.set(0, DType::float32, Shape{});
}

void learning_rate(const RateArgs& args, const Tensor& iter, Tensor& rate) {
  const auto at = iter.item<int64_t>();
  require(at >= 0, "iter is {}, which is negative", at);
  *rate.data<float>() = static_cast<float>(rate_at(plan_rate(args), at));
}

double flops(const RateArgs& args, const ShapeCall&) {
  const auto named = std::ranges::find_if(kPolicies, [&](const NamedPolicy& p) { return args.policy == p.name; });
  return named == std::end(kPolicies) ? 1 : 1 + named->flops;
}

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
