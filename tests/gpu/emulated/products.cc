// Matrix products of the imitated device: naive loops, which add halves up in float.
#include "gpu/loops/products.h"

#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/stream.h"

namespace stepnet::gpu {
namespace {

template <class T>
bool run(int device, const ProductSizes& s, const T* a, const T* b, T* c, const T* bias) {
  emulated::enqueue(current_stream(device), [=] {
    for (int64_t at = 0; at < s.batch; ++at)
      for (int64_t i = 0; i < s.m; ++i)
        for (int64_t j = 0; j < s.n; ++j) {
          const T *left = a + at * s.stride_a, *right = b + at * s.stride_b;
          T& to = c[at * s.stride_c + i * s.ldc + j];
          Accumulate<T> sum = 0;
          for (int64_t x = 0; x < s.k; ++x)
            sum += left[s.trans_a ? x * s.lda + i : i * s.lda + x] * right[s.trans_b ? j * s.ldb + x : x * s.ldb + j];
          to = sum + (s.accumulate ? to : T(0)) + (bias ? bias[j] : T(0));
        }
  });
  return bias != nullptr;
}

}  // namespace

bool run_vendor_product(int device, const ProductSizes& s, const float* a, const float* b, float* c,
                        const float* bias) {
  return run(device, s, a, b, c, bias);
}
// As where the real one has no algorithm that adds a bias.
bool run_vendor_product(int device, const ProductSizes& s, const double* a, const double* b, double* c, const double*) {
  run<double>(device, s, a, b, c, nullptr);
  return false;
}
bool run_vendor_product(int device, const ProductSizes& s, const float16* a, const float16* b, float16* c,
                        const float16* bias) {
  return run(device, s, a, b, c, bias);
}
bool run_vendor_product(int device, const ProductSizes& s, const bfloat16* a, const bfloat16* b, bfloat16* c,
                        const bfloat16* bias) {
  return run(device, s, a, b, c, bias);
}

// As the real one without a file of choices.
bool run_vendor_product_with_sums(int, const ProductSizes&, const float*, const float*, float*, SummedOperand, float*,
                                  const std::function<void(float*, float*)>&) {
  return false;
}
bool run_vendor_product_with_sums(int, const ProductSizes&, const double*, const double*, double*, SummedOperand,
                                  double*, const std::function<void(double*, double*)>&) {
  return false;
}
bool run_vendor_product_with_sums(int, const ProductSizes&, const float16*, const float16*, float16*, SummedOperand,
                                  float16*, const std::function<void(float16*, float16*)>&) {
  return false;
}
bool run_vendor_product_with_sums(int, const ProductSizes&, const bfloat16*, const bfloat16*, bfloat16*, SummedOperand,
                                  bfloat16*, const std::function<void(bfloat16*, bfloat16*)>&) {
  return false;
}

bool run_vendor_product_with_relu(int, const ProductSizes&, const float*, const float*, float*, const float*,
                                  const std::function<void(float*)>&) {
  return false;
}
bool run_vendor_product_with_relu(int, const ProductSizes&, const double*, const double*, double*, const double*,
                                  const std::function<void(double*)>&) {
  return false;
}
bool run_vendor_product_with_relu(int, const ProductSizes&, const float16*, const float16*, float16*, const float16*,
                                  const std::function<void(float16*)>&) {
  return false;
}
bool run_vendor_product_with_relu(int, const ProductSizes&, const bfloat16*, const bfloat16*, bfloat16*,
                                  const bfloat16*, const std::function<void(bfloat16*)>&) {
  return false;
}

}  // namespace stepnet::gpu
