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
//   gate             multiplier_1 for num_iter iterations, then multiplier_2
//   slope            multiplier_1 for num_iter_1 iterations, then in a straight line to multiplier_2 at num_iter_2, and
//                    further, but at least multiplier_2
//   cyclical         from 1 to max_lr / base_lr in stepsize iterations and back in as many, again and again; what is
//                    above 1 is multiplied by decay in each cycle
//   constantThenLinearWarmup
//                    start_warmup_multiplier for constant_warmup_num_iter iterations, then to 1 in
//                    linear_warmup_num_iter, then 1
//   compositeCyclical
//                    constantThenLinearWarmup, then cyclical with cyclical_max_lr, cyclical_step_size, cyclical_decay
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

void plan_gate(const RateArgs& args, RatePlan& plan) {
  plan.start = args.multiplier_1.value_or(1);
  plan.end = args.multiplier_2.value_or(1);
  plan.length = args.num_iter.value_or(0);
}

void plan_slope(const RateArgs& args, RatePlan& plan) {
  plan.start = args.multiplier_1.value_or(0);
  plan.end = args.multiplier_2.value_or(0);
  plan.before = args.num_iter_1;
  require(args.num_iter_1 >= 0 && args.num_iter_2 > args.num_iter_1,
          "argument \"num_iter_2\" must be greater than num_iter_1, but they are {} and {}", args.num_iter_2,
          args.num_iter_1);
  plan.length = args.num_iter_2 - args.num_iter_1;
}

void plan_cycles(float max_lr, int64_t half, const char* name, float decay, RatePlan& plan) {
  require(half > 0 && half <= std::numeric_limits<int64_t>::max() / 2,
          "argument \"{}\" must be greater than 0 and less than 2^62, but is {}", name, half);
  require(plan.base != 0, "argument \"base_lr\" must not be 0 for cycles from it to a greatest rate");
  plan.half = half;
  plan.peak = std::abs(static_cast<double>(max_lr) / plan.base);
  plan.decay = static_cast<double>(decay);
}

void plan_cyclical(const RateArgs& args, RatePlan& plan) {
  plan_cycles(args.max_lr, needed(args, args.stepsize, "stepsize"), "stepsize", args.decay, plan);
}

void plan_delayed_warmup(const RateArgs& args, RatePlan& plan) {
  plan.start = args.start_warmup_multiplier;
  plan.before = args.constant_warmup_num_iter;
  plan.length = args.linear_warmup_num_iter;
}

void plan_composite_cyclical(const RateArgs& args, RatePlan& plan) {
  plan_delayed_warmup(args, plan);
  plan_cycles(args.cyclical_max_lr, args.cyclical_step_size, "cyclical_step_size", args.cyclical_decay, plan);
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
    {"gate", RatePolicy::gate, plan_gate, 0},
    {"slope", RatePolicy::slope, plan_slope, 2},
    {"cyclical", RatePolicy::cyclical, plan_cyclical, 7},
    {"constantThenLinearWarmup", RatePolicy::constant_then_linear_warmup, plan_delayed_warmup, 3},
    {"compositeCyclical", RatePolicy::composite_cyclical, plan_composite_cyclical, 10},
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

OpBuilder<RateArgs>& add_later_policies(OpBuilder<RateArgs>& b) {
  for (const char* name : {"sub_policy_num_iters", "m1", "n1", "m2", "n2", "m3", "cosine_min_lr", "cosine_max_lr",
                           "cosine_period", "cosine_t_mult", "cosine_lr_shrink"})
    b.accepts(name, "policies read it that are not there");
  return b
      .arg("multiplier_1", &RateArgs::multiplier_1, {}, "gate, slope: the first multiplier; if absent 1, of slope 0")
      .arg("multiplier_2", &RateArgs::multiplier_2, {}, "gate, slope: the last multiplier; if absent 1, of slope 0")
      .arg("num_iter_1", &RateArgs::num_iter_1, int64_t{0}, "slope: iterations at multiplier_1")
      .arg("num_iter_2", &RateArgs::num_iter_2, int64_t{0}, "slope: the iteration at which multiplier_2 is reached")
      .arg("max_lr", &RateArgs::max_lr, 0.005f, "cyclical: the greatest rate; its sign is base_lr's")
      .arg("decay", &RateArgs::decay, 1.0f, "cyclical: what is left of a cycle's height in the next")
      .arg("start_warmup_multiplier", &RateArgs::start_warmup_multiplier, 0.1f,
           "constantThenLinearWarmup, compositeCyclical: the first multiplier")
      .arg("constant_warmup_num_iter", &RateArgs::constant_warmup_num_iter, int64_t{10000000},
           "constantThenLinearWarmup, compositeCyclical: iterations at it", at_least(0))
      .arg("linear_warmup_num_iter", &RateArgs::linear_warmup_num_iter, int64_t{10000000},
           "constantThenLinearWarmup, compositeCyclical: iterations from there to 1", at_least(0))
      .arg("cyclical_max_lr", &RateArgs::cyclical_max_lr, 0.05f, "compositeCyclical: as max_lr")
      .arg("cyclical_step_size", &RateArgs::cyclical_step_size, int64_t{1000000}, "compositeCyclical: as stepsize")
      .arg("cyclical_decay", &RateArgs::cyclical_decay, 1.0f, "compositeCyclical: as decay")
      .example({"iter=int64,1:7"}, {"base_lr=0.5", "policy=gate", "num_iter=3", "multiplier_2=0.25"})
      .example({"iter=int64,1:7"},
               {"base_lr=0.5", "policy=slope", "num_iter_1=3", "num_iter_2=10", "multiplier_2=0.25"})
      .example({"iter=int64,1:7"}, {"base_lr=0.5", "policy=cyclical", "max_lr=2", "stepsize=3", "decay=0.5"})
      .example({"iter=int64,1:7"}, {"base_lr=0.5", "policy=constantThenLinearWarmup", "constant_warmup_num_iter=3",
                                    "linear_warmup_num_iter=8"})
      .example({"iter=int64,1:7"}, {"base_lr=0.5", "policy=compositeCyclical", "constant_warmup_num_iter=1",
                                    "linear_warmup_num_iter=2", "cyclical_max_lr=2", "cyclical_step_size=3"});
}

REGISTER(learning_rate) {
  auto spec = op<RateArgs>("LearningRate");
  return add_later_policies(spec)
      .doc("base_lr times a multiplier that depends on the iteration; see the policies.")
      .required_arg("base_lr", &RateArgs::base_lr, "the rate at multiplier 1; negative for WeightedSum and Adam")
      .required_arg("policy", &RateArgs::policy,
                    "fixed, step, exp, inv, poly, linearWarmup, constantWarmup, alter, hill, gate, slope, cyclical, "
                    "constantThenLinearWarmup or compositeCyclical")
      .arg("gamma", &RateArgs::gamma, {}, "step, exp, inv, hill: the factor")
      .arg("power", &RateArgs::power, {}, "inv, poly, hill: the exponent")
      .arg("stepsize", &RateArgs::stepsize, {}, "step: iterations between two changes; cyclical: of half a cycle")
      .arg("max_iter", &RateArgs::max_iter, {}, "poly: the iteration at which the rate is 0")
      .arg("start_multiplier", &RateArgs::start_multiplier, {}, "linearWarmup, hill: the first multiplier")
      .arg("num_iter", &RateArgs::num_iter, {},
           "linearWarmup, constantWarmup, hill: iterations of warm-up; gate: at multiplier_1")
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
