// The products that a library of the device's does, below gpu/loops/matmul.h; sizes are not 0, and strides are given.
#pragma once

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

}  // namespace stepnet::gpu
