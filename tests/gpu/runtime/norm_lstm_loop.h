// Loops as the step net of an LSTM with layer normalisation would queue them
// (tools/examples/cells/lstm_layer_norm.pbtxt), on addresses that nobody reads. Threads: pure functions.
#pragma once

#include "gpu/runtime/loop_plan.h"

namespace stepnet::testing {

struct NormLstmLoop {
  DType dtype = DType::float32;
  int64_t steps = 6, rows = 4, units = 8;
  bool backward = false;
  double epsilon = 1e-5;
  bool scaled = true;
  int64_t shift = 0;  // bytes by which the sums of the gates lie elsewhere in all timesteps

  // In the order of the run.
  gpu::LoopRecording recording() const {
    gpu::LoopRecording all;
    for (int64_t i = 0; i < steps; ++i) {
      all.begin_step();
      backward ? add_slopes(all, steps - 1 - i) : add_values(all, i);
    }
    return all;
  }

 private:
  using RowTensor = gpu::RowTensor;
  using Codes = std::vector<FusedInstruction>;
  // Tensors by number: slabs have a row for each timestep, and others one for all.
  enum Tensor : uintptr_t {
    w = 1,
    b,
    s_h,
    d_h,
    s_c,
    d_c,
    sums_h,
    mean_h,
    std_h,
    norm_h,
    norm_x,
    gates,
    c,
    mean_c,
    std_c,
    norm_c,
    tanh_c,
    h,
    dh,
    dnorm_c,
    through_c,
    dc,
    dgates,
    dsums_h,
    o_slope
  };

  void add_values(gpu::LoopRecording& all, int64_t t) const {
    all.add({.dtype = dtype,
             .sizes =
                 {.trans_b = true, .m = rows, .n = 4 * units, .k = units, .lda = units, .ldb = units, .ldc = 4 * units},
             .a = of(h, t, units),
             .b = at(w),
             .bias = at(b),
             .c = of(sums_h, t, 4 * units) + shift});
    add_norm(all, 4 * units, of(sums_h, t, 4 * units) + shift, at(norm_h), of(mean_h, t, 1), of(std_h, t, 1), s_h, d_h);
    add_chain(all, {{FusedCode::add, 0, 1, 0, 2}}, 4 * units, {{at(norm_h)}, {of(norm_x, t, 4 * units)}, {at(dgates)}});
    add_chain(all,
              {{FusedCode::sigmoid, 0, 0, 0, 0},
               {FusedCode::sigmoid, 1, 0, 0, 1},
               {FusedCode::sigmoid, 2, 0, 0, 2},
               {FusedCode::tanh, 3, 0, 0, 3},
               {FusedCode::mul, 1, 4, 0, 6},
               {FusedCode::mul, 0, 3, 0, 7},
               {FusedCode::add, 6, 7, 0, 5}},
              units, gates_and({of(c, t, units), of(c, t + 1, units)}));
    add_norm(all, units, of(c, t + 1, units), at(norm_c), of(mean_c, t, 1), of(std_c, t, 1), s_c, d_c);
    add_chain(all, {{FusedCode::tanh, 0, 0, 0, 2}, {FusedCode::mul, 2, 1, 0, 3}}, units,
              {{at(norm_c), units},
               {at(dgates, 2 * units), 4 * units},
               {of(tanh_c, t, units), units},
               {of(h, t + 1, units), units}});
  }

