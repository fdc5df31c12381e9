// Chains of elementwise operators as one loop: an operator's arithmetic as instructions (FusedBody), and a machine that
// runs many of them on a piece of 128 elements at a time, whose values in between never leave the first-level cache.
//
// The kernels are built for several instruction sets; see core/compute/simd.h for tanh and the logistic
// function. Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "stepnet/half.h"

namespace stepnet {

enum class FusedCode : uint8_t {
  copy,         // a
  add,          // a + b
  sub,          // a - b
  mul,          // a * b
  negative,     // -a
  one_minus,    // 1 - a
  scale,        // a * value
  relu,         // the larger of a and 0; NaN stays
  if_positive,  // b where a > 0, else 0
  sigmoid,      // 1 / (1 + exp(-a))
  tanh,
};

// Operands of a body are the operator's inputs, from 0, then the results of the instructions before; the last result
// is the output.
struct FusedInstruction {
  FusedCode code = FusedCode::copy;
  int a = 0, b = 0;
  double value = 0;
  int to = 0;              // in a chain: the operand that gets the result
  bool is_output = false;  // in a chain: it is an operator's, which in a chain of a half type is rounded to it
};
using FusedBody = std::vector<FusedInstruction>;

// Operands of a chain: tensors first, then values in between.
constexpr int kMostFusedTensors = 48, kMostFusedValues = 48;

template <class T>
struct FusedOperand {
  T* first = nullptr;
  int64_t stride = 0;  // elements from one row to the next
};

template <class T>
struct FusedLoop {
  const FusedInstruction* code = nullptr;
  int instructions = 0;
  const FusedOperand<T>* tensors = nullptr;
  int count = 0;      // of the tensors
  int64_t width = 0;  // elements of a row
  int sources = 0;    // of a half type: the tensors from here on are written, those before are read
};

// A row is in pieces of kFusedPiece elements, the last one shorter; they are counted through all rows.
constexpr int64_t kFusedPiece = 128;
inline int64_t fused_pieces(int64_t width) { return (width + kFusedPiece - 1) / kFusedPiece; }

// Of a half type, pieces of tensors become floats, with which all instructions compute. An operator's output is rounded
// as if it were written, so that bits do not depend on which operators are one chain.
struct FusedKernels {
  void (*run_float)(const FusedLoop<float>& loop, int64_t begin, int64_t end);  // a range of pieces
  void (*run_double)(const FusedLoop<double>& loop, int64_t begin, int64_t end);
  void (*run_float16)(const FusedLoop<float16>& loop, int64_t begin, int64_t end);
  void (*run_bfloat16)(const FusedLoop<bfloat16>& loop, int64_t begin, int64_t end);

  void run(const FusedLoop<float>& loop, int64_t begin, int64_t end) const { run_float(loop, begin, end); }
  void run(const FusedLoop<double>& loop, int64_t begin, int64_t end) const { run_double(loop, begin, end); }
  void run(const FusedLoop<float16>& loop, int64_t begin, int64_t end) const { run_float16(loop, begin, end); }
  void run(const FusedLoop<bfloat16>& loop, int64_t begin, int64_t end) const { run_bfloat16(loop, begin, end); }
};

const FusedKernels& fused_kernels_plain();  // for every CPU that the library runs on
const FusedKernels* fused_kernels_wide();   // for x86-64-v4; null if this CPU is none
const FusedKernels& fused_kernels();        // the best of them

double fused_nanoseconds(FusedCode code);  // about what one element of the instruction takes

}  // namespace stepnet
