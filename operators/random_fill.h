// The random fills of one tensor by the Gaussian and by a centred uniform distribution: one kernel for each, of which
// GaussianFill, XavierFill and MSRAFill are uses.
//
// Element i is a function of the operator's key and i alone, so threads do not change it. Threads: pure functions.
#pragma once

#include "core/op_spec.h"

namespace stepnet {

// Normal with this mean and standard deviation; Y is float or double.
void fill_normal(uint64_t key, double mean, double std, Tensor& y);
// Uniform in [-limit, limit); Y is float or double.
void fill_centred(uint64_t key, double limit, Tensor& y);

}  // namespace stepnet
