// Matrix products on a GPU, by cuBLASLt.
//
//   C = op(A) op(B), plus C if `accumulate`, and plus `bias`, [n], on each row if that is not null
//
// Row-major, as in stepnet/matmul.h: op(A) is [m, k], op(B) is [k, n], C is [m, n]; A is stored [k, m] if trans_a,
// B is [n, k] if trans_b. Any size may be 0 (k = 0 gives zeros). C must not overlap A or B. `batch` products at a time,
// the matrices of each `stride` elements behind those of the one before; a stride of 0 uses one matrix for all, of A
// and B. float32 products are of float32 unless TF32 is allowed, whose mantissas have 10 bits. Those of halves are
// added up in float32; what is accumulated and the bias may each be rounded on top, as cuBLASLt does by some
// algorithms. Of cuBLASLt's epilogues the bias is used, and with a file of choices (gpu/vendor/product_choices.h)
// BGRADA and BGRADB, which write the gradient of an FC's bias: they cannot add to it, as a sequence's blocks do, there
// is an algorithm with them only for some sizes and types, and whether it is faster than a sum of its own is to be
// measured. With a file, too, RELU and RELU_BIAS, where a net has a Relu behind an FC that alone reads what that makes
// (core/net/net_merges.h); not in a step net, whose elementwise chains are one kernel already. Not GELU_BIAS: it has
// the approximation by tanh, which is not Gelu, and with the argument fast_gelu the gradient reads what goes into it.
// Nor DRELU, which reads a mask that another product has written. Errors: what cuBLASLt refuses is an Error with its
// words. Threads: may be called from several threads.
#pragma once

#include <cstdint>

#include "core/compute/backend.h"
#include "gpu/runtime/product_sizes.h"
#include "stepnet/half.h"
#include "stepnet/op_spec.h"

namespace stepnet::gpu {

// With no lda, ldb or ldc left 0.
ProductSizes with_strides(ProductSizes sizes);

void matmul(const Call& call, const ProductSizes& sizes, const float* a, const float* b, float* c,
            const float* bias = nullptr);
void matmul(const Call& call, const ProductSizes& sizes, const double* a, const double* b, double* c,
            const double* bias = nullptr);
void matmul(const Call& call, const ProductSizes& sizes, const float16* a, const float16* b, float16* c,
            const float16* bias = nullptr);
void matmul(const Call& call, const ProductSizes& sizes, const bfloat16* a, const bfloat16* b, bfloat16* c,
            const bfloat16* bias = nullptr);

// Bytes of device memory that products work on, for each stream that runs any; the allocator counts them, too.
constexpr int64_t kProductWorkspace = kDeviceProductWorkspace;

}  // namespace stepnet::gpu
