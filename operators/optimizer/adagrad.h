// What Adagrad, SparseAdagrad and RowWiseSparseAdagrad declare alike; see adagrad.cc. Threads: pure functions.
#pragma once

#include <cmath>

#include "operators/optimizer/optimizer.h"

namespace stepnet {

struct AdagradArgs {
  float epsilon = 0;
  float weight_decay = 0;
  float decay = 1;                // Adagrad's alone
  int64_t counter_halflife = -1;  // RowWiseSparseAdagrad's alone
};

// One step on a run of elements; the results may stand where the values were. The last two may be null.
template <class T>
constexpr void adagrad_run(const AdagradArgs& args, T rate, int64_t size, const T* grad, const T* param,
                           const T* moment, T* new_param, T* new_moment, T* effective = nullptr, T* update = nullptr) {
  const T epsilon = args.epsilon, decay = args.decay, shrink = args.weight_decay;
  for (int64_t i = 0; i < size; ++i) {
    const T g = shrink == 0 ? grad[i] : grad[i] + shrink * param[i];
    const T h = new_moment[i] = decay * moment[i] + g * g;
    const T root = std::sqrt(h) + epsilon;
    new_param[i] = param[i] + rate * g / root;
    if (effective) effective[i] = rate / root;
    if (update) update[i] = rate / root * g;
  }
}

// What RowWiseSparseAdagrad's weight decay is of a row whose index was met so often.
constexpr double row_decay(const AdagradArgs& args, double count) {
  return static_cast<double>(args.weight_decay) *
         (args.counter_halflife > 0 && count > 0 ? static_cast<double>(args.counter_halflife) / count : 1.0);
}

inline void declare_adagrad_lr(OpBuilder<AdagradArgs>& spec) {
  spec.arg("epsilon", &AdagradArgs::epsilon, 1e-5f, "added to the square root of the moment", float_at_least(0))
      .arg("weight_decay", &AdagradArgs::weight_decay, 0.0f, "times the parameter: what is added to the gradient")
      .input("lr", "the learning rate, one value, negative")
      .types({DType::float32, DType::float64})
      .output("output_param", "the parameter after the step")
      .output("output_moment_1", "the moment after the step")
      .no_gradient("it changes parameters");
}

// Of the two sparse forms.
inline void declare_sparse_adagrad(OpBuilder<AdagradArgs>& spec, const char* moment) {
  spec.input("param", "the table, [R, ...]")
      .input("moment", moment)
      .input("indices", "any shape, K values from 0 to R - 1; each repetition is a step of its own, in order")
      .types({DType::int32, DType::int64})
      .input("grad", "the gradient of those rows: the indices' shape, then a row's");
  declare_adagrad_lr(spec);
  spec.must_be_in_place("param", "output_param").must_be_in_place("moment", "output_moment_1");
}

}  // namespace stepnet
