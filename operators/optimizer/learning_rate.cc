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
//   cosine           from max_lr to min_lr along half a cosine in period iterations, again and again; each cycle is
//                    t_mult times as long as the one before, and its rates are lr_shrink times as high
//   compositeCosine  constantThenLinearWarmup, then cosine with cosine_max_lr and so on
//   pieceWarmup      m1 before iteration n1, m2 before n2, then m3
//   composite        policies one after the other, sub_policy_num_iters iterations each from 1 on, the last for ever;
//                    the i-th is sub_policy_i_policy with its arguments named alike, times sub_policy_i_lr_scale. Each
//                    counts iterations from the start of all.
//
// No derivative: iter is an integer.

#include "operators/optimizer/learning_rate.h"

#include <algorithm>
#include <charconv>
#include <cstring>

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
  plan_cycles(args.max_lr.value_or(0.005F), needed(args, args.stepsize, "stepsize"), "stepsize", args.decay, plan);
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

struct CosineArgs {
  float most, least;
  int64_t period;
  float stretch, shrink;
};

// `prefix`: of the arguments' names.
void plan_cosine_cycles(const CosineArgs& args, const std::string& prefix, RatePlan& plan) {
  require(args.period > 0, "argument \"{}period\" must be greater than 0, but is {}", prefix, args.period);
  require(args.stretch >= 1 && std::isfinite(args.stretch),
          "argument \"{}t_mult\" must be finite and at least 1, as cycles that become shorter end, but is {}", prefix,
          args.stretch);
  plan.half = args.period;
  plan.peak = static_cast<double>(args.most);
  plan.valley = static_cast<double>(args.least);
  plan.stretch = static_cast<double>(args.stretch);
  plan.decay = static_cast<double>(args.shrink);
}

void plan_cosine(const RateArgs& args, RatePlan& plan) {
  plan_cosine_cycles({args.max_lr.value_or(0.5F), args.min_lr, args.period, args.t_mult, args.lr_shrink}, "", plan);
}

void plan_composite_cosine(const RateArgs& args, RatePlan& plan) {
  plan_delayed_warmup(args, plan);
  plan_cosine_cycles(
      {args.cosine_max_lr, args.cosine_min_lr, args.cosine_period, args.cosine_t_mult, args.cosine_lr_shrink},
      "cosine_", plan);
}

void plan_pieces(const RateArgs& args, RatePlan& plan) {
  plan.start = args.m1;
  plan.middle = args.m2;
  plan.end = args.m3;
  plan.before = args.n1;
  plan.length = args.n2;
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
    {"cosine", RatePolicy::cosine, plan_cosine, 11},
    {"compositeCosine", RatePolicy::composite_cosine, plan_composite_cosine, 14},
    {"pieceWarmup", RatePolicy::piece_warmup, plan_pieces, 0},
};
constexpr const char* kComposite = "composite";

const NamedPolicy& named_policy(const std::string& policy) {
  std::vector<std::string> names;
  for (const NamedPolicy& p : kPolicies) {
    if (policy == p.name) return p;
    names.emplace_back(p.name);
  }
  names.emplace_back(kComposite);
  fail("there is no policy \"{}\"; there are {}.{}", policy, fmt::join(names, ", "), suggest(policy, names));
}

RatePlan plan_policy(const RateArgs& args) {
  const NamedPolicy& named = named_policy(args.policy);
  RatePlan plan;
  plan.policy = named.policy;
  plan.base = args.base_lr;
  named.plan(args, plan);
  return plan;
}

// What composite's i-th policy is called with, and its factor.
struct SubPolicy {
  OperatorDef def;
  float scale = 1;
};

// Throws Error on a name that is no "sub_policy_I_NAME" with I less than `count`.
std::vector<SubPolicy> sub_policies(const RateArgs& args, size_t count) {
  std::vector<SubPolicy> all(count);
  for (const Argument& arg : args.sub_policies) {
    const std::string_view rest = std::string_view(arg.name()).substr(std::strlen("sub_policy_"));
    size_t index = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
    const bool is_plain = rest.starts_with('0') ? end == rest.data() + 1 : error == std::errc();
    const bool fits = error == std::errc() && is_plain && end != rest.data() + rest.size() && *end == '_';
    require(fits, "\"{}\" is no argument of a policy: these are named sub_policy_0_policy, sub_policy_1_gamma ...",
            arg.name());
    require(index < count, "\"{}\" is of policy {}, but sub_policy_num_iters has {} values", arg.name(), index, count);
    Argument plain = arg;
    plain.set_name(std::string(end + 1, rest.data() + rest.size()));
    if (plain.name() == "lr_scale")
      read_value(plain, all[index].scale);
    else
      *all[index].def.add_arg() = plain;
  }
  return all;
}

