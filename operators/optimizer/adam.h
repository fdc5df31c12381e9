// The arithmetic of Adam, SparseAdam, AdamW and DecayAdagrad; see adam.cc. Threads: pure functions.
#pragma once

#include <cmath>

#include "operators/optimizer/optimizer.h"

namespace stepnet {

struct AdamArgs {
  float beta1 = 0, beta2 = 0, epsilon = 0;
  float weight_decay = 0;             // AdamW's and DecayAdagrad's
  bool bias_correction_first = true;  // DecayAdagrad's
  bool corrected_epsilon = false;     // Adam's and AdamW's
};

// The numbers of one step of DecayAdagrad, `t` of which were made before.
template <class T>
struct DecayAdagradStep {
  T beta1, epsilon, shrink, rate, correction;

  constexpr DecayAdagradStep(const AdamArgs& args, double lr, double t)
      : beta1(args.beta1),
        epsilon(args.epsilon),
        shrink(args.weight_decay),
        rate(static_cast<T>(lr)),
        correction(static_cast<T>(args.bias_correction_first ? 1 - std::pow(double{args.beta1}, t + 1) : 1.0)) {}

  // On a run of elements; the results may stand where the values were.
  constexpr void operator()(int64_t size, const T* grad, const T* param, const T* m1, const T* m2, T* new_param,
                            T* new_m1, T* new_m2) const {
    for (int64_t i = 0; i < size; ++i) {
      const T g = grad[i], a = new_m1[i] = beta1 * m1[i] + (1 - beta1) * g, b = new_m2[i] = m2[i] + g * g;
      const T direction = a / correction / (std::sqrt(b) + epsilon);
      new_param[i] = param[i] + rate * (shrink == 0 ? direction : direction + shrink * param[i]);
    }
  }
};

// One step's numbers; see adam.cc.
template <class T>
struct AdamStep {
  T beta1, beta2, epsilon, correction, rate, decay;

  // Throws Error on a negative iteration.
  AdamStep(const AdamArgs& args, const Tensor& lr, const Tensor& iter)
      : AdamStep(args, lr.item<double>(), static_cast<double>(checked(iter.item<int64_t>()))) {}
  constexpr AdamStep(const AdamArgs& args, double lr, double iter)
      : beta1(args.beta1),
        beta2(args.beta2),
        epsilon(static_cast<T>(args.corrected_epsilon ? args.epsilon * root_of_correction(args, iter)
                                                      : double{args.epsilon})),
        correction(static_cast<T>(corrected(args, iter))),
        rate(static_cast<T>(lr * corrected(args, iter))),
        decay(static_cast<T>(lr * args.weight_decay)) {}

  static constexpr double root_of_correction(const AdamArgs& args, double iter) {
    return std::sqrt(1 - std::pow(double{args.beta2}, iter + 1));
  }
  static constexpr double corrected(const AdamArgs& args, double iter) {
    return root_of_correction(args, iter) / (1 - std::pow(double{args.beta1}, iter + 1));
  }
  static int64_t checked(int64_t iter) {
    require(iter >= 0, "iter is {}, which is negative", iter);
    return iter;
  }

  // On a run of elements; the results may stand where the values were. `new_grad` may be null.
  constexpr void operator()(int64_t size, const T* grad, const T* param, const T* m1, const T* m2, T* new_param,
                            T* new_m1, T* new_m2, T* new_grad) const {
    for (int64_t i = 0; i < size; ++i) {
      const T g = grad[i];
      const T a = new_m1[i] = beta1 * m1[i] + (1 - beta1) * g;
      const T b = new_m2[i] = beta2 * m2[i] + (1 - beta2) * g * g;
      const T p = decay == 0 ? param[i] : param[i] + decay * param[i];
      const T root = std::sqrt(b) + epsilon;
      new_param[i] = p + rate * a / root;
      if (new_grad) new_grad[i] = correction * a / root;
    }
  }

  // Of a row with one second moment, which grows by the mean of the row's `squares`: the root that its steps share.
  constexpr T grown_root(T& m2, T squares, int64_t row) const {
    m2 = beta2 * m2 + (1 - beta2) * (squares / static_cast<T>(row > 0 ? row : 1));
    return std::sqrt(m2) + epsilon;
  }

