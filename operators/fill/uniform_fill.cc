// UniformFill: Y[i] uniform from min to max. UniformIntFill: Y[i] an integer of [min, max], both ends included.
// No derivative: the result does not depend on any input's values.

#include "operators/fill/uniform_fill.h"

#include <cmath>

#include "core/compute/threads.h"
#include "stepnet/random.h"

namespace stepnet::cpu_uniform_fill {
namespace {

constexpr double kNanosecondsPerDraw = 15;

template <class Args>
void check_bounds_given_once(const Args& args, const ShapeCall& call) {
  const bool has_inputs = call.has(1) || call.has(2);
  require(call.has(1) == call.has(2), "min and max must be given as inputs both or not at all");
  require(!has_inputs || (!args.min && !args.max), "min and max are given as inputs and as arguments");
}

void uniform_shape(const UniformArgs& args, ShapeCall& call) {
  check_bounds_given_once(args, call);
  if (const auto shape = fill_shape(args, call)) call.set(0, args.element_type(), *shape);
}

void uniform_int_shape(const UniformIntArgs& args, ShapeCall& call) {
  check_bounds_given_once(args, call);
  if (const auto shape = fill_shape(args, call)) call.set(0, DType::int32, *shape);
}

double bound(Call& call, int input, const std::optional<float>& arg, double fallback) {
  if (call.has(input)) return call.in(input).item<double>();
  return arg ? static_cast<double>(*arg) : fallback;
}

int32_t int_bound(Call& call, int input, const std::optional<int32_t>& arg, int32_t fallback) {
  if (!call.has(input)) return arg.value_or(fallback);
  const Tensor& value = call.in(input);
  require(!is_floating(value.dtype()), "{} must be an integer, but is {}", input == 1 ? "min" : "max", value);
  return to_element<int32_t>(value.item<int64_t>());
}

template <class T>
void draw_uniform(uint64_t key, double low, double high, Out<T> y) {
  const double width = high - low;
  parallel_for(static_cast<int64_t>(y.size()), kNanosecondsPerDraw, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = static_cast<T>(low + width * random_uniform(key, i));
  });
}

void uniform_fill(const UniformArgs& args, Call& call) {
  const double min = bound(call, 1, args.min, 0), max = bound(call, 2, args.max, 1);
  require(min <= max, "min must not be greater than max, but they are {} and {}", min, max);
  require(std::isfinite(max - min), "min and max must be finite, but they are {} and {}", min, max);
  if (call.out(0).dtype() == DType::float64) return draw_uniform(call.random_key, min, max, call.out_span<double>(0));
  draw_uniform(call.random_key, min, max, call.out_span<float>(0));
}

void uniform_int_fill(const UniformIntArgs& args, Call& call) {
  const int32_t min = int_bound(call, 1, args.min, 0), max = int_bound(call, 2, args.max, 1);
  require(min < max, "min must be less than max, but they are {} and {}", min, max);
  const Out<int32_t> y = call.out_span<int32_t>(0);
  parallel_for(static_cast<int64_t>(y.size()), kNanosecondsPerDraw, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = static_cast<int32_t>(random_int(call.random_key, i, min, max));
  });
}

template <class Args>
OpBuilder<Args>& declare_bounds(OpBuilder<Args>& spec) {
  return spec.input("min", "the lower bound as one value, instead of the argument")
      .any_type()
      .optional()
      .input("max", "the upper bound as one value, instead of the argument")
      .any_type()
      .optional()
      .arg("min", &Args::min, {}, "the lower bound; 0 if absent")
      .arg("max", &Args::max, {}, "the upper bound; 1 if absent");
}

REGISTER(uniform_fill) {
  auto spec = op<UniformArgs>("UniformFill");
  declare_random_fill(spec);
  return declare_bounds(spec)
      .doc("Random numbers, uniform from min to max.")
      .shape(uniform_shape)
      .example({}, {"shape=2,3", "min=-2", "max=3"})
      .example({"input=int64,2:2,3"}, {"input_as_shape=1", "extra_shape=2"})
      .example({"input=2,3", "min=1:-1", "max=1:2"})
      .cpu(uniform_fill);
}

REGISTER(uniform_int_fill) {
  auto spec = op<UniformIntArgs>("UniformIntFill");
  declare_fill(spec);
  return declare_bounds(spec)
      .doc("Random integers from min to max, both included.")
      .accepts("dtype", "the operator's name says the type")
      .output("output", "the random tensor, int32")
      .types({DType::int32})
      .in_place("input", "output")
      .shape(uniform_int_shape)
      .random()
      .example({}, {"shape=2,3", "min=-2", "max=3"})
      .example({"input=int64,2:2,3"}, {"input_as_shape=1", "extra_shape=2"})
      .example({"input=2,3", "min=int32,1:-1", "max=int32,1:2"})
      .cpu(uniform_int_fill)
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet::cpu_uniform_fill
