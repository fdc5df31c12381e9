// Range: start, start + step, ... as long as stop is not reached. RangeFill: 0, 1, 2, ... in any shape. No derivatives:
// the results do not depend smoothly on anything.

#include <cmath>

#include "operators/fill_shape.h"
#include "operators/flops.h"

namespace stepnet {
namespace {

template <class T>
struct Bounds {
  T start = 0, stop = 0, step = 1;
};

template <class T, class GetInput>
Bounds<T> read_bounds(int inputs, const GetInput& input) {
  Bounds<T> b;
  if (inputs > 1) b.start = input(0).template item<T>();
  b.stop = input(inputs > 1 ? 1 : 0).template item<T>();
  if (inputs > 2) b.step = input(2).template item<T>();
  return b;
}

template <class T>
int64_t count_of(const Bounds<T>& b) {
  require(b.step != 0, "step is 0, so that {} is never reached from {}", b.stop, b.start);
  if constexpr (std::is_integral_v<T>) {
    if (b.start == b.stop || (b.start < b.stop) != (b.step > 0)) return 0;
    // Without signs, in which the distance always fits.
    auto distance = [](int64_t from, int64_t to) { return static_cast<uint64_t>(to) - static_cast<uint64_t>(from); };
    const uint64_t way = b.step > 0 ? distance(b.start, b.stop) : distance(b.stop, b.start);
    const uint64_t step = b.step > 0 ? distance(0, b.step) : distance(b.step, 0);
    const uint64_t count = way / step + (way % step != 0 ? 1 : 0);
    require(count <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
            "there are too many steps of {} from {} to {}", b.step, b.start, b.stop);
    return static_cast<int64_t>(count);
  } else {
    const double count = std::ceil((static_cast<double>(b.stop) - b.start) / b.step);
    require(count < 1e18, "there are too many steps of {} from {} to {}", b.step, b.start, b.stop);
    return count > 0 ? static_cast<int64_t>(count) : 0;
  }
}

// Calls fn(T{}) for the types that there are kernels for.
template <class Fn>
void with_number(DType dtype, const Fn& fn) {
  if (dtype == DType::float32) return fn(float{});
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
    const auto bounds = read_bounds<T>(call.inputs(), [&](int i) -> const Tensor& { return *call.value(i); });
    call.set(0, call.dtype(0), Shape{count_of(bounds)});
  });
}

template <class T>
void range(Call& call) {
  const auto bounds = read_bounds<T>(call.inputs(), [&](int i) -> const Tensor& { return call.in(i); });
  const Out<T> y = call.out_span<T>(0);
  for (size_t i = 0; i < y.size(); ++i) {
    if constexpr (std::is_integral_v<T>) {
      // Between start and stop, but the product alone may be too large for a signed number.
      y[i] = static_cast<T>(static_cast<uint64_t>(bounds.start) + i * static_cast<uint64_t>(bounds.step));
    } else {
      y[i] = bounds.start + static_cast<T>(i) * bounds.step;
    }
  }
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
}  // namespace stepnet
