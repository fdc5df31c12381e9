// A copy, and a product for each type.
#include "tools/bench/gpu/limits.h"

#include <algorithm>

#include "core/gradcheck/examples.h"
#include "gpu/loops/matmul.h"
#include "stepnet/half.h"
#include "stepnet/run_context.h"
#include "tools/bench/gpu/gpu_times.h"

namespace stepnet::bench {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};
constexpr int kRounds = 10;
constexpr double kSeconds = 1;

class Copy : public Contender {
 public:
  explicit Copy(int64_t bytes)
      : Contender("copy"),
        from_(Tensor::zeros(DType::uint8, {bytes}, kGpu)),
        to_(Tensor::zeros(DType::uint8, {bytes}, kGpu)) {}
  void run() override { to_.copy_from(from_); }

 private:
  Tensor from_, to_;
};

// Of numbers that differ: products of zeros take less power, so that clocks are higher.
Tensor numbers(int64_t n, DType dtype) {
  Tensor t = Tensor::empty(DType::float32, {n, n});
  uint32_t drawn = 1;
  for (float& v : t.span<float>()) {
    drawn = drawn * 1664525 + 1013904223;
    v = static_cast<float>(drawn >> 8) * 0x1p-24F - 0.5F;
  }
  return on_device(in_type(dtype, t), kGpu);
}

template <class T>
class SquareProduct : public Contender {
 public:
  SquareProduct(int64_t n, DType dtype)
      : Contender("product"), n_(n), a_(numbers(n, dtype)), b_(numbers(n, dtype)), c_(numbers(n, dtype)) {}
  void run() override {
    RunContext context;
    gpu::matmul(Call({}, {}, context), {.trans_b = true, .m = n_, .n = n_, .k = n_}, at(a_), at(b_),
                reinterpret_cast<T*>(c_.raw()));
  }

 private:
  static const T* at(const Tensor& t) { return reinterpret_cast<const T*>(t.raw()); }
  int64_t n_;
  Tensor a_, b_, c_;
};

double seconds_of(Contender& contender) {
  constexpr double kLeastMs = 1e-6;  // an imitated device may take none
  return std::max(time_on_gpu(contender, kRounds, kSeconds).least, kLeastMs) / 1e3;
}

template <class T>
double product_rate(int64_t n, DType dtype) {
  SquareProduct<T> product(n, dtype);
  const auto size = static_cast<double>(n);
  return 2 * size * size * size / seconds_of(product);
}

}  // namespace

DeviceLimits::Bound DeviceLimits::bound(const NetWork& work, const std::string& type) const {
  const double arithmetic = work.flops / flops_per_second.at(type), memory = work.bytes / bytes_per_second;
  return {1e3 * std::max(arithmetic, memory), arithmetic > memory ? "arithmetic" : "memory"};
}

DeviceLimits measure_limits(const std::vector<std::string>& types, bool small) {
  const int64_t bytes = small ? 4096 : int64_t{1} << 30, n = small ? 16 : 8192;
  DeviceLimits limits;
  Copy copy(bytes);
  limits.bytes_per_second = 2 * static_cast<double>(bytes) / seconds_of(copy);
  for (const std::string& type : types) {
    double& rate = limits.flops_per_second[type];
    const DType dtype = dtype_of_name(type);
    if (!with_half(dtype, [&](auto zero) { rate = product_rate<decltype(zero)>(n, dtype); }))
      rate = product_rate<float>(n, dtype);
  }
  return limits;
}

}  // namespace stepnet::bench
