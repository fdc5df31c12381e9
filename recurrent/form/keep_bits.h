// A bit for each element in place of a value, where a net's backward pass only compares it.
//
// The gradients of Relu, LeakyRelu, Clip and Dropout ask of each element on which side of a bound it is, or whether it
// was kept. If nothing else in the backward pass reads that value, as where a Dropout or a sum stands behind a Relu,
// the operator becomes one that leaves bits (operators/pointwise/bits.cc), or packs its mask, and they are kept alone:
// a 32nd of a float32. Values and gradients have the same bits.
// Threads: pure functions.
#pragma once

#include "stepnet/gradients.h"

namespace stepnet {

// Rewrites a net that is to be differentiated as `request` says. Returns how many operators have changed; the others,
// and all names, stay. Throws Error as add_gradient_operators.
int keep_bits(NetDef& net, const GradientRequest& request);

}  // namespace stepnet
