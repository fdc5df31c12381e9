// ConstantFill: every element of Y is one value, an argument or an input. DiagonalFill: those on the diagonal, and the
// others are 0. No derivatives: the results do not depend on any input's values.
//
// The element type: argument "dtype" if given, and then the value must stand in the field of that type. Without it a
// value in `f`, or none, gives float and one in `i` int64, but a tensor like an input of another floating type has that
// type, so that gradients of such nets start in it. A value that is an input has the element type of Y.

#include "operators/fill/constant_fill.h"

#include <algorithm>

#include "stepnet/operator.h"
#include "stepnet/shape.h"

namespace stepnet::cpu_constant_fill {
namespace {

DType element_type(const ConstantArgs& args, const ShapeCall& call) {
  if (args.dtype) return dtype_from_number(*args.dtype);
  if (args.value && args.value->has_i()) return DType::int64;
  if (args.value && args.value->has_s()) return DType::string;
  const bool like_floating = call.known(0) && !args.input_as_shape && is_floating(call.dtype(0));
  return like_floating ? call.dtype(0) : DType::float32;
}

// Whether the type can be told without the input's.
bool type_is_known(const ConstantArgs& args, const ShapeCall& call) {
  return args.dtype || !call.has(0) || args.input_as_shape || call.known(0);
}

void shape(const ConstantArgs& args, ShapeCall& call) {
  const std::optional<Shape> shape = fill_shape(args, call);
  if (shape && type_is_known(args, call)) call.set(0, element_type(args, call), *shape);
}

// Nets of the public format have "values" in place of "value" here and there, where it has no effect: the fill is 0.
void require_no_values(const ConstantArgs& args) {
  if (!args.values) return;
  float number = 0;
  read_value(*args.values, number);
  require(number == 0, "argument \"values\" is {}, which the public format ignores; the argument is \"value\"", number);
}

// The value may be input 1.
void constant_shape(const ConstantArgs& args, ShapeCall& call) {
  require_no_values(args);
  if (!call.has(1)) return shape(args, call);
  const std::optional<Shape> shape = fill_shape(args, call);
  if (!call.known(1)) return;
  require(call.shape(1).size() == 1, "value must be one value, but has shape {}", call.shape(1));
  require(!args.dtype || dtype_from_number(*args.dtype) == call.dtype(1), "value is {}, but argument \"dtype\" says {}",
          call.in(1), dtype_name(dtype_from_number(args.dtype.value_or(1))));
  if (shape) call.set(0, call.dtype(1), *shape);
}

template <class T>
void fill(const ConstantArgs& args, const Call& call, Tensor& y) {
  std::ranges::fill(y.span<T>(), call.has(1) ? call.in(1).span<T>()[0] : read_constant<T>(args.value));
}

void fill_any(const ConstantArgs& args, Call& call) {
  Tensor& y = call.out(0);
  if (y.dtype() == DType::string) return fill<std::string>(args, call, y);
  const auto with_zero = [&](auto zero) { fill<decltype(zero)>(args, call, y); };
  if (!with_type(y.dtype(), with_zero) && !with_half(y.dtype(), with_zero))
    fail("argument \"dtype\" is {}, which cannot be filled", dtype_name(y.dtype()));
}

void diagonal_shape(const ConstantArgs& args, ShapeCall& call) {
  const std::optional<Shape> shape = fill_shape(args, call);
  if (!shape) return;
  require(shape->rank() >= 2, "a diagonal needs two dimensions or more, but the shape is {}", *shape);
  const bool equal = std::all_of(shape->begin(), shape->end(), [&](int64_t size) { return size == (*shape)[0]; });
  require(shape->rank() == 2 || equal,
          "the diagonal of more than two dimensions needs equal sizes, but the shape is {}", *shape);
  if (type_is_known(args, call)) call.set(0, element_type(args, call), *shape);
}

template <class T>
void fill_diagonal(const ConstantArgs& args, Tensor& y) {
  const Shape& shape = y.shape();
  const T value = read_constant<T>(args.value);
  const int64_t step = diagonal_step(shape);
  y.fill_zero();
  const int64_t count = *std::min_element(shape.begin(), shape.end());
  if (y.size() == 0) return;
  for (int64_t i = 0; i < count; ++i) y.data<T>()[i * step] = value;
}

void fill_any_diagonal(const ConstantArgs& args, Call& call) {
  Tensor& y = call.out(0);
  const auto with_zero = [&](auto zero) { fill_diagonal<decltype(zero)>(args, y); };
  if (!with_type(y.dtype(), with_zero) && !with_half(y.dtype(), with_zero))
    fail("the elements would be {}, of which a diagonal cannot be", dtype_name(y.dtype()));
}

OpBuilder<ConstantArgs>& declare(OpBuilder<ConstantArgs>& spec) {
  declare_fill(spec);
  return spec
      .arg("value", &ConstantArgs::value, {},
           "the value, in f, i or s as its type needs; 0 or the empty string if absent")
      .arg("dtype", &ConstantArgs::dtype, {}, "the element type as a number of the format")
      .output("output", "the filled tensor")
      .any_type()
      .in_place("input", "output")
      .stop_gradient();
}

REGISTER(constant_fill) {
  auto spec = op<ConstantArgs>("ConstantFill");
  return declare(spec)
      .input("value", "the value, one element of the output's type, in place of the argument")
      .any_type()
      .optional()
      .arg("values", &ConstantArgs::values, {}, "0, as the public format's optimizers write it; no other number")
      .doc(
          "A tensor whose elements are all equal. Without \"dtype\" the type follows from the value's field (f: float, "
          "i: int64, s: string), and a fill like an input of another floating type has that type.")
      .shape(constant_shape)
      .role(Role::fill_like)
      .example({"input=2,3"})
      .example({"input=2,3", "value=float,1:3.5"})
      .example({"input=int64,2:2,3"}, {"input_as_shape=1", "extra_shape=2"})
      .example_net(
          R"(op { type: "ConstantFill" output: "Y" arg { name: "shape" ints: 2 } arg { name: "value" f: 3 } })")
      .example_net(R"(op {
        type: "ConstantFill" output: "Y"
        arg { name: "shape" ints: 2 } arg { name: "dtype" i: 2 } arg { name: "value" i: 3 }
      })")
      .example_net(
          R"(op { type: "ConstantFill" output: "Y" arg { name: "shape" ints: 2 } arg { name: "value" s: "a" } })")
      .cpu(fill_any);
}

REGISTER(diagonal_fill) {
  auto spec = op<ConstantArgs>("DiagonalFill");
  return declare(spec)
      .doc("A tensor that is one value where all indices are equal, and 0 elsewhere; the type is as ConstantFill's.")
      .shape(diagonal_shape)
      .cpu(fill_any_diagonal)
      .example({}, {"shape=2,3"})
      .example({"input=3,3"})
      .example({"input=int64,2:2,2"}, {"input_as_shape=1", "extra_shape=2"});
}

// ZerosLike: zeros of X's type and shape. Derivative formulas use it in place of a gradient that does not exist; it
// reads X's shape only, so X is not kept for it. No derivative.

void fill_zero(Call& call) { call.out(0).fill_zero(); }

REGISTER(zeros_like) {
  return op("ZerosLike")
      .own()
      .doc("Zeros of the input's type and shape.")
      .input("X", "any tensor; its values are not read")
      .any_type()
      .shape_only()
      .output("Y", "zeros", like("X"))
      .any_type()
      .example({"X=2,3"})
      .cpu(fill_zero)
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet::cpu_constant_fill
