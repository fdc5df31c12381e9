// Chains of elementwise operators as one loop: an operator's arithmetic as instructions (FusedBody), and a machine that
// runs many of them on a piece of 256 elements at a time, whose values in between never leave the first-level cache.
//
// The kernels are built for several instruction sets; see core/compute/simd.h for tanh and the logistic
// function. Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "stepnet/half.h"

namespace stepnet {

enum class FusedCode : uint8_t {
  copy,             // a
  add,              // a + b
  sub,              // a - b
  mul,              // a * b
  div,              // a / b
  maximum,          // the larger of a and b; NaN counts as larger than any number
  minimum,          // the smaller of a and b; NaN counts as smaller than any number
  negative,         // -a
  abs,              // |a|
  one_minus,        // 1 - a
  reciprocal,       // 1 / a
  sqrt,             // the square root of a
  scale,            // a * value
  add_value,        // a + value
  at_least,         // value where a < value, else a; NaN stays
  at_most,          // value where a > value, else a; NaN stays
  relu,             // the larger of a and 0; NaN stays
  if_positive,      // b where a > 0, else 0
  unless_positive,  // 0 where a > 0, else b
  either,           // of a and b, of which one is 0 and not -0, the other: the bits of both
  exp,
  expm1,    // exp(a) - 1
  log,      // the natural logarithm of a
  log1p,    // the natural logarithm of 1 + a
  sigmoid,  // 1 / (1 + exp(-a))
  tanh,
  erf,   // the error function
  erfc,  // 1 - erf(a)
  sin,
  cos,

  // In chains on a CPU alone, those of rows where a row has at most kFusedPiece elements.
  product_sum,   // a * b + c, both rounded
  less_product,  // c - a * b, both rounded
  row_sum,       // the sum of a's row: narrow
  row_product,   // the sum of a's row times b's: narrow
  spread,        // a, which is narrow, in all columns
};
constexpr int kFusedCodes = static_cast<int>(FusedCode::cos) + 1;  // of single elements

// What is known of a code beside its arithmetic, which stands in core/compute/elementwise_chain_simd.cc, and for GPUs
// in gpu/runtime.
struct FusedCodeInfo {
  const char* name;
  bool reads_b;
  double nanoseconds;  // about what one element takes
};
const FusedCodeInfo& fused_code(FusedCode code);
inline bool reads_c(FusedCode code) { return code == FusedCode::product_sum || code == FusedCode::less_product; }

constexpr bool takes_column(FusedCode code) {  // its first operand may be narrow where the others are not
  return code == FusedCode::add || code == FusedCode::mul || code == FusedCode::product_sum ||
         code == FusedCode::less_product;
}

struct FusedInstruction {
  FusedCode code = FusedCode::copy;
  int a = 0, b = 0;
  double value = 0;
  int to = 0;              // in a chain: the operand that gets the result
  bool is_output = false;  // in a chain: it is an operator's, which in a chain of a half type is rounded to it
  int c = 0;               // a third operand, where the code has one; else any that is there
  bool narrow = false;     // in a chain: its operands and its result have one element for each row
  bool column = false;     // in a chain: a is narrow, and the others are not; see takes_column
};

// Operands of a chain: tensors first, then values in between.
constexpr int kMostFusedTensors = 48, kMostFusedValues = 48;

// An operator's arithmetic: its operands are the operator's inputs, from 0, then the results of the instructions
// before; the last result is the output. It allocates nothing, since kernels ask for it in every call.
class FusedBody {
 public:
  FusedBody() {}  // NOLINT(modernize-use-equals-default): the union lets it have none
  FusedBody(std::initializer_list<FusedInstruction> all) { append(all); }
  FusedBody(const FusedBody& other) { *this = other; }
  FusedBody& operator=(const FusedBody& other) {
    size_ = other.size_;
    std::copy_n(other.all_, size_, all_);
    return *this;
  }

  // There is room for kMostFusedValues; more is an Error.
  void append(std::initializer_list<FusedInstruction> more) {
    for (const FusedInstruction& i : more) push_back(i);
  }
  void push_back(const FusedInstruction& instruction);

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  FusedInstruction& operator[](size_t i) { return all_[i]; }
  FusedInstruction& back() { return all_[size_ - 1]; }
  const FusedInstruction* data() const { return all_; }
  const FusedInstruction* begin() const { return all_; }
  const FusedInstruction* end() const { return all_ + size_; }

 private:
  size_t size_ = 0;
  union {                                     // the others are not even zero
    FusedInstruction all_[kMostFusedValues];  // NOLINT(readability-identifier-naming): private all the same
  };
};

// A tensor of a chain. What is only read may have fewer rows than the loop, and one element for all columns. What has
// one element for each row is an operand of narrow instructions, or is written: as one's result, or as the sum of all
// columns. What is written and has fewer rows than the loop has sums of rows, of no half type.
template <class T>
struct FusedOperand {
  T* first = nullptr;
  int64_t stride = 0;   // elements from one row to the next
  int64_t step = 1;     // elements from one column to the next: 1, or 0 where all columns have one
  int64_t each = 1;     // rows of the loop that follow one another and have one of this in common
  int64_t cycle = 0;    // rows of this after which the first follows again; 0: it has one for all
  bool sums = false;    // is written: its one element of a row is the sum of the columns
  bool narrow = false;  // has one element for each row, and is not spread over the columns where it is read
  int value = -1;       // is written, and each is above 1: the operand whose rows are added up
  int weight = -1;      // the narrow operand whose elements multiply these rows before; -1: nothing does
};

template <class T>
struct FusedLoop {
  const FusedInstruction* code = nullptr;
  int instructions = 0;
  const FusedOperand<T>* tensors = nullptr;
  int count = 0;      // of the tensors
  int64_t width = 0;  // elements of a row
  int sources = 0;    // the tensors from here on are written, those before are read
  int64_t rows = 1;
};

// A piece is kFusedPiece elements of a row, the last one of the row fewer, or as many rows as fit into one. Pieces are
// counted through all rows.
constexpr int64_t kFusedPiece = 256;
inline int64_t fused_rows_at_once(int64_t width) {
  return width > 0 && width <= kFusedPiece / 2 ? kFusedPiece / width : 1;
}
inline int64_t fused_pieces_of_row(int64_t width) { return (width + kFusedPiece - 1) / kFusedPiece; }
inline int64_t fused_pieces(int64_t rows, int64_t width) {
  const int64_t at_once = fused_rows_at_once(width);
  return at_once > 1 ? (rows + at_once - 1) / at_once : rows * fused_pieces_of_row(width);
}

// Of a half type, pieces of tensors become floats, with which all instructions compute. An operator's output is rounded
// as if it were written, so that bits do not depend on which operators are one chain.
//
// A range of pieces must have all of what is summed: whole rows, or all rows of an operand's `each`, which is of no
// half type.
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

// About what one element of all the instructions takes; narrow ones count as nothing.
double fused_nanoseconds(std::span<const FusedInstruction> code);

}  // namespace stepnet