  void add_slopes(gpu::LoopRecording& all, int64_t t) const {
    add_chain(all,
              {{FusedCode::mul, 1, 1, 0, 5},
               {FusedCode::one_minus, 5, 0, 0, 5},
               {FusedCode::mul, 0, 2, 0, 4},
               {FusedCode::mul, 4, 5, 0, 3}},
              units,
              {{of(dh, t, units), units},
               {of(tanh_c, t, units), units},
               {of(o_slope, t, units), units},
               {of(dnorm_c, t, units), units},
               {at(through_c, 64 * units * rows), units}});
    add_norm_slope(all, units, of(c, t + 1, units), of(dnorm_c, t, units), of(mean_c, t, 1), of(std_c, t, 1), s_c,
                   at(through_c));
    Codes code = {{FusedCode::add, 0, 1, 0, 0}};
    std::vector<FusedOperand<void>> operands = {{of(dc, t + 1, units), units}, {at(through_c), units}};
    for (int gate = 0; gate < 4; ++gate) {
      code.push_back({FusedCode::mul, 0, 2 + gate, 0, 6 + gate});
      operands.push_back({of(gates, t, 4 * units, gate * units), 4 * units});
    }
    for (int gate = 0; gate < 4; ++gate) operands.push_back({of(dgates, t, 4 * units, gate * units), 4 * units});
    code.push_back({FusedCode::mul, 0, 3, 0, 10});
    operands.push_back({of(dc, t, units), units});
    code[0].to = 11;
    for (size_t i = 1; i < code.size(); ++i) code[i].a = 11;
    add_chain(all, code, units, operands);
    add_norm_slope(all, 4 * units, of(sums_h, t, 4 * units) + shift, of(dgates, t, 4 * units), of(mean_h, t, 1),
                   of(std_h, t, 1), s_h, of(dsums_h, t, 4 * units));
    all.add(
        {.dtype = dtype,
         .sizes =
             {.m = rows, .n = units, .k = 4 * units, .accumulate = true, .lda = 4 * units, .ldb = units, .ldc = units},
         .a = of(dsums_h, t, 4 * units),
         .b = at(w),
         .c = of(dh, t - 1, units)});
  }

  void add_norm(gpu::LoopRecording& all, int64_t size, void* x, void* y, void* mean, void* deviation, Tensor scale,
                Tensor bias) const {
    gpu::QueuedRows r{.kind = gpu::RowKind::layer_norm, .dtype = dtype, .rows = rows, .size = size, .number = epsilon};
    if (scaled) r.scale = at(scale), r.bias = at(bias);
    r.tensors[RowTensor::x] = x;
    r.tensors[RowTensor::y] = y;
    r.tensors[RowTensor::first_number] = mean;
    r.tensors[RowTensor::second_number] = deviation;
    all.add_rows(r);
  }
  void add_norm_slope(gpu::LoopRecording& all, int64_t size, void* x, void* dy, void* mean, void* deviation,
                      Tensor scale, void* dx) const {
    gpu::QueuedRows r{.kind = gpu::RowKind::layer_norm_gradient, .dtype = dtype, .rows = rows, .size = size};
    if (scaled) r.scale = at(scale);
    r.tensors[RowTensor::x] = x;
    r.tensors[RowTensor::dy] = dy;
    r.tensors[RowTensor::mean] = mean;
    r.tensors[RowTensor::deviation] = deviation;
    r.tensors[RowTensor::y] = dx;
    all.add_rows(r);
  }
  void add_chain(gpu::LoopRecording& all, Codes code, int64_t width, std::vector<FusedOperand<void>> operands) const {
    gpu::QueuedChain chain{.dtype = dtype, .tensors = static_cast<int>(operands.size()), .width = width, .rows = rows};
    for (FusedOperand<void>& o : operands)
      if (o.stride == 0) o.stride = width;
    chain.code = std::make_shared<const Codes>(std::move(code));
    chain.operands = std::move(operands);
    all.add_chain().what = chain;
  }
  std::vector<FusedOperand<void>> gates_and(std::initializer_list<void*> more) const {
    std::vector<FusedOperand<void>> all;
    for (int64_t gate = 0; gate < 4; ++gate) all.push_back({at(dgates, gate * units), 4 * units});
    for (void* const tensor : more) all.push_back({tensor, units});
    return all;
  }

  std::byte* at(Tensor tensor, int64_t elements = 0) const {
    return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(tensor) << 32) +
           elements * static_cast<int64_t>(dtype_size(dtype));
  }
  std::byte* of(Tensor tensor, int64_t t, int64_t width, int64_t column = 0) const {
    return at(tensor, (t + 1) * rows * width + column);
  }
};

}  // namespace stepnet::testing
