// What operators do in a dry run (core/dry.h) in place of their kernels.
//
// Threads: as the scope's.
#pragma once

#include "core/bound_op.h"

namespace stepnet {

// In a dry run, the types of outputs that depend on data become their bounds; throws Error if one has none. `out`: null
// where an output is not wanted.
void bound_outputs(const BoundOp& op, std::span<Tensor* const> out, std::span<TensorType> types);
TensorType bound_of(const BoundOp& op, int output);

// Calls the kernel; in a dry run it does what is known without data instead: takes what the kernel takes beside its
// outputs, and computes whole numbers that follow from shapes. Outputs have their types.
void call_or_dry(const BoundOp& op, const Kernel& kernel, Call& call);

// Floating-point operations of one run, as the registration says: one per output element if it says nothing. Types that
// are not known count as none.
double op_flops(const BoundOp& op, std::span<const TensorType> in, std::span<const TensorType> out);

// True if the operator, which works on blobs, is done: it has no outputs, or they were made by their bounds. False if
// its blob kernel is to run, which then moves tensors and looks at no element. Throws Error if it needs data.
bool run_blobs_dry(const BoundOp& op, std::span<Blob* const> out);

}  // namespace stepnet
