// CUDA kernel for chains of elementwise instructions. Meaning: see stepnet/elementwise_chain.h.
#include "gpu/runtime/chain_kernel.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"
#include "gpu/runtime/timesteps.h"
#include "stepnet/device.h"

namespace stepnet::gpu {
namespace {

template <class T>
__device__ T fused_value(const FusedInstruction& i, T a, T b) {
  const T value = static_cast<T>(i.value);
  switch (i.code) {
    case FusedCode::copy:
      return a;
    case FusedCode::add:
      return a + b;
    case FusedCode::sub:
      return a - b;
    case FusedCode::mul:
      return a * b;
    case FusedCode::div:
      return a / b;
    case FusedCode::maximum:
      return b > a || b != b ? b : a;
    case FusedCode::minimum:
      return b < a || b != b ? b : a;
    case FusedCode::negative:
      return -a;
    case FusedCode::abs:
      return a < T(0) ? -a : a;
    case FusedCode::one_minus:
      return T(1) - a;
    case FusedCode::reciprocal:
      return T(1) / a;
    case FusedCode::sqrt:
      return sqrt(a);
    case FusedCode::scale:
      return a * value;
    case FusedCode::add_value:
      return a + value;
    case FusedCode::at_least:
      return a < value ? value : a;
    case FusedCode::at_most:
      return a > value ? value : a;
    case FusedCode::relu:
      return a < T(0) ? T(0) : a;
    case FusedCode::if_positive:
      return a > T(0) ? b : T(0);
    case FusedCode::unless_positive:
      return a > T(0) ? T(0) : b;
    case FusedCode::either: {
      using Bits = std::conditional_t<sizeof(T) == sizeof(uint32_t), uint32_t, uint64_t>;
      return std::bit_cast<T>(std::bit_cast<Bits>(a) | std::bit_cast<Bits>(b));
    }
    case FusedCode::exp:
      return exp(a);
    case FusedCode::expm1:
      return expm1(a);
    case FusedCode::log:
      return log(a);
    case FusedCode::log1p:
      return log1p(a);
    case FusedCode::sigmoid: {
      const T e = exp(a < 0 ? a : -a);  // of a negative number, so that nothing overflows
      return (a < 0 ? e : T(1)) / (1 + e);
    }
    case FusedCode::tanh:
      return tanh(a);
    case FusedCode::erf:
      return erf(a);
    case FusedCode::erfc:
      return erfc(a);
    case FusedCode::sin:
      return sin(a);
    case FusedCode::cos:
      return cos(a);
    case FusedCode::product_sum:  // these are in no chain for a GPU
    case FusedCode::less_product:
    case FusedCode::row_sum:
    case FusedCode::row_product:
    case FusedCode::spread:
      break;
  }
  return a;
}

template <class T>
void interpret(int device, const FusedInstruction* code, int instructions, int tensors, const FusedOperands& operands,
               const ChainLaunch& launch) {
  const Divider groups = launch.groups;
  each(device, launch.count, [=] __device__(size_t at) {
    const SignedSplit split = groups.signed_split(at);
    const int64_t row = split.quotient, column = split.remainder;
    using Wide = Accumulate<T>;
    Wide values[kMostFusedValues];
    const auto place = [&](int operand) {
      const FusedOperands::Operand& t = operands.tensors[operand];
      return static_cast<T*>(t.first) + row * t.stride + column * t.step;
    };
    for (int k = 0; k < instructions; ++k) {
      const FusedInstruction& i = code[k];
      const Wide a = i.a < tensors ? Wide(*place(i.a)) : values[i.a - tensors];
      const Wide b = i.b < tensors ? Wide(*place(i.b)) : values[i.b - tensors];
      const Wide result = fused_value(i, a, b);
      if (i.to < tensors)
        *place(i.to) = result;
      else
        values[i.to - tensors] = result;
    }
  });
}

class CudaChain : public FusedChain {
 public:
  CudaChain(int device, DType dtype, const std::vector<FusedInstruction>& code, int tensors)
      : device_(device),
        dtype_(dtype),
        codes_(std::make_shared<const std::vector<FusedInstruction>>(code)),
        tensors_(tensors),
        lanes_(fused_lanes(dtype, code)) {
    require(is_floating(dtype), "a chain of {} cannot be run on a GPU", dtype_name(dtype));
    require(tensors <= kMostFusedTensors, "a chain of {} tensors has more than {}", tensors, kMostFusedTensors);
    compiled_ = compile_chain(device, fused_source(dtype, code, tensors), lanes_);
    if (compiled_) return;
    const auto bytes = static_cast<int64_t>(code.size() * sizeof(FusedInstruction));
    const MemoryScope scope(MemoryCategory::workspace);
    code_ = Tensor::empty(DType::uint8, {bytes}, Device{DeviceKind::cuda, static_cast<int8_t>(device)});
    allocator(code_.device()).copy_from_host(code_.raw(), code.data(), static_cast<size_t>(bytes));
  }

