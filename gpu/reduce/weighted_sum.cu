// CUDA kernels for WeightedSum and its gradients. Meaning and derivative: see operators/reduce/weighted_sum.cc.
#include "gpu/loops/scalar.h"
#include "gpu/loops/total.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_weighted_sum {
namespace {

// As many terms as one launch adds.
constexpr int kMost = 32;
template <class T>
struct Terms {
  using Wide = gpu::Accumulate<T>;
  const T* x[kMost] = {};
  const float* weight[kMost] = {};        // on the device: in one of these,
  const double* wide_weight[kMost] = {};  // or these,
  const T* like_weight[kMost] = {};       // of the tensors' own type,
  Wide known_weight[kMost] = {};          // of one on the CPU
  int count = 0;

  void add(const Tensor& tensor, const Tensor& factor) {
    x[count] = gpu::in_span<T>(tensor).data;
    if (factor.device().kind == DeviceKind::cpu) {
      known_weight[count] = static_cast<Wide>(factor.item<double>());
    } else if (is_half(factor.dtype())) {
      like_weight[count] = gpu::in_span<T>(factor).data;
    } else if (factor.dtype() == DType::float64) {
      wide_weight[count] = gpu::in_span<double>(factor).data;
    } else {
      weight[count] = gpu::in_span<float>(factor).data;
    }
    ++count;
  }
  __host__ __device__ Wide term(int k, size_t i) const {
    const Wide w = weight[k]        ? static_cast<Wide>(*weight[k])
                   : wide_weight[k] ? static_cast<Wide>(*wide_weight[k])
                   : like_weight[k] ? static_cast<Wide>(*like_weight[k])
                                    : known_weight[k];
    return w * x[k][i];
  }
};

// y = the terms, or is added to. Each element is read before it is written, as y may be the first tensor.
template <class T>
void add(const Call& call, const Terms<T>& terms, bool accumulate, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) {
    gpu::Accumulate<T> sum = accumulate ? y[i] + terms.term(0, i) : terms.term(0, i);
    for (int k = 1; k < terms.count; ++k) sum += terms.term(k, i);
    y[i] = sum;
  });
}

template <class T>
void weighted_sum(Call& call) {
  const auto y = gpu::out_span<T>(call.out(0));
  const int count = call.inputs() / 2;
  for (int at = 0; at < count; at += kMost) {
    Terms<T> terms;
    for (int k = at; k < std::min(count, at + kMost); ++k) terms.add(call.in(2 * k), call.in(2 * k + 1));
    add(call, terms, at > 0, y);
  }
}

void weighted_sum_any(Call& call) {
  const DType type = call.in(0).dtype();
  if (type == DType::float32) return weighted_sum<float>(call);
  if (with_half(type, [&](auto zero) { weighted_sum<decltype(zero)>(call); })) return;
  require(type == DType::float64, "tensors must be float or double, but are {}", dtype_name(type));
  weighted_sum<double>(call);
}

template <class T>
void scale(const Call& call, gpu::In<T> dy, const Tensor& w, gpu::Out<T> dx) {
  const gpu::Scalar weight(w);
  gpu::each(call, dx.size,
            [=] __device__(size_t i) { dx[i] = static_cast<gpu::Accumulate<T>>(weight.value()) * dy[i]; });
}

// dw = the sum of dY X, added in double.
template <class T, class W>
void sum_products(const Call& call, gpu::In<T> dy, gpu::In<T> x, gpu::Out<W> dw) {
  gpu::total(
      call, dy.size, 0.0, [=] __device__(size_t i) { return static_cast<double>(dy[i]) * static_cast<double>(x[i]); },
      std::plus<double>(), [=] __device__(double sum) { dw[0] = static_cast<W>(sum); });
}

template <class T>
void weight_gradient(Call& call, gpu::In<T> dy, gpu::In<T> x, const Tensor&, Tensor& dw) {
  if (dw.dtype() == DType::float64) return sum_products(call, dy, x, gpu::out_span<double>(dw));
  if (dw.dtype() == DType::float32) return sum_products(call, dy, x, gpu::out_span<float>(dw));
  sum_products(call, dy, x, gpu::out_span<T>(dw));
}

template <class T>
void gradient(Call& call) {
  const int terms = (call.inputs() - 1) / 2;
  const auto dy = gpu::in_span<T>(call.in(0));
  for (int k = 0; k < terms; ++k) {
    const Tensor& weight = call.in(2 * k + 2);
    if (call.wants(k)) scale(call, dy, weight, gpu::out_span<T>(call.out(k)));
    if (call.wants(terms + k))
      weight_gradient(call, dy, gpu::in_span<T>(call.in(2 * k + 1)), weight, call.out(terms + k));
  }
}

void gradient_any(Call& call) {
  const DType type = call.in(0).dtype();
  if (type == DType::float32) return gradient<float>(call);
  if (with_half(type, [&](auto zero) { gradient<decltype(zero)>(call); })) return;
  require(type == DType::float64, "dY must be float or double, but is {}", dtype_name(type));
  gradient<double>(call);
}

REGISTER(weighted_sum_cuda) { return cuda("WeightedSum", weighted_sum_any); }
REGISTER(weighted_sum_gradient_cuda) { return cuda("WeightedSumGradient", gradient_any); }
REGISTER(weighted_sum_weight_gradient_cuda) {
  return cuda("WeightedSumWeightGradient", weight_gradient<float>, weight_gradient<double>, weight_gradient<float16>,
              weight_gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_weighted_sum
