// Class indices as the losses take them: int32 or int64, one per row; and what becomes of the losses of a batch.
#pragma once

#include <string>

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

// Labels or lengths of either type, also of kernels on GPUs.
struct Wholes {
  const int32_t* narrow = nullptr;
  const int64_t* wide = nullptr;
  constexpr int64_t operator[](int64_t i) const { return narrow ? int64_t{narrow[i]} : wide[i]; }
};
inline Wholes wholes(const Tensor& t) {
  if (t.dtype() == DType::int32) return {t.data<int32_t>(), nullptr};
  return {nullptr, t.data<int64_t>()};
}

// What becomes of the losses of a batch.
enum class LossReduction { none, sum, mean };
inline LossReduction loss_reduction(const std::string& name) {
  return name == "none" ? LossReduction::none : name == "sum" ? LossReduction::sum : LossReduction::mean;
}

}  // namespace stepnet
