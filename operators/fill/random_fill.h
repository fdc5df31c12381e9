// The random fills of floats: what GaussianFill, MSRAFill, XavierFill and UniformFill declare alike, and the range of
// the weights' fills.
//
// Element i is a function of the operator's key and i alone, so threads do not change it. Threads: pure functions.
#pragma once

#include "operators/loops/fill_shape.h"

namespace stepnet {

struct RandomFillArgs : FillShape {
  int64_t dtype = 0;
  DType element_type() const;  // float or double; throws Error
};

struct GaussianArgs : RandomFillArgs {
  float mean = 0, std = 0;
};

// `Args` derives from RandomFillArgs.
template <class Args>
OpBuilder<Args>& declare_random_fill(OpBuilder<Args>& op) {
  declare_fill(op);
  return op.arg("dtype", static_cast<int64_t Args::*>(&RandomFillArgs::dtype), int64_t{1}, "FLOAT (1) or DOUBLE (13)")
      .output("output", "the random tensor")
      .any_type()
      .in_place("input", "output")
      .random()
      .stop_gradient();
}

// The range of XavierFill and the standard deviation of MSRAFill for tensors of this shape, which has elements.
double xavier_limit(const Shape& shape);
double msra_deviation(const Shape& shape);

// Normal with this mean and standard deviation; Y is float or double.
void fill_normal(uint64_t key, double mean, double std, Tensor& y);
// Uniform in [-limit, limit); Y is float or double.
void fill_centred(uint64_t key, double limit, Tensor& y);

}  // namespace stepnet
