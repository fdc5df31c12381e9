// Copies of runs of elements.
#include "operators/loops/copy_elements.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/compute/threads.h"

namespace stepnet {

void copy_elements(const Tensor& from, int64_t from_at, Tensor& to, int64_t to_at, int64_t count) {
  if (count == 0) return;
  if (from.dtype() == DType::string) {
    std::copy_n(from.data<std::string>() + from_at, count, to.data<std::string>() + to_at);
    return;
  }
  const auto width = static_cast<int64_t>(dtype_size(from.dtype()));
  std::memcpy(to.raw() + to_at * width, from.raw() + from_at * width, static_cast<size_t>(count * width));
}

void copy_blocks(const Tensor& from, Tensor& to, const BlockCopy& plan) {
  if (plan.count == 0) return;  // an empty tensor may have any number of blocks
  const double nanoseconds = 5 + 0.1 * static_cast<double>(plan.count) * static_cast<double>(dtype_size(from.dtype()));
  parallel_for(plan.blocks, nanoseconds, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      copy_elements(from, plan.from_at + b * plan.from_stride, to, plan.to_at + b * plan.to_stride, plan.count);
  });
}

void copy_values(const Tensor& from, Tensor& to) {
  if (from.raw() == to.raw()) return;
  to.copy_from(from.reshaped(to.shape()));
}

}  // namespace stepnet
