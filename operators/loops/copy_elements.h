// Copies of runs of elements between tensors of one type, whatever the type is: what operators that only move elements
// (Concat, Split, Slice, Gather) are made of.
//
// Tensors are on the CPU, but for those of copy_values. Threads: thread-safe on ranges that do not overlap.
#pragma once

#include <cstdint>

#include "stepnet/tensor.h"

namespace stepnet {

// to[to_at, to_at + count) = from[from_at, from_at + count); the caller has checked the ranges. No overlap.
void copy_elements(const Tensor& from, int64_t from_at, Tensor& to, int64_t to_at, int64_t count);

// `blocks` runs of `count` elements, whose starts lie `from_stride` and `to_stride` elements apart. In parallel if it
// is worth it.
struct BlockCopy {
  int64_t blocks = 0, count = 0;
  int64_t from_at = 0, from_stride = 0;
  int64_t to_at = 0, to_stride = 0;
};
void copy_blocks(const Tensor& from, Tensor& to, const BlockCopy& plan);

// to = from, element by element, on any device; the shapes may differ, not the number of elements. Nothing to do if
// they are the same bytes already (an operator in place).
void copy_values(const Tensor& from, Tensor& to);

}  // namespace stepnet
