// Operators on whole rows in a kernel of all timesteps (gpu/runtime/loop_plan.h): LayerNorm, Softmax, and sums.
//
// Each block finds by itself the numbers of all rows that are sums over them, or the like: one warp those of a row, in
// the same order in every block, so that all have the same bits. What is left is arithmetic of single elements, each by
// the thread that has its row and unit. Numbers that are results are written by the threads of the first unit.
//
// Threads: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "stepnet/tensor.h"

namespace stepnet::gpu {

// The numbers of a row of n elements, of which there are up to two, and what becomes of them.
enum class RowKind : uint8_t {
  layer_norm,           // mean; sqrt(mean of (x - mean)^2, + number): y = (x - mean) / deviation [scale] [+ bias]
  layer_norm_gradient,  // sum of e and of e u, where e = dy [scale], u = (x - mean) / deviation: y = dx
  softmax,              // the largest x; the sum of exp(x - that): y = exp(x - the largest) / sum
  softmax_gradient,     // sum of x dy: y = x (dy - sum); x is Softmax's y
  sum,                  // sum of x, times `number`, which is the result
};

// Tensors of such an operator that may lie elsewhere in each timestep. Rows are dense, and numbers are one for each
// row.
enum class RowTensor : uint8_t {
  x,             // rows
  dy,            // rows, of a gradient
  mean,          // numbers that are read
  deviation,     //
  dmean,         //
  ddeviation,    //
  y,             // rows that are written: a gradient's dx
  first_number,  // numbers that are written: the mean, or the sum
  second_number  // the deviation
};
constexpr size_t kRowTensors = 9;
constexpr bool is_written(RowTensor t) { return t >= RowTensor::y; }
constexpr bool has_rows(RowTensor t) { return t == RowTensor::x || t == RowTensor::dy || t == RowTensor::y; }

// One of each tensor.
template <class T>
class OfRowTensors {
 public:
  constexpr explicit OfRowTensors(T all = {}) { values_.fill(all); }
  constexpr T& operator[](RowTensor t) { return values_[static_cast<size_t>(t)]; }
  constexpr const T& operator[](RowTensor t) const { return values_[static_cast<size_t>(t)]; }
  // fn(tensor) for each.
  template <class Fn>
  static void each(const Fn& fn) {
    for (size_t t = 0; t < kRowTensors; ++t) fn(static_cast<RowTensor>(t));
  }

 private:
  std::array<T, kRowTensors> values_ = {};
};

// An operator of a timestep.
struct QueuedRows {
  RowKind kind = RowKind::layer_norm;
  DType dtype = DType::undefined;
  int64_t rows = 0, size = 0;
  double number = 0;                             // as RowKind has it
  const void *scale = nullptr, *bias = nullptr;  // of a row's elements, the same in all timesteps; or null
  OfRowTensors<const void*> tensors{};           // null: absent
};
bool same_kind(const QueuedRows& a, const QueuedRows& b);  // all but for the tensors' addresses
size_t address_count(const QueuedRows& rows);
const std::byte* address(const QueuedRows& rows, size_t k);

// In a plan. A row of the plan may be several of the operator's, which are its parts.
struct LoopRows {
  RowKind kind = RowKind::layer_norm;
  int64_t size = 0, parts = 1;
  int64_t head_lines = 0, row_lines = 1;  // rows of the plan from head to head, and from row to row
  double number = 0;
  OfRowTensors<int> places{-1};
  OfRowTensors<bool> is_late{}, is_shared{};  // as LoopOperand
  int scale = -1, bias = -1;                  // constants; -1: none
  int groups = 0;                             // columns of each unit, in all parts
  int wide = 1;                               // elements that are read at a time
  size_t numbers_at = 0;                      // in shared memory: kRowNumbers for each of a block's rows and part
};
constexpr int kRowNumbers = 2;

// The kernel's source: functions that all such operators share, and what finds an operator's numbers.
std::string row_functions_source();
std::string find_numbers_source(const LoopRows& rows);

}  // namespace stepnet::gpu
