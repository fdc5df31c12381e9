// Loops as a step net of an LSTM would queue them, on addresses that nobody reads. Threads: pure functions.
#pragma once

#include "gpu/runtime/loop_plan.h"

namespace stepnet::testing {

struct LstmLoop {
  DType dtype = DType::float32;
  int64_t steps = 6, rows = 4, units = 8;
  bool tf32 = false;
  int64_t uneven = 0;           // bytes by which the gates of timestep 4 lie elsewhere
  bool weights_change = false;  // they are where the cells are

  // gates[t] += h[t] W' + b; c[t + 1], h[t + 1] from gates[t] and c[t]. The states are rows of slabs.
  gpu::Timesteps timesteps() const {
    const auto code = std::make_shared<const std::vector<FusedInstruction>>(std::vector<FusedInstruction>{
        {FusedCode::sigmoid, 0, 0, 0, 7},
        {FusedCode::sigmoid, 1, 0, 0, 8},
        {FusedCode::sigmoid, 2, 0, 0, 9},
        {FusedCode::tanh, 3, 0, 0, 10},
        {FusedCode::mul, 8, 4, 0, 8},
        {FusedCode::mul, 7, 10, 0, 7},
        {FusedCode::add, 8, 7, 0, 5},
        {FusedCode::tanh, 5, 0, 0, 8},
        {FusedCode::mul, 9, 8, 0, 6},
    });
    gpu::Timesteps all;
    for (int64_t t = 0; t < steps; ++t) {
      std::byte* const gates_now = at(1, t * rows * 4 * units) + (t == 4 ? uneven : 0);
      gpu::QueuedProduct p{.dtype = dtype,
                           .tf32 = tf32,
                           .a = state(2, t),
                           .b = weights_change ? at(3, 0) : at(4, 0),
                           .bias = at(5, 0),
                           .c = gates_now};
      p.sizes = {.trans_b = true,
                 .m = rows,
                 .n = 4 * units,
                 .k = units,
                 .accumulate = true,
                 .lda = units,
                 .ldb = units,
                 .ldc = 4 * units};
      gpu::QueuedChain chain{.dtype = dtype, .code = code, .tensors = 7, .width = units, .rows = rows};
      for (int64_t gate = 0; gate < 4; ++gate) chain.operands.push_back({gates_now + bytes(gate * units), 4 * units});
      for (std::byte* const there : {state(3, t), state(3, t + 1), state(2, t + 1)})
        chain.operands.push_back({there, units});
      all.push_back({{p, [] {}}, {chain, [] {}}});
    }
    return all;
  }

 private:
  int64_t bytes(int64_t elements) const { return elements * static_cast<int64_t>(dtype_size(dtype)); }
  std::byte* at(uintptr_t tensor, int64_t elements) const {
    return reinterpret_cast<std::byte*>(tensor << 32) + bytes(elements);
  }
  std::byte* state(uintptr_t tensor, int64_t t) const { return at(tensor, t * rows * units); }
};

}  // namespace stepnet::testing