RateArgs parsed_policy(OperatorDef def, const RateArgs& args, size_t index) {
  *def.add_arg() = make_arg("base_lr", args.base_lr);
  try {
    std::vector<std::string> unknown;
    const auto parsed = parse_args(op_spec("LearningRate"), def, &unknown);
    if (!unknown.empty()) throw Error(unknown.front());
    const RateArgs& own = *static_cast<const RateArgs*>(parsed.get());
    const bool is_plain = own.policy != kComposite && own.sub_policies.empty() && own.sub_policy_num_iters.empty();
    require(is_plain, "a composite cannot be part of another");
    return own;
  } catch (Error& e) {
    e.add("in", fmt::format("policy {} of composite, whose arguments begin with \"sub_policy_{}_\"", index, index));
    throw;
  }
}

// The arguments of each policy that composite has.
std::vector<std::pair<RateArgs, float>> parts_of(const RateArgs& args) {
  const size_t count = args.sub_policy_num_iters.size();
  require(count > 0, "policy \"composite\" needs the argument \"sub_policy_num_iters\"");
  require(count <= RateSchedule::kMostParts, "sub_policy_num_iters has {} values, but composite takes at most {}",
          count, int{RateSchedule::kMostParts});
  std::vector<std::pair<RateArgs, float>> parts;
  const std::vector<SubPolicy> subs = sub_policies(args, count);
  for (size_t i = 0; i < count; ++i) parts.emplace_back(parsed_policy(subs[i].def, args, i), subs[i].scale);
  return parts;
}

}  // namespace

