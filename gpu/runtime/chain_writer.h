// A step's elementwise arithmetic as a chain of instructions, for operators with several outputs. Threads: a writer is
// one thread's.
#pragma once

#include <array>
#include <span>

#include "gpu/runtime/timesteps.h"

namespace stepnet::gpu {

// All is read before anything is written, so that what is written may be what is read. It allocates nothing, as
// kernels make one in every call: there is room for what the operators of a step need.
class ChainWriter {
 public:
  // An element of a tensor with so many elements from one row to the next, as a value.
  int read(const void* first, int64_t stride) {
    add_instruction({FusedCode::copy, add_tensor({const_cast<void*>(first), stride}), 0, 0, kValues + values_});
    return values_++;
  }
  // One element for a whole row; they lie one after the other.
  int read_number(const void* first) {
    add_instruction({FusedCode::copy, add_tensor({const_cast<void*>(first), 1, 0}), 0, 0, kValues + values_});
    return values_++;
  }
  // One int32 of each row, or with a stride of 0 one for all. It is exact up to 2^24.
  int read_int32(const int32_t* first, int64_t stride) {
    const int tensor = add_tensor({const_cast<int32_t*>(first), stride, 0});
    int32_operands_ |= uint64_t{1} << tensor;
    add_instruction({FusedCode::copy, tensor, 0, 0, kValues + values_});
    return values_++;
  }
  int value(FusedCode code, int a, int b = 0, double number = 0) {
    add_instruction({code, kValues + a, kValues + b, number, kValues + values_});
    return values_++;
  }
  int sum(int a, int b) { return value(FusedCode::add, a, b); }
  int product(int a, int b) { return value(FusedCode::mul, a, b); }
  int product(int a, int b, int c) { return product(product(a, b), c); }
  int one_minus(int a) { return value(FusedCode::one_minus, a); }
  int zero_like(int a) {
    return value(FusedCode::if_positive, value(FusedCode::negative, value(FusedCode::abs, a)), a);
  }
  // The value where `condition` is above 0, else the other one, or 0 if that is -1. Neither is rounded by it.
  int if_positive(int condition, int a, int other) {
    const int taken = value(FusedCode::if_positive, condition, a);
    return other < 0 ? taken : value(FusedCode::either, taken, value(FusedCode::unless_positive, condition, other));
  }
  // Nothing is done where `first` is null.
  void write(int value, void* first, int64_t stride) {
    if (!first) return;
    written_.at(writes_) = value;
    writes_to_.at(writes_++) = {first, stride};
  }

  // `run`: the same by itself; `check` as in QueuedWork.
  void record_as(DType dtype, int64_t width, int64_t rows, const QueueAlone& run, const QueueAlone& check = {}) {
    for (size_t w = 0; w < writes_; ++w)
      add_instruction({FusedCode::copy, kValues + written_[w], 0, 0, add_tensor(writes_to_[w])});
    const auto tensors = static_cast<int>(tensors_count_);
    const auto place = [tensors](int operand) { return operand < kValues ? operand : operand - kValues + tensors; };
    const std::span code = std::span(code_).first(instructions_);
    for (FusedInstruction& i : code) i = {i.code, place(i.a), place(i.b), i.value, place(i.to)};
    record(dtype, code, tensors, std::span<const FusedOperand<void>>(tensors_).first(tensors_count_), int32_operands_,
           width, rows, run, check);
  }

 private:
  static constexpr int kValues = 1000;  // what values are numbered from until all tensors are known
  static constexpr size_t kMostTensors = 24, kMostInstructions = 80, kMostWrites = 8;
  int add_tensor(const FusedOperand<void>& tensor) {
    tensors_.at(tensors_count_) = tensor;
    return static_cast<int>(tensors_count_++);
  }
  void add_instruction(const FusedInstruction& i) { code_.at(instructions_++) = i; }

  std::array<FusedOperand<void>, kMostTensors> tensors_;
  std::array<FusedInstruction, kMostInstructions> code_;
  std::array<int, kMostWrites> written_ = {};
  std::array<FusedOperand<void>, kMostWrites> writes_to_;
  size_t tensors_count_ = 0, instructions_ = 0, writes_ = 0;
  uint64_t int32_operands_ = 0;
  int values_ = 0;
};

}  // namespace stepnet::gpu
