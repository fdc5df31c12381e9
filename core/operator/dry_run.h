// What operators do in a dry run (core/tensor/dry_device.h) in place of their kernels.
//
// Threads: as the scope's.
#pragma once

#include "stepnet/bound_op.h"

namespace stepnet {

// In a dry run, the types of outputs that depend on data become their bounds; throws Error if one has none. `out`: null
// where an output is not wanted.
void bound_outputs(const BoundOp& op, std::span<Tensor* const> out, std::span<TensorType> types);
TensorType bound_of(const BoundOp& op, int output);

// Whether an output's whole numbers, which follow from shapes, are to be written. In a dry run they are then known, and
// are not to be written where there are no bytes, as in rows of a large tensor.
bool know_output(const Call& call, int output);

// Calls the kernel; in a dry run it does what is known without data instead: takes what the kernel takes beside its
// outputs, and computes whole numbers that follow from shapes. Outputs have their types.
void call_or_dry(const BoundOp& op, const Kernel& kernel, Call& call);

// Floating-point operations of one run, as the registration says; none if it says nothing. Tensors whose types are not
// known count as none.
//
// One FLOP is an addition, subtraction, multiplication or division of two elements, whatever their type, or a function
// of one or two such as exp, sqrt, tanh or pow. So a multiplication with an addition to a sum is two. Comparing,
// choosing, changing a sign, converting, drawing random numbers, moving and computing indices is none; neither is what
// follows from arguments alone. A sum begins at 0. Where the formula branches by data, the longer branch counts for all
// elements, and rows past a sequence's end count like the others.
double op_flops(const BoundOp& op, std::span<const TensorType> in, std::span<const TensorType> out);

// True if the operator, which works on blobs, is done: it has no outputs, or they were made by their bounds. False if
// its blob kernel is to run, which then moves tensors and looks at no element. Throws Error if it needs data.
bool run_blobs_dry(const BoundOp& op, std::span<Blob* const> out);

// Of what the blobs hold; a null blob is an absent tensor, and one that holds no tensor has no known type.
std::vector<TensorType> blob_types(std::span<Blob* const> blobs);

// Behind such an operator in a dry run: what its registration says. Nets inside it count themselves.
void count_blob_flops(const BoundOp& op, std::span<Blob* const> in, std::span<Blob* const> out);

}  // namespace stepnet
