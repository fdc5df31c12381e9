// The imitated device runs a plan of timesteps by itself, block by block between the points where blocks wait for each
// other, in an order of blocks that changes from one such point to the next: a plan in which one block needs what
// another one has not computed yet gives wrong values.
#include "gpu/persistent/recorder.h"
#include "gpu/runtime/accumulate.h"
#include "stepnet/half.h"
#include "tests/core/compute/fused_reference.h"

namespace stepnet::gpu {
namespace {

template <class T>
class Run {
 public:
  explicit Run(const LoopPlan& plan) : plan_(plan) {}

  void all() {
    for (t_ = 0; t_ < plan_.steps; ++t_)
      for (size_t i = 0; i < plan_.ops.size(); ++i) {
        if (plan_.ops[i].waits) flush();
        pending_.push_back({t_, &plan_.ops[i]});
      }
    flush();
  }

 private:
  // Each block does all of it, one after the other.
  void flush() {
    const int64_t blocks = plan_.blocks, first = turn_++ % blocks;
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t block = turn_ % 2 == 0 ? (first + b) % blocks : (first + blocks - b) % blocks;
      for (const auto& [t, op] : pending_) {
        t_now_ = t;
        if (const auto* p = std::get_if<LoopProduct>(&op->what))
          product(*p, block);
        else
          chain(std::get<LoopChain>(op->what), block);
      }
    }
    pending_.clear();
  }

  T* place(int number) const {
    return reinterpret_cast<T*>(const_cast<std::byte*>(plan_.places[static_cast<size_t>(number)].at(t_now_)));
  }
  const T* constant(int number) const { return static_cast<const T*>(plan_.constants[static_cast<size_t>(number)]); }

  template <class Fn>
  void each_column(int groups, int64_t block, Fn fn) const {
    for (int64_t u = block * plan_.block_units; u < std::min(plan_.units, (block + 1) * plan_.block_units); ++u)
      for (int64_t g = 0; g < groups; ++g) fn(g * plan_.units + u);
  }

  void product(const LoopProduct& p, int64_t block) const {
    const ProductSizes& s = p.sizes;
    const T *a = place(p.a), *w = constant(p.weights), *bias = p.bias < 0 ? nullptr : constant(p.bias);
    T* c = place(p.c);
    for (int64_t row = 0; row < plan_.rows; ++row)
      each_column(p.groups, block, [&](int64_t column) {
        Accumulate<T> sum = 0;
        for (int64_t k = 0; k < s.k; ++k)
          sum += a[row * s.lda + k] * (s.trans_b ? w[column * s.ldb + k] : w[k * s.ldb + column]);
        T& to = c[row * s.ldc + column];
        to = sum + (s.accumulate ? to : T(0)) + (bias ? bias[column] : T(0));
      });
  }

  void chain(const LoopChain& chain, int64_t block) const {
    for (int64_t row = 0; row < plan_.rows; ++row)
      each_column(chain.groups, block, [&](int64_t column) { element(chain, row, column); });
  }

  void element(const LoopChain& chain, int64_t row, int64_t column) const {
    using Wide = Accumulate<T>;
    Wide values[kMostFusedTensors + kMostFusedValues] = {};
    std::vector<bool> there(kMostFusedTensors + kMostFusedValues);
    const auto at = [&](int k) -> T& {
      const LoopOperand& o = chain.operands[static_cast<size_t>(k)];
      return place(o.place)[row * o.stride + column * o.step];
    };
    const auto read = [&](int k) {
      if (!there[static_cast<size_t>(k)]) values[k] = at(k);
      there[static_cast<size_t>(k)] = true;
      return values[k];
    };
    for (const FusedInstruction& i : *chain.code) {
      const Wide a = read(i.a), b = fused_code(i.code).reads_b ? read(i.b) : Wide(0);
      values[i.to] = testing::fused_reference(i, a, b);
      there[static_cast<size_t>(i.to)] = true;
      if (i.to < chain.tensors) at(i.to) = values[i.to];
    }
  }

  const LoopPlan& plan_;
  std::vector<std::pair<int64_t, const LoopOp*>> pending_;
  int64_t t_ = 0, t_now_ = 0, turn_ = 0;
};

class ImitatedLoop : public CompiledLoop {
 public:
  void launch(cudaStream_t stream, const LoopPlan& plan, void*) const override {
    emulated::enqueue(stream, [plan] {
      if (with_half(plan.dtype, [&](auto zero) { Run<decltype(zero)>(plan).all(); })) return;
      Run<float>(plan).all();
    });
  }
};

}  // namespace

// Few blocks, so that each has some units and the last one fewer.
LoopLimits loop_limits(int) { return {.blocks = 5, .shared_bytes = size_t{1} << 20, .tensor_cores = true}; }

std::shared_ptr<const CompiledLoop> compile_loop(int, const LoopPlan& plan) {
  loop_source(plan);  // which must be able to say all of it
  return std::make_shared<ImitatedLoop>();
}

}  // namespace stepnet::gpu
