// Elementwise operators in half types: the float32 kernel runs on casts of short pieces, one after the other; or where
// the operator says its arithmetic as instructions (stepnet/elementwise_chain.h), these do.
//
// So a call takes no memory of the allocator's beside its outputs, however long these are, and what is cast stays in
// the cache. It is what FloatCall (core/operator/cast_kernels.h) does with whole tensors, and gives the same bits.
// Threads: kernels may run on several threads, on different tensors; pieces are shared out among the team.
#pragma once

#include "stepnet/op_spec.h"

namespace stepnet {

// True if each element of the outputs follows from the same element of every input alone, at these shapes.
bool runs_in_pieces(const OpSpec& spec, const void* args, const Call& half);
// Runs a call in half types for which that is so on the CPU, whose float32 kernel `floats` is.
void run_in_pieces(const OpSpec& spec, const Kernel& floats, const void* args, Call& half);

}  // namespace stepnet
