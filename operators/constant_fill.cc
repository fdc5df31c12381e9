// ConstantFill: every element of Y is one value. No derivative: the result does not depend on any input's values.
//
// The element type: argument "dtype" if given, and then the value must stand in the field of that type. Without it a
// value in `f`, or none, gives float and one in `i` int64, but a tensor like a double input is double, so that
// gradients of double nets start as double.

#include <algorithm>

#include "core/with_type.h"
#include "operators/fill_shape.h"

namespace stepnet {
namespace {

struct ConstantArgs : FillShape {
  std::optional<Argument> value;
  std::optional<int64_t> dtype;
};

DType element_type(const ConstantArgs& args, const ShapeCall& call) {
  if (args.dtype) return dtype_from_number(*args.dtype);
  if (args.value && args.value->has_i()) return DType::int64;
  if (args.value && args.value->has_s()) return DType::string;
  const bool like_double = call.known(0) && !args.input_as_shape && call.dtype(0) == DType::float64;
  return like_double ? DType::float64 : DType::float32;
}

// Whether the type can be told without the input's.
bool type_is_known(const ConstantArgs& args, const ShapeCall& call) {
  return args.dtype || !call.has(0) || args.input_as_shape || call.known(0);
}

void shape(const ConstantArgs& args, ShapeCall& call) {
  const std::optional<Shape> shape = fill_shape(args, call);
  if (shape && type_is_known(args, call)) call.set(0, element_type(args, call), *shape);
}

template <class T>
T read_constant(const std::optional<Argument>& value) {
  if (!value) return T{};
  if constexpr (std::is_same_v<T, std::string>) {
    std::string text;
    read_value(*value, text);
    return text;
  } else if constexpr (std::is_floating_point_v<T>) {
    float number = 0;
    read_value(*value, number);
    return static_cast<T>(number);
  } else {
    int64_t number = 0;
    read_value(*value, number);
    return to_element<T>(number);
  }
}

template <class T>
void fill(const ConstantArgs& args, Tensor& y) {
  std::ranges::fill(y.span<T>(), read_constant<T>(args.value));
}

void fill_any(const ConstantArgs& args, Call& call) {
  Tensor& y = call.out(0);
  if (y.dtype() == DType::string) return fill<std::string>(args, y);
  if (!with_type(y.dtype(), [&](auto zero) { fill<decltype(zero)>(args, y); }))
    fail("argument \"dtype\" is {}, which cannot be filled", dtype_name(y.dtype()));
}

REGISTER(constant_fill) {
  auto spec = op<ConstantArgs>("ConstantFill");
  declare_fill(spec);
  return spec
      .doc(
          "A tensor whose elements are all equal. Without \"dtype\" the type follows from the value's field (f: float, "
          "i: int64, s: string), and a fill like a double input is double.")
      .arg("value", &ConstantArgs::value, {},
           "the value, in f, i or s as its type needs; 0 or the empty string if absent")
      .arg("dtype", &ConstantArgs::dtype, {}, "the element type as a number of the format")
      .output("output", "the filled tensor")
      .any_type()
      .in_place("input", "output")
      .shape(shape)
      .role(Role::fill_like)
      .cpu(fill_any)
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet
