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
  int64_t shift = 0;            // bytes by which the gates lie elsewhere in all timesteps
  bool has_lengths = false;     // rows that are over keep their states
  int64_t lengths_move = 0;     // bytes from one timestep's lengths to the next one's
  int64_t lengths_shift = 0;    // bytes by which they lie elsewhere in all timesteps
  bool lengths_change = false;  // they are where the cells are
  bool lengths_float = false;   // they are no int32
  bool checks = false;          // something looks at them in front of the loop
  bool backward = false;        // of what has no lengths
  int64_t heads = 1;            // with `units` and weights of their own each
  bool heads_first = true;      // rows of a head lie one behind the other, else those of a sample

  // In the order of the run.
  gpu::LoopRecording recording() const { return backward ? slopes() : values(); }

 private:
  // gates[t] += h[t] W' + b; c[t + 1], h[t + 1] from gates[t] and c[t]. The states are rows of slabs.
  gpu::LoopRecording values() const {
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
    const auto held = std::make_shared<const std::vector<FusedInstruction>>(std::vector<FusedInstruction>{
        {FusedCode::sigmoid, 0, 0, 0, 10},
        {FusedCode::sigmoid, 1, 0, 0, 11},
        {FusedCode::sigmoid, 2, 0, 0, 12},
        {FusedCode::tanh, 3, 0, 0, 13},
        {FusedCode::mul, 11, 4, 0, 11},
        {FusedCode::mul, 10, 13, 0, 10},
        {FusedCode::add, 11, 10, 0, 10},
        {FusedCode::tanh, 10, 0, 0, 11},
        {FusedCode::mul, 12, 11, 0, 11},
        {FusedCode::sub, 7, 8, 0, 12},
        {FusedCode::if_positive, 12, 10, 0, 10},
        {FusedCode::unless_positive, 12, 4, 0, 13},
        {FusedCode::either, 10, 13, 0, 5},
        {FusedCode::if_positive, 12, 11, 0, 11},
        {FusedCode::unless_positive, 12, 9, 0, 13},
        {FusedCode::either, 11, 13, 0, 6},
    });
    gpu::LoopRecording all;
    for (int64_t t = 0; t < steps; ++t) {
      std::byte* const gates_now = at(1, t * all_rows() * 4 * units) + shift + (t == 4 ? uneven : 0);
      gpu::QueuedProduct p{.dtype = dtype,
                           .tf32 = tf32,
                           .a = state(2, t),
                           .b = weights_change ? at(3, 0) : at(4, 0),
                           .bias = at(5, 0),
                           .c = gates_now};
      p.sizes = sizes(4 * units, units);
      p.sizes.trans_b = true;
      p.sizes.ldb = units;
      gpu::QueuedChain chain{.dtype = dtype, .code = code, .tensors = 7, .width = units, .rows = all_rows()};
      for (int64_t gate = 0; gate < 4; ++gate) chain.operands.push_back({gates_now + bytes(gate * units), 4 * units});
      for (std::byte* const there : {state(3, t), state(3, t + 1), state(2, t + 1)})
        chain.operands.push_back({there, units});
      if (has_lengths) {
        chain.code = held;
        chain.tensors = 10;
        std::byte* const lengths = lengths_change ? state(3, 1) : at(6, 0);
        chain.operands.push_back({lengths + lengths_shift + t * lengths_move, 1, 0});
        chain.operands.push_back({at(7, 0) + t * static_cast<int64_t>(sizeof(int32_t)), 0, 0});
        chain.operands.push_back({state(2, t), units});
        chain.int32_operands = lengths_float ? 1 << 8 : 3 << 7;
      }
      all.begin_step();
      all.add(p);
      gpu::QueuedWork& work = all.add_chain();
      work.what = chain;
      if (checks) work.check = gpu::QueueAlone([] {});
    }
    return all;
  }

  // dh[t] += dgates[t + 1] W; dc[t], dgates[t] from dh[t], dc[t + 1], the gates' values, c[t] and c[t + 1].
  gpu::LoopRecording slopes() const {
    const auto code = std::make_shared<const std::vector<FusedInstruction>>(std::vector<FusedInstruction>{
        {FusedCode::tanh, 5, 0, 0, 13},       {FusedCode::mul, 6, 2, 0, 14},       {FusedCode::mul, 13, 13, 0, 15},
        {FusedCode::one_minus, 15, 0, 0, 15}, {FusedCode::mul, 14, 15, 0, 14},     {FusedCode::add, 14, 7, 0, 14},
        {FusedCode::mul, 6, 13, 0, 15},       {FusedCode::mul, 15, 2, 0, 15},      {FusedCode::one_minus, 2, 0, 0, 16},
        {FusedCode::mul, 15, 16, 0, 11},      {FusedCode::mul, 14, 3, 0, 15},      {FusedCode::mul, 15, 0, 0, 15},
        {FusedCode::one_minus, 0, 0, 0, 16},  {FusedCode::mul, 15, 16, 0, 9},      {FusedCode::mul, 14, 4, 0, 15},
        {FusedCode::mul, 15, 1, 0, 15},       {FusedCode::one_minus, 1, 0, 0, 16}, {FusedCode::mul, 15, 16, 0, 10},
        {FusedCode::mul, 14, 0, 0, 15},       {FusedCode::mul, 3, 3, 0, 16},       {FusedCode::one_minus, 16, 0, 0, 16},
        {FusedCode::mul, 15, 16, 0, 12},      {FusedCode::mul, 14, 1, 0, 8},
    });
    gpu::LoopRecording all;
    for (int64_t t = steps - 1; t >= 0; --t) {
      std::byte *const gates = at(1, t * all_rows() * 4 * units), *const slopes = at(8, t * all_rows() * 4 * units);
      gpu::QueuedProduct p{
          .dtype = dtype, .a = at(8, (t + 1) * all_rows() * 4 * units), .b = at(4, 0), .c = state(9, t)};
      p.sizes = sizes(units, 4 * units);
      gpu::QueuedChain chain{.dtype = dtype, .code = code, .tensors = 13, .width = units, .rows = all_rows()};
      for (int64_t gate = 0; gate < 4; ++gate) chain.operands.push_back({gates + bytes(gate * units), 4 * units});
      for (std::byte* const there : {state(3, t), state(3, t + 1), state(9, t), state(10, t + 1), state(10, t)})
        chain.operands.push_back({there, units});
      for (int64_t gate = 0; gate < 4; ++gate) chain.operands.push_back({slopes + bytes(gate * units), 4 * units});
      all.begin_step();
      all.add(p);
      all.add_chain().what = chain;
    }
    return all;
  }

  int64_t all_rows() const { return heads * rows; }
  gpu::ProductSizes sizes(int64_t n, int64_t k) const {
    const int64_t from_row = heads_first ? 1 : heads, from_head = heads_first ? rows : 1;
    return {.m = rows,
            .n = n,
            .k = k,
            .accumulate = true,
            .lda = from_row * k,
            .ldb = n,
            .ldc = from_row * n,
            .batch = heads,
            .stride_a = from_head * k,
            .stride_b = n * k,
            .stride_c = from_head * n};
  }

  int64_t bytes(int64_t elements) const { return elements * static_cast<int64_t>(dtype_size(dtype)); }
  std::byte* at(uintptr_t tensor, int64_t elements) const {
    return reinterpret_cast<std::byte*>(tensor << 32) + bytes(elements);
  }
  std::byte* state(uintptr_t tensor, int64_t t) const { return at(tensor, t * all_rows() * units); }
};

}  // namespace stepnet::testing
