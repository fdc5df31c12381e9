// The rules that all fill operators share: where the shape comes from.
//
//   no input                    argument "shape"; absent: a scalar
//   input                       the input's shape, then "extra_shape"
//   input, input_as_shape = 1   the input's values (integers, one dimension), then "extra_shape"
//
// Both an input and a shape is an Error.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "stepnet/operator.h"

namespace stepnet {

struct FillShape {
  std::vector<int64_t> shape;
  std::vector<int64_t> extra_shape;
  bool input_as_shape = false;
};

// The shape that the fill has, or nothing if it cannot be known yet. Throws Error.
std::optional<Shape> fill_shape(const FillShape& args, const ShapeCall& call);

// The integers of a tensor of one dimension, int32 or int64; throws Error naming `what`.
std::vector<int64_t> read_integers(const Tensor& values, const char* what);

// An integer of the net as an element; throws Error if it does not fit. Booleans are true for all but 0.
template <class T>
T to_element(int64_t number) {
  if constexpr (std::is_same_v<T, bool>) return number != 0;
  require(number >= static_cast<int64_t>(std::numeric_limits<T>::min()) &&
              number <= static_cast<int64_t>(std::numeric_limits<T>::max()),
          "the value {} does not fit {}", number, dtype_name(dtype_of<T>()));
  return static_cast<T>(number);
}

// Declares the shared input and arguments; `Args` derives from FillShape.
template <class Args>
void declare_fill(OpBuilder<Args>& op) {
  op.input("input", "a tensor whose shape the output takes, or, with input_as_shape, the shape itself (integers)")
      .any_type()
      .optional();
  op.arg("shape", static_cast<std::vector<int64_t> Args::*>(&FillShape::shape), {},
         "sizes of the output, if there is no input; none: a scalar");
  op.arg("extra_shape", static_cast<std::vector<int64_t> Args::*>(&FillShape::extra_shape), {},
         "sizes appended to those from the input; read only with an input");
  op.arg("input_as_shape", static_cast<bool Args::*>(&FillShape::input_as_shape), false,
         "the input's values are the shape");
  op.accepts("run_once", "operators of the public format do not read it either");
}

}  // namespace stepnet
