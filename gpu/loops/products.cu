// The parts of a matrix product that are not the library's: no columns to sum over, and a bias that it cannot add.
#include "gpu/loops/products.h"

#include "gpu/runtime/launch.h"
#include "gpu/runtime/timesteps.h"

namespace stepnet::gpu {
namespace {

// C = 0 and plus bias, or with `keep` C plus bias.
template <class T>
void add_bias(int device, const ProductSizes& s, bool keep, T* c, const T* bias) {
  const size_t n = static_cast<size_t>(s.n), rows = static_cast<size_t>(s.m);
  const int64_t ldc = s.ldc, stride = s.stride_c;
  const Divider by_columns(n), by_rows(rows);
  each(device, rows * n * static_cast<size_t>(s.batch), [=] __device__(size_t i) {
    const auto [line, column] = by_columns.split(i);
    const auto [matrix, row] = by_rows.split(line);
    T& to = c[static_cast<int64_t>(matrix) * stride + static_cast<int64_t>(row) * ldc + static_cast<int64_t>(column)];
    to = (keep ? to : T(0)) + (bias ? bias[column] : T(0));
  });
}

template <class T>
void run_product(int device, const ProductSizes& s, const T* a, const T* b, T* c, const T* bias) {
  if (!run_vendor_product(device, s, a, b, c, bias) && bias) add_bias(device, s, true, c, bias);
}

template <class T>
void product(const Call& call, const ProductSizes& given, const T* a, const T* b, T* c, const T* bias) {
  const ProductSizes s = with_strides(given);
  if (s.m == 0 || s.n == 0 || s.batch == 0) return;
  const int device = device_of(call);
  if (s.k == 0) return add_bias(device, s, s.accumulate, c, bias);
  if (recording())
    return record(QueuedProduct{dtype_of<T>(), std::is_same_v<T, float> && tf32_allowed(), s, a, b, bias, c},
                  QueueAlone([device, s, a, b, c, bias] { run_product(device, s, a, b, c, bias); }));
  run_product(device, s, a, b, c, bias);
}

}  // namespace

void matmul(const Call& call, const ProductSizes& s, const float* a, const float* b, float* c, const float* bias) {
  product(call, s, a, b, c, bias);
}
void matmul(const Call& call, const ProductSizes& s, const double* a, const double* b, double* c, const double* bias) {
  product(call, s, a, b, c, bias);
}
void matmul(const Call& call, const ProductSizes& s, const float16* a, const float16* b, float16* c,
            const float16* bias) {
  product(call, s, a, b, c, bias);
}
void matmul(const Call& call, const ProductSizes& s, const bfloat16* a, const bfloat16* b, bfloat16* c,
            const bfloat16* bias) {
  product(call, s, a, b, c, bias);
}

}  // namespace stepnet::gpu
