// Range: start, start + step, ... as long as stop is not reached. RangeFill: 0, 1, 2, ... in any shape. No derivatives:
// the results do not depend smoothly on anything.

#include "operators/fill/range.h"

#include "core/operator/flops.h"
#include "operators/loops/fill_shape.h"
#include "stepnet/half.h"

namespace stepnet::cpu_range {
namespace {

// Calls fn(T{}) for the types that there are kernels for.
template <class Fn>
void with_number(DType dtype, const Fn& fn) {
  if (dtype == DType::float32 || is_half(dtype)) return fn(float{});  // halves count in float
  if (dtype == DType::float64) return fn(double{});
  if (dtype == DType::int32) return fn(int32_t{});
  if (dtype == DType::int64) return fn(int64_t{});
}

void infer(const NoArgs&, ShapeCall& call) {
  require(call.inputs() <= 3, "a range has at most a start, a stop and a step, not {} inputs", call.inputs());
  for (int i = 0; i < call.inputs(); ++i) {
    if (call.known(i)) require(call.shape(i).size() == 1, "input {} must be one value, but is {}", i, call.shape(i));
    if (!call.value(i)) return;
  }
  with_number(call.dtype(0), [&](auto zero) {
    using T = decltype(zero);
    const auto bounds = read_range<T>(call.inputs(), [&](int i) -> const Tensor& { return *call.value(i); });
    call.set(0, call.dtype(0), Shape{count_of(bounds)});
  });
}

template <class T>
void range(Call& call) {
  const auto bounds = read_range<T>(call.inputs(), [&](int i) -> const Tensor& { return call.in(i); });
  const Out<T> y = call.out_span<T>(0);
  for (size_t i = 0; i < y.size(); ++i) y[i] = bounds[i];
}

void fill_range(Call& call) {
  const Out<float> y = call.out_span<float>(0);
  for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(i);
}

void infer_fill(const FillShape& args, ShapeCall& call) {
  if (const std::optional<Shape> shape = fill_shape(args, call)) call.set(0, DType::float32, *shape);
}

REGISTER(range) {
  return op("Range")
      .doc("Numbers at equal distances, from start (0) up to, and without, stop.")
      .input("bounds", "stop; or start and stop; or start, stop and step: one value each")
      .variadic()
      .output("output", "the numbers, one dimension, of the inputs' type")
      .shape(infer)
      .flops(flops_per_output(2))
      .cpu_for<float>(range<float>)
      .cpu_for<double>(range<double>)
      .cpu_for<int32_t>(range<int32_t>)
      .cpu_for<int64_t>(range<int64_t>)
      .example({"bounds0=:3"})
      .example({"bounds0=int32:1", "bounds1=int32:4"})
      .example({"bounds0=:2", "bounds1=:-1", "bounds2=:-0.5"})
      .example({"bounds0=int64:0"})
      .stop_gradient();
}

REGISTER(range_fill) {
  auto spec = op<FillShape>("RangeFill");
  declare_fill(spec);
  return spec.doc("The numbers 0, 1, 2, ... in a shape.")
      .accepts("dtype", "the numbers are float in the public format, too")
      .output("output", "float")
      .types({DType::float32})
      .in_place("input", "output")
      .shape(infer_fill)
      .cpu(fill_range)
      .example({}, {"shape=2,3"})
      .example({"input=2,2"}, {"extra_shape=2"})
      .example({"input=int64,1:3"}, {"input_as_shape=1"})
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet::cpu_range
