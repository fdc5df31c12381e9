// The arguments of GivenTensorFill and its typed forms, and its values; see given_tensor_fill.cc.
#pragma once

#include "operators/loops/fill_shape.h"

namespace stepnet {

struct GivenArgs : FillShape {
  Argument values;
  int64_t dtype = 0;  // of GivenTensorFill alone
};

// y, on the CPU, gets the values, as many as it has elements. Throws Error on an element type that cannot be given.
void fill_given(const GivenArgs& args, Tensor& y);

}  // namespace stepnet
