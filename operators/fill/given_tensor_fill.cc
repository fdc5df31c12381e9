// GivenTensorFill and its typed forms: Y holds the values that the net itself carries, which is how saved parameters
// become an init net. As many values as the shape has elements. No derivative: the values are constants.

#include "operators/fill/given_tensor_fill.h"

#include <algorithm>

#include "stepnet/half.h"

namespace stepnet {
namespace {

// One of the three lists, or an Error that names the one needed.
template <class T>
std::vector<T> list_of(const GivenArgs& args) {
  std::vector<T> list;
  read_value(args.values, list);
  return list;
}

size_t count_of(DType type, const GivenArgs& args) {
  if (is_floating(type)) return list_of<float>(args).size();
  if (type == DType::string) return list_of<std::string>(args).size();
  return list_of<int64_t>(args).size();
}

void typed_shape(DType type, const GivenArgs& args, ShapeCall& call) {
  const auto shape = fill_shape(args, call);
  const size_t count = count_of(type, args);
  if (!shape) return;
  require(static_cast<int64_t>(count) == shape->size(), "{} values are given, but shape {} has {} elements", count,
          shape->str(), shape->size());
  call.set(0, type, *shape);
}

template <class T>
void fill(const GivenArgs& args, Tensor& y) {
  const std::span<T> out = y.span<T>();
  if constexpr (is_floating(dtype_of<T>())) {
    std::ranges::copy(list_of<float>(args), out.begin());
  } else if constexpr (std::is_same_v<T, std::string>) {
    std::ranges::copy(list_of<std::string>(args), out.begin());
  } else {
    std::ranges::transform(list_of<int64_t>(args), out.begin(), to_element<T>);
  }
}

void fill_any(const GivenArgs& args, Call& call) { fill_given(args, call.out(0)); }

// `values`: two of them, as an example's text says them.
OpBuilder<GivenArgs> given(const std::string& type, const char* doc, const std::string& values) {
  auto spec = op<GivenArgs>(type);
  declare_fill(spec);
  spec.doc(doc)
      .required_arg("values", &GivenArgs::values, "the elements in row-major order: floats, ints or strings")
      .output("output", "the tensor of these values")
      .any_type()
      .in_place("input", "output")
      .example_net("op { type: \"" + type + "\" output: \"Y\" arg { name: \"shape\" ints: 2 } arg { name: \"values\" " +
                   values + " } }")
      .cpu(fill_any)
      .stop_gradient();
  return spec;
}

template <DType type>
OpBuilder<GivenArgs> typed(const char* name, const char* doc, const std::string& values) {
  auto spec = given(name, doc, values);
  spec.accepts("dtype", "the operator's name says the type").shape([](const GivenArgs& args, ShapeCall& call) {
    typed_shape(type, args, call);
  });
  return spec;
}

REGISTER(given_tensor_fill) {
  return given("GivenTensorFill", "A tensor of given values, float unless \"dtype\" says otherwise.",
               "floats: 0.5 floats: 2")
      .arg("dtype", &GivenArgs::dtype, int64_t{1}, "the element type as a number of the format")
      .shape([](const GivenArgs& args, ShapeCall& call) { typed_shape(dtype_from_number(args.dtype), args, call); });
}
REGISTER(given_tensor_int_fill) {
  return typed<DType::int32>("GivenTensorIntFill", "An int32 tensor of given values.", "ints: -5 ints: 7");
}
REGISTER(given_tensor_int64_fill) {
  return typed<DType::int64>("GivenTensorInt64Fill", "An int64 tensor of given values.", "ints: -5 ints: 7");
}
REGISTER(given_tensor_bool_fill) {
  return typed<DType::boolean>("GivenTensorBoolFill", "A bool tensor of given values; integers other than 0 are true.",
                               "ints: 0 ints: 7");
}
REGISTER(given_tensor_double_fill) {
  return typed<DType::float64>("GivenTensorDoubleFill", "A double tensor of given values, read from floats.",
                               "floats: 0.5 floats: 2");
}
REGISTER(given_tensor_string_fill) {
  return typed<DType::string>("GivenTensorStringFill", "A string tensor of given values.",
                              "strings: \"a\" strings: \"\"");
}

}  // namespace

void fill_given(const GivenArgs& args, Tensor& y) {
  switch (y.dtype()) {
    case DType::float32:
      return fill<float>(args, y);
    case DType::float64:
      return fill<double>(args, y);
    case DType::float16:
      return fill<float16>(args, y);
    case DType::bfloat16:
      return fill<bfloat16>(args, y);
    case DType::int32:
      return fill<int32_t>(args, y);
    case DType::int64:
      return fill<int64_t>(args, y);
    case DType::boolean:
      return fill<bool>(args, y);
    case DType::string:
      return fill<std::string>(args, y);
    default:
      fail("argument \"dtype\" must be float, double, float16, bfloat16, int32, int64, bool or string, but is {}",
           dtype_name(y.dtype()));
  }
}

}  // namespace stepnet
