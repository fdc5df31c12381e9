// The products that a library of the device's does, below gpu/loops/matmul.h; sizes are not 0, and strides are given.
#pragma once

#include <functional>

#include "gpu/loops/matmul.h"

namespace stepnet::gpu {

// Returns whether the bias has been added; if not, the caller does.
bool run_vendor_product(int device, const ProductSizes& sizes, const float* a, const float* b, float* c,
                        const float* bias);
bool run_vendor_product(int device, const ProductSizes& sizes, const double* a, const double* b, double* c,
                        const double* bias);
bool run_vendor_product(int device, const ProductSizes& sizes, const float16* a, const float16* b, float16* c,
                        const float16* bias);
bool run_vendor_product(int device, const ProductSizes& sizes, const bfloat16* a, const bfloat16* b, bfloat16* c,
                        const bfloat16* bias);

// The same product, and in it the sums over k of each column of an operand as it is stored: A, [k, m], or B, [k, n].
// Returns whether both are done; if not, nothing is, and the caller does `separately(c, sums)`, which queues the two
// one after the other, for comparison also to other memory than C.
enum class SummedOperand { a, b };
bool run_vendor_product_with_sums(int device, const ProductSizes& sizes, const float* a, const float* b, float* c,
                                  SummedOperand summed, float* sums,
                                  const std::function<void(float* c, float* sums)>& separately);
bool run_vendor_product_with_sums(int device, const ProductSizes& sizes, const double* a, const double* b, double* c,
                                  SummedOperand summed, double* sums,
                                  const std::function<void(double* c, double* sums)>& separately);
bool run_vendor_product_with_sums(int device, const ProductSizes& sizes, const float16* a, const float16* b, float16* c,
                                  SummedOperand summed, float16* sums,
                                  const std::function<void(float16* c, float16* sums)>& separately);
bool run_vendor_product_with_sums(int device, const ProductSizes& sizes, const bfloat16* a, const bfloat16* b,
                                  bfloat16* c, SummedOperand summed, bfloat16* sums,
                                  const std::function<void(bfloat16* c, bfloat16* sums)>& separately);

// The same product with a bias, or none if that is null, and then Relu. Returns whether both are done; if not, nothing
// is, and the caller does what `separately(c)` does, one after the other, for comparison also to other memory than C.
bool run_vendor_product_with_relu(int device, const ProductSizes& sizes, const float* a, const float* b, float* c,
                                  const float* bias, const std::function<void(float* c)>& separately);
bool run_vendor_product_with_relu(int device, const ProductSizes& sizes, const double* a, const double* b, double* c,
                                  const double* bias, const std::function<void(double* c)>& separately);
bool run_vendor_product_with_relu(int device, const ProductSizes& sizes, const float16* a, const float16* b, float16* c,
                                  const float16* bias, const std::function<void(float16* c)>& separately);
bool run_vendor_product_with_relu(int device, const ProductSizes& sizes, const bfloat16* a, const bfloat16* b,
                                  bfloat16* c, const bfloat16* bias,
                                  const std::function<void(bfloat16* c)>& separately);

}  // namespace stepnet::gpu
