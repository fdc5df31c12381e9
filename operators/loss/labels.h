// Class indices as the losses take them: int32 or int64, one per row.
#pragma once

#include "stepnet/error.h"
#include "stepnet/tensor.h"

namespace stepnet {

// Throws Error naming the first label that is no class.
template <class L>
void check_labels(std::span<const L> labels, int64_t classes) {
  for (size_t i = 0; i < labels.size(); ++i)
    require(labels[i] >= 0 && labels[i] < classes, "the label of row {} is {}, but must be in 0..{}", i, labels[i],
            classes - 1);
}

// Calls fn with the labels in their own type, after checking them.
template <class Fn>
void with_labels(const Tensor& labels, int64_t classes, Fn fn) {
  if (labels.dtype() == DType::int32) {
    check_labels(labels.span<int32_t>(), classes);
    fn(labels.span<int32_t>());
  } else {
    check_labels(labels.span<int64_t>(), classes);
    fn(labels.span<int64_t>());
  }
}

}  // namespace stepnet