RateSchedule plan_rate(const RateArgs& args) {
  RateSchedule schedule;
  if (args.policy != kComposite) {
    require(args.sub_policies.empty(), "only policy \"composite\" has \"{}\"",
            args.sub_policies.empty() ? "" : args.sub_policies[0].name());
    schedule.count = 1;
    schedule.parts[0].plan = plan_policy(args);
    return schedule;
  }
  int64_t from = 1;
  for (const auto& [part, scale] : parts_of(args)) {
    const int64_t length = args.sub_policy_num_iters[static_cast<size_t>(schedule.count)];
    schedule.parts[schedule.count++] = {plan_policy(part), from, static_cast<double>(scale)};
    require(length > 0 && !__builtin_add_overflow(from, length, &from),
            "sub_policy_num_iters must be greater than 0 and their sum no more than 2^63, but one is {}", length);
  }
  return schedule;
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

// Of composite: those of its longest policy.
double flops(const RateArgs& args, const ShapeCall&) {
  if (args.policy != kComposite) return 1 + named_policy(args.policy).flops;
  int most = 0;
  for (const auto& [part, scale] : parts_of(args)) most = std::max(most, named_policy(part.policy).flops);
  return 2 + most;
}

OpBuilder<RateArgs>& add_cosine_policies(OpBuilder<RateArgs>& b) {
  return b.arg("min_lr", &RateArgs::min_lr, 0.1f, "cosine: the least multiplier of the first cycle")
      .arg("period", &RateArgs::period, int64_t{50}, "cosine: iterations of the first cycle")
      .arg("t_mult", &RateArgs::t_mult, 1.0f, "cosine: how many times as long each cycle is as the one before")
      .arg("lr_shrink", &RateArgs::lr_shrink, 0.99f, "cosine: what is left of a cycle's multipliers in the next")
      .arg("cosine_min_lr", &RateArgs::cosine_min_lr, 0.1f, "compositeCosine: as min_lr")
      .arg("cosine_max_lr", &RateArgs::cosine_max_lr, 0.5f, "compositeCosine: as max_lr")
      .arg("cosine_period", &RateArgs::cosine_period, int64_t{50}, "compositeCosine: as period")
      .arg("cosine_t_mult", &RateArgs::cosine_t_mult, 1.0f, "compositeCosine: as t_mult")
      .arg("cosine_lr_shrink", &RateArgs::cosine_lr_shrink, 0.99f, "compositeCosine: as lr_shrink")
      .example({"iter=int64,1:7"}, {"base_lr=0.5", "policy=cosine", "period=5", "lr_shrink=0.5"})
      .example({"iter=int64,1:7"}, {"base_lr=0.5", "policy=cosine", "period=3", "t_mult=2", "max_lr=1"})
      .example({"iter=int64,1:7"}, {"base_lr=0.5", "policy=compositeCosine", "constant_warmup_num_iter=1",
                                    "linear_warmup_num_iter=2", "cosine_period=3"});
}

OpBuilder<RateArgs>& add_pieces(OpBuilder<RateArgs>& b) {
  return b.arg("m1", &RateArgs::m1, 0.5f, "pieceWarmup: the multiplier before iteration n1")
      .arg("n1", &RateArgs::n1, int64_t{0}, "pieceWarmup: the first iteration with m2")
      .arg("m2", &RateArgs::m2, 0.5f, "pieceWarmup: the multiplier before iteration n2")
      .arg("n2", &RateArgs::n2, int64_t{0}, "pieceWarmup: the first iteration with m3")
      .arg("m3", &RateArgs::m3, 0.5f, "pieceWarmup: the multiplier from there on")
      .arg("sub_policy_num_iters", &RateArgs::sub_policy_num_iters, {},
           "composite: iterations of each policy, of at most 16")
      .args_that_begin("sub_policy_", &RateArgs::sub_policies,
                       "composite: sub_policy_0_policy, sub_policy_0_gamma and so on are the first policy's arguments, "
                       "sub_policy_0_lr_scale its factor (1 if absent), sub_policy_1_policy the second's ...")
      .example({"iter=int64,1:3"}, {"base_lr=0.5", "policy=pieceWarmup", "n1=2", "m2=0.25", "n2=5", "m3=1"})
      .example({"iter=int64,1:3"},
               {"base_lr=0.5", "policy=composite", "sub_policy_num_iters=2,1", "sub_policy_0_policy=fixed",
                "sub_policy_0_lr_scale=2.5", "sub_policy_1_policy=exp", "sub_policy_1_gamma=0.5"});
}

OpBuilder<RateArgs>& add_later_policies(OpBuilder<RateArgs>& b) {
  return b
      .arg("multiplier_1", &RateArgs::multiplier_1, {}, "gate, slope: the first multiplier; if absent 1, of slope 0")
      .arg("multiplier_2", &RateArgs::multiplier_2, {}, "gate, slope: the last multiplier; if absent 1, of slope 0")
      .arg("num_iter_1", &RateArgs::num_iter_1, int64_t{0}, "slope: iterations at multiplier_1")
      .arg("num_iter_2", &RateArgs::num_iter_2, int64_t{0}, "slope: the iteration at which multiplier_2 is reached")
      .arg("max_lr", &RateArgs::max_lr, {},
           "cyclical: the greatest rate, with base_lr's sign, if absent 0.005; cosine: the first multiplier, if absent "
           "0.5")
      .arg("decay", &RateArgs::decay, 1.0f, "cyclical: what is left of a cycle's height in the next")
      .arg("start_warmup_multiplier", &RateArgs::start_warmup_multiplier, 0.1f,
           "constantThenLinearWarmup, compositeCyclical, compositeCosine: the first multiplier")
      .arg("constant_warmup_num_iter", &RateArgs::constant_warmup_num_iter, int64_t{10000000},
           "constantThenLinearWarmup, compositeCyclical, compositeCosine: iterations at it", at_least(0))
      .arg("linear_warmup_num_iter", &RateArgs::linear_warmup_num_iter, int64_t{10000000},
           "constantThenLinearWarmup, compositeCyclical, compositeCosine: iterations from there to 1", at_least(0))
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
  add_later_policies(spec);
  add_cosine_policies(spec);
  return add_pieces(spec)
      .doc("base_lr times a multiplier that depends on the iteration; see the policies.")
      .required_arg("base_lr", &RateArgs::base_lr, "the rate at multiplier 1; negative for WeightedSum and Adam")
      .required_arg("policy", &RateArgs::policy,
                    "fixed, step, exp, inv, poly, linearWarmup, constantWarmup, alter, hill, gate, slope, cyclical, "
                    "constantThenLinearWarmup, compositeCyclical, cosine, compositeCosine, pieceWarmup or composite")
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
