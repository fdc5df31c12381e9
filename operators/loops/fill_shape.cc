// The shape rules of the fill operators.
#include "operators/loops/fill_shape.h"

namespace stepnet {
namespace {

std::vector<int64_t> to_vector(const Shape& shape) { return {shape.begin(), shape.end()}; }

}  // namespace

std::vector<int64_t> read_integers(const Tensor& values, const char* what) {
  require(values.rank() == 1, "{} must have one dimension, but is {}", what, values);
  if (values.dtype() == DType::int64) return {values.span<int64_t>().begin(), values.span<int64_t>().end()};
  require(values.dtype() == DType::int32, "{} must be int32 or int64, but is {}", what, values);
  return {values.span<int32_t>().begin(), values.span<int32_t>().end()};
}

std::optional<Shape> fill_shape(const FillShape& args, const ShapeCall& call) {
  if (!call.has(0)) {
    require(!args.input_as_shape, "argument \"input_as_shape\" needs an input that holds the shape");
    return Shape(args.shape);
  }
  require(args.shape.empty(), "a fill takes its shape from the argument \"shape\" or from its input, not from both");
  std::vector<int64_t> dims;
  if (args.input_as_shape) {
    if (!call.value(0)) return std::nullopt;
    dims = read_integers(*call.value(0), "a shape given as input");
  } else {
    if (!call.known(0)) return std::nullopt;
    dims = to_vector(call.shape(0));
  }
  dims.insert(dims.end(), args.extra_shape.begin(), args.extra_shape.end());
  return Shape(dims);
}

}  // namespace stepnet
