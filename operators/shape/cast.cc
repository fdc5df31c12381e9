// Cast: Y = X in another element type. From floating point to integers it truncates, and what does not fit becomes the
// nearest value that does (NaN: 0), so that the result is the same on every machine. To bool: whether it is not 0. To
// float16 and bfloat16: the nearest value, ties to even; what is too large for float16 becomes infinite.
//
// dX = Cast(dY) to the type that argument "from_type" names, or CastLike(dY, X), which reads X's type only. A cast to
// integers has no gradient: its derivative is 0 almost everywhere.

#include "operators/shape/cast.h"

#include "core/compute/half_spans.h"
#include "core/compute/threads.h"

namespace stepnet::cpu_cast {
namespace {

DType read_type(const Argument& arg) {
  require(arg.has_i() || arg.has_s(), "argument \"{}\" must be the number (i) or the name (s) of a data type",
          arg.name());
  const DType type = arg.has_s() ? dtype_from_name(arg.s()) : dtype_from_number(arg.i());
  require(type != DType::string, "argument \"{}\" is {}, to which nothing can be cast", arg.name(), dtype_name(type));
  return type;
}

void shape(const CastArgs& args, ShapeCall& call) {
  const DType type = read_type(args.to);
  if (call.known(0)) call.set(0, type, call.shape(0));
}

void like_shape(const NoArgs&, ShapeCall& call) {
  if (!call.known(0) || !call.known(1)) return;
  call.set(0, call.dtype(1), call.shape(0));
}

template <class From, class To>
void convert_all(const Tensor& x, Tensor& y) {
  const From* from = x.span<From>().data();
  To* to = y.span<To>().data();
  parallel_for(x.size(), 0.5, [&](int64_t begin, int64_t end) {
    if constexpr ((is_half(dtype_of<From>()) && std::is_same_v<To, float>) ||
                  (std::is_same_v<From, float> && is_half(dtype_of<To>()))) {
      convert_elements(from + begin, end - begin, to + begin);
    } else {
      for (int64_t i = begin; i < end; ++i) to[i] = convert<From, To>(from[i]);
    }
  });
}

void cast(Call& call) {
  const Tensor& x = call.in(0);
  Tensor& y = call.out(0);
  with_castable(x.dtype(), y.dtype(), [&](auto from, auto to) { convert_all<decltype(from), decltype(to)>(x, y); });
}

Gradient gradient(Formula& f) {
  const auto& args = f.args<CastArgs>();
  if (!is_floating(read_type(args.to))) return Gradient::none();
  if (!args.from_type) return f.op("CastLike", {f.dy("output"), f.x("input")});
  const DType from = read_type(*args.from_type);
  if (!is_floating(from)) return Gradient::none();
  return f.op("Cast", {f.dy("output")}, {make_arg("to", static_cast<int>(from))});
}

REGISTER(cast) {
  return op<CastArgs>("Cast")
      .doc(
          "Converts the element type. Floating point is truncated to integers; what does not fit becomes the nearest "
          "value that does, and NaN 0. To FLOAT16 and BFLOAT16 it rounds to the nearest, ties to even.")
      .required_arg("to", &CastArgs::to, "the type, as a number of the format or by name")
      .arg("from_type", &CastArgs::from_type, {}, "the input's type, in which its gradient is made; known without")
      .input("input", "numbers or bools")
      .any_type()
      .output("output", "the same values in the other type")
      .any_type()
      .shape(shape)
      .elementwise()
      .example_net(R"(op { type: "Cast" input: "X" output: "Y" arg { name: "to" i: 13 } })", {"X=2,3"}, {"Y"})
      .example_net(R"(op {
        type: "Cast" input: "X" output: "Y"
        arg { name: "to" s: "DOUBLE" } arg { name: "from_type" s: "DOUBLE" }
      })",
                   {"X=2,3"}, {"Y"})
      .example_net(R"(op { type: "Cast" input: "X" output: "Y" arg { name: "to" i: 2 } })", {"X=2,3,-9..9"})
      .example_net(R"(op { type: "Cast" input: "X" output: "Y" arg { name: "to" s: "BFLOAT16" } })", {"X=2,3,-9..9"})
      .role(Role::cast)
      .precision(Precision::float32)
      .cpu(cast)
      .derivative("input", gradient);
}

REGISTER(cast_like) {
  return op("CastLike")
      .own()
      .doc("Converts to the element type of another tensor: the gradient of Cast.")
      .input("input", "numbers or bools")
      .any_type()
      .input("like", "a tensor of the wanted type; its values are not read")
      .any_type()
      .shape_only()
      .output("output", "the same values in the other type")
      .any_type()
      .shape(like_shape)
      .elementwise()
      .example({"input=2,3", "like=double,1"})
      .example({"input=2,3,-3..3", "like=int32,1"})
      .precision(Precision::float32)
      .cpu(cast)
      .derivative("input",
                  [](Formula& f) {
                    return f.op("CastLike", {f.dy("output"), f.x("input")});
                  })
      .derivative("like", [](Formula&) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet::cpu_cast
