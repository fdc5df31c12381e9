// A step's elementwise arithmetic as a chain of instructions, for operators with several outputs. Threads: a writer is
// one thread's.
#pragma once

#include "gpu/runtime/timesteps.h"

namespace stepnet::gpu {

// All is read before anything is written, so that what is written may be what is read.
class ChainWriter {
 public:
  // An element of a tensor with so many elements from one row to the next, as a value.
  int read(const void* first, int64_t stride) {
    tensors_.push_back({const_cast<void*>(first), stride});
    code_.push_back({FusedCode::copy, static_cast<int>(tensors_.size()) - 1, 0, 0, kValues + values_});
    return values_++;
  }
  // One int32 of each row, or with a stride of 0 one for all. It is exact up to 2^24.
  int read_int32(const int32_t* first, int64_t stride) {
    int32_operands_ |= uint64_t{1} << tensors_.size();
    tensors_.push_back({const_cast<int32_t*>(first), stride, 0});
    code_.push_back({FusedCode::copy, static_cast<int>(tensors_.size()) - 1, 0, 0, kValues + values_});
    return values_++;
  }
  int value(FusedCode code, int a, int b = 0, double number = 0) {
    code_.push_back({code, kValues + a, kValues + b, number, kValues + values_});
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
    if (first) writes_.push_back({value, {first, stride}});
  }

  // `run`: the same by itself; `check` as in QueuedWork.
  void record_as(DType dtype, int64_t width, int64_t rows, std::function<void()> run,
                 std::function<void()> check = {}) {
    for (const auto& [value, to] : writes_) {
      tensors_.push_back(to);
      code_.push_back({FusedCode::copy, kValues + value, 0, 0, static_cast<int>(tensors_.size()) - 1});
    }
    const int tensors = static_cast<int>(tensors_.size());
    const auto place = [tensors](int operand) { return operand < kValues ? operand : operand - kValues + tensors; };
    for (FusedInstruction& i : code_) i = {i.code, place(i.a), place(i.b), i.value, place(i.to)};
    auto code = std::make_shared<const std::vector<FusedInstruction>>(std::move(code_));
    record({QueuedChain{dtype, std::move(code), tensors, std::move(tensors_), width, rows, int32_operands_},
            std::move(run), std::move(check)});
  }

 private:
  static constexpr int kValues = 1000;  // what values are numbered from until all tensors are known
  std::vector<FusedOperand<void>> tensors_;
  std::vector<std::pair<int, FusedOperand<void>>> writes_;
  std::vector<FusedInstruction> code_;
  uint64_t int32_operands_ = 0;
  int values_ = 0;
};

}  // namespace stepnet::gpu