  void run(std::span<const FusedOperand<void>> tensors, int64_t width, int64_t rows) const override {
    if (width * rows == 0) return;
    if (recording())
      return record(dtype_, codes_, tensors_, tensors, width, rows, QueueAlone([this](const QueuedWork& work) {
                      const auto& chain = std::get<QueuedChain>(work.what);
                      run(chain.operands, chain.width, chain.rows);
                    }));
    FusedOperands operands{};
    for (size_t t = 0; t < tensors.size(); ++t) {
      require(tensors[t].each == 1 && tensors[t].cycle == 0, "a chain on a GPU has no operands with fewer rows");
      operands.tensors[t] = {tensors[t].first, tensors[t].stride, tensors[t].step};
    }
    const ChainLaunch launch =
        chain_launch(operands, tensors_, dtype_size(dtype_), compiled_ ? lanes_ : 1, width, rows);
    if (compiled_) {
      const DeviceScope scope(device_);
      return compiled_->launch(current_stream(device_), operands, launch);
    }
    const auto* code = reinterpret_cast<const FusedInstruction*>(code_.raw());
    const auto run_as = [&](auto zero) {
      interpret<decltype(zero)>(device_, code, static_cast<int>(codes_->size()), tensors_, operands, launch);
    };
    if (with_half(dtype_, run_as)) return;
    dtype_ == DType::float32 ? run_as(float{}) : run_as(double{});
  }

 private:
  int device_;
  DType dtype_;
  FusedCodes codes_;
  int tensors_;
  int lanes_;
  std::unique_ptr<CompiledChain> compiled_;
  Tensor code_;  // on the device, if it is read there
};

}  // namespace

ChainLaunch chain_launch(const FusedOperands& operands, int tensors, size_t bytes, int most, int64_t width,
                         int64_t rows) {
  const auto all = [&](const auto& holds) { return std::all_of(operands.tensors, operands.tensors + tensors, holds); };
  using Operand = FusedOperands::Operand;
  if (all([&](const Operand& t) { return t.stride == width * t.step; })) width *= std::exchange(rows, 1);
  const bool wide =
      width % most == 0 && width * rows / most >= static_cast<int64_t>(kThreadsThatFill) && all([&](const Operand& t) {
        return t.step == 0 || (t.step == 1 && (rows == 1 || t.stride % most == 0) &&
                               reinterpret_cast<uintptr_t>(t.first) % (static_cast<size_t>(most) * bytes) == 0);
      });
  const int lanes = wide ? most : 1;
  return {lanes, Divider(static_cast<size_t>(width / lanes)), static_cast<size_t>(width / lanes * rows)};
}

std::shared_ptr<const FusedChain> make_fused_chain(int device, DType dtype, const std::vector<FusedInstruction>& code,
                                                   int tensors) {
  return std::make_shared<CudaChain>(device, dtype, code, tensors);
}

}  // namespace stepnet::gpu
