// Mixed precision: a forward net of float32 blobs becomes one that computes in a half type.
//
// Float32 blobs from outside (parameters, sequences, carried states) are cast once, where they are first needed, and
// stay float32 outside, so that the gradients of parameters arrive in float32, too: the derivative of a cast is a cast.
//
//   Precision::half (products, recurrent networks)           always in the half type
//   Precision::float32 (losses, norms, exp, log, sums, ...)  always in float32
//   operators with nets or other objects                     in float32, as do those that write to a blob from outside
//   all others                                               in the half type, unless an input was computed in float32
//
// A value in the half type has the name of the float32 one with the type behind it. Where someone needs it in float32,
// among them the net's external outputs and `outside`, it is cast back to its own name. Networks in short form run
// whole in the half type, step net included; those in full form stay as they are, in float32.
// Threads: pure functions.
#pragma once

#include <map>
#include <set>
#include <string>

#include "stepnet/half.h"
#include "stepnet/op_spec.h"

namespace stepnet {

struct MixedPrecision {
  DType type = DType::bfloat16;
  std::map<std::string, TensorType> known = {};  // blobs that exist before; those of float32 are cast
  std::set<std::string> outside = {};            // blobs that are read afterwards, beside external outputs
};

// Throws Error if the type is no half type.
NetDef mixed_precision(const NetDef& net, const MixedPrecision& how);

}  // namespace stepnet