  // One element of such a row, in place.
  constexpr void element(T g, T root, T* param, T* m1, T* new_grad) const {
    const T a = *m1 = beta1 * *m1 + (1 - beta1) * g;
    *param += rate * a / root;
    if (new_grad) *new_grad = correction * a / root;
  }
};

// The kernel of Adam and AdamW.
template <class T>
void adam_update(const AdamArgs& args, In<T> param, In<T> m1, In<T> m2, In<T> grad, const Tensor& lr,
                 const Tensor& iter, Out<T> new_param, Out<T> new_m1, Out<T> new_m2, Out<T> new_grad) {
  const AdamStep<T> step(args, lr, iter);
  parallel_for(static_cast<int64_t>(param.size()), 2, [&](int64_t begin, int64_t end) {
    step(end - begin, grad.data() + begin, param.data() + begin, m1.data() + begin, m2.data() + begin,
         new_param.data() + begin, new_m1.data() + begin, new_m2.data() + begin,
         new_grad.empty() ? nullptr : new_grad.data() + begin);
  });
}

// What the operators of this family declare alike. `sparse`: indices stand before the gradient.
inline void adam_shape(ShapeCall& call, bool sparse) {
  const int grad = sparse ? 4 : 3;
  require_same_shape(call, 1, "moment_1", 0, "param");
  require_same_shape(call, 2, "moment_2", 0, "param");
  if (sparse)
    require_rows(call, 0, 3, grad);
  else
    require_same_shape(call, grad, "grad", 0, "param");
  require_one_value(call, grad + 1, "lr");
  require_one_value(call, grad + 2, "iter");
  for (int i = 0; i < 3; ++i) call.set_like(i, i);
  call.set_like(3, grad);
}

inline void row_wise_adam_shape(ShapeCall& call) {
  require_same_shape(call, 1, "moment_1", 0, "param");
  require_rows(call, 0, 3, 4);
  if (call.known(0) && call.known(2))
    require(call.shape(2).size() == call.shape(0)[0],
            "moment_2 must hold one value for each row of param, but has shape {}, and param {}", call.shape(2),
            call.shape(0));
  require_one_value(call, 5, "lr");
  require_one_value(call, 6, "iter");
  for (int i = 0; i < 3; ++i) call.set_like(i, i);
  call.set_like(3, 4);
}

// The fourth output of Adam and its kin for rows.
inline void declare_adam_gradient(OpBuilder<AdamArgs>& spec) {
  spec.output("output_grad", "what the learning rate is multiplied by: r m1 / (sqrt(m2) + epsilon)").optional();
}

inline double adam_flops(const ShapeCall& call, int grad) {
  return (call.wants(3) ? 14 : 12) * (call.known(grad) ? static_cast<double>(call.shape(grad).size()) : 0) + 7;
}

inline void declare_adam_args(OpBuilder<AdamArgs>& spec) {
  spec.arg("beta1", &AdamArgs::beta1, 0.9f, "decay of the first moment", decay_rate())
      .arg("beta2", &AdamArgs::beta2, 0.999f, "decay of the second moment", decay_rate())
      .arg("epsilon", &AdamArgs::epsilon, 1e-5f, "added to the square root of the second moment", float_at_least(0));
}

inline void declare_corrected_epsilon(OpBuilder<AdamArgs>& spec) {
  spec.arg("corrected_epsilon", &AdamArgs::corrected_epsilon, false,
           "epsilon is added to the root of the second moment after its correction, as PyTorch adds it, not before")
      .own_args({"corrected_epsilon"});
}

inline void declare_adam_state(OpBuilder<AdamArgs>& spec) {
  spec.input("param", "the parameter, any shape")
      .input("moment_1", "running mean of the gradient")
      .input("moment_2", "running mean of its square");
}

inline void declare_adam_rest(OpBuilder<AdamArgs>& spec) {
  spec.input("lr", "the learning rate, one value, negative")
      .types({DType::float32, DType::float64})
      .input("iter", "how many steps were made before, one value")
      .types({DType::int64, DType::int32})
      .output("output_param", "the parameter after the step")
      .output("output_moment_1", "the first moment after the step")
      .output("output_moment_2", "the second moment after the step")
      .no_gradient("it changes parameters");
}

// Of an Adam for rows, in place.
inline void declare_adam_table(OpBuilder<AdamArgs>& spec) {
  declare_adam_state(spec);
  spec.input("indices",
             "any shape, K values from 0 to the parameter's first dimension, less 1; each repetition is a "
             "step of its own, in order")
      .types({DType::int32, DType::int64})
      .input("grad", "the gradient of those rows: the indices' shape, then a row's");
  declare_adam_rest(spec);
  declare_adam_gradient(spec);
  spec.must_be_in_place("param", "output_param")
      .must_be_in_place("moment_1", "output_moment_1")
      .must_be_in_place("moment_2", "output_moment_2");
}

template <class... Kernels>
void declare_dense_adam(OpBuilder<AdamArgs>& spec, Kernels... kernels) {
  declare_adam_state(spec);
  spec.input("grad", "the gradient, of the parameter's shape");
  declare_adam_rest(spec);
  spec.in_place("param", "output_param")
      .in_place("moment_1", "output_moment_1")
      .in_place("moment_2", "output_moment_2")
      .shape([](const AdamArgs&, ShapeCall& call) { adam_shape(call, false); })
      .cpu(kernels...);
}

}  // namespace stepnet
