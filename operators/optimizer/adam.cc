// Adam (Kingma and Ba 2015, "Adam: a method for stochastic optimization", in the form with one corrected rate):
//
//   t = iter + 1, r = sqrt(1 - beta2^t) / (1 - beta1^t)
//   m1 = beta1 m1 + (1 - beta1) g,  m2 = beta2 m2 + (1 - beta2) g^2
//   param = param + lr r m1 / (sqrt(m2) + epsilon)
//
// With corrected_epsilon, as PyTorch has it, epsilon is added to sqrt(m2 / (1 - beta2^t)); it is multiplied by
// sqrt(1 - beta2^t) here.
//
// What lr is multiplied by there may be an output, too. lr is NEGATIVE, as for WeightedSum. No derivative: it changes
// parameters.

#include "operators/optimizer/adam.h"

#include "core/operator/flops.h"

namespace stepnet::cpu_adam {
namespace {

REGISTER(adam) {
  auto spec = op<AdamArgs>("Adam");
  declare_adam_args(spec);
  declare_corrected_epsilon(spec);
  declare_dense_adam(spec, adam_update<float>, adam_update<double>);
  declare_adam_gradient(spec);
  return spec
      .doc(
          "One step of Adam. The learning rate is negative: the step is added. Where the second moment and epsilon are "
          "both 0 the result is not a number.")
      .flops([](const AdamArgs& a, const ShapeCall& c) { return adam_flops(c, 3) + (a.corrected_epsilon ? 1 : 0); })
      .example({"param=2,3", "moment_1=2,3", "moment_2=2,3,0..2", "grad=2,3", "lr=1:-0.125", "iter=int64,1:4"})
      .example({"param=1", "moment_1=1", "moment_2=1,0..2", "grad=1", "lr=float,1:-0.125", "iter=int32,1:0"},
               {"beta1=0.5", "beta2=0.75", "epsilon=0.125"})
      .example({"param=2", "moment_1=2", "moment_2=2,0..2", "grad=2", "lr=1:-0.125", "iter=int64,1:2"},
               {"epsilon=0.125", "corrected_epsilon=1"})
      .example({"param=0", "moment_1=0", "moment_2=0", "grad=0", "lr=1:-0.125", "iter=int64,1:1"});
}

// AdamW (Loshchilov and Hutter 2019, "Decoupled weight decay regularization"): Adam, and beside its step each parameter
// shrinks by a share of itself that no moment sees.
//
//   t = iter + 1, r = sqrt(1 - beta2^t) / (1 - beta1^t)
//   m1 = beta1 m1 + (1 - beta1) g,  m2 = beta2 m2 + (1 - beta2) g^2
//   param = param + lr (weight_decay param + r m1 / (sqrt(m2) + epsilon))
//
// lr is NEGATIVE, as for Adam. No derivative: it changes parameters.

REGISTER(adam_w) {
  auto spec = op<AdamArgs>("AdamW");
  spec.own();
  declare_adam_args(spec);
  spec.arg("weight_decay", &AdamArgs::weight_decay, 0.01f, "times the learning rate: the share that a parameter loses",
           float_at_least(0));
  declare_corrected_epsilon(spec);
  declare_dense_adam(spec, adam_update<float>, adam_update<double>);
  return spec
      .doc(
          "One step of Adam with decoupled weight decay. The learning rate is negative: the step is added. Decay that "
          "goes through the moments, as a penalty on the squares of the parameters does, is made with Adam and a "
          "WeightedSum before it that adds the parameter times the decay to the gradient.")
      .flops([](const AdamArgs& a, const ShapeCall& c) {
        return 14 * input_size(c, 3) + 8 + (a.corrected_epsilon ? 1 : 0);
      })
      .example({"param=2,3", "moment_1=2,3", "moment_2=2,3,0..2", "grad=2,3", "lr=1:-0.125", "iter=int64,1:4"})
      .example({"param=1", "moment_1=1", "moment_2=1,0..2", "grad=1", "lr=float,1:-0.125", "iter=int32,1:0"},
               {"weight_decay=0.5"})
      .example({"param=0", "moment_1=0", "moment_2=0", "grad=0", "lr=1:-0.125", "iter=int64,1:1"});
}

// DecayAdagrad: Adam's first moment over the root of Adagrad's sum of squares:
//
//   t = iter + 1, c = 1 - beta1^t, or 1 without bias_correction_first
//   m1 = beta1 m1 + (1 - beta1) g,  m2 = m2 + g^2
//   param = param + lr (m1 / c / (sqrt(m2) + epsilon) + weight_decay param)
//
// lr is NEGATIVE, as for Adam. No derivative: it changes parameters.

template <class T>
void decay_adagrad(const AdamArgs& args, In<T> param, In<T> m1, In<T> m2, In<T> grad, const Tensor& lr,
                   const Tensor& iter, Out<T> new_param, Out<T> new_m1, Out<T> new_m2) {
  const auto t = static_cast<double>(AdamStep<T>::checked(iter.item<int64_t>()));
  const DecayAdagradStep<T> step(args, lr.item<double>(), t);
  parallel_for(static_cast<int64_t>(param.size()), 2, [&](int64_t begin, int64_t end) {
    step(end - begin, grad.data() + begin, param.data() + begin, m1.data() + begin, m2.data() + begin,
         new_param.data() + begin, new_m1.data() + begin, new_m2.data() + begin);
  });
}

REGISTER(decay_adagrad) {
  auto spec = op<AdamArgs>("DecayAdagrad");
  spec.arg("beta1", &AdamArgs::beta1, 0.9f, "decay of the first moment", decay_rate())
      .arg("epsilon", &AdamArgs::epsilon, 1e-5f, "added to the square root of the second moment", float_at_least(0))
      .arg("weight_decay", &AdamArgs::weight_decay, 0.0f, "times the learning rate: the share that a parameter loses")
      .arg("bias_correction_first", &AdamArgs::bias_correction_first, true, "divide the first moment by 1 - beta1^t")
      .accepts("beta2", "the public format reads it, and uses it nowhere");
  declare_dense_adam(spec, decay_adagrad<float>, decay_adagrad<double>);
  return spec
      .doc(
          "One step of Adagrad with a running mean of the gradients in place of the gradient. The learning rate is "
          "negative: the step is added.")
      .flops([](const AdamArgs& a, const ShapeCall& c) {
        return input_size(c, 3) * (11 + (a.weight_decay == 0 ? 0 : 2)) + (a.bias_correction_first ? 2 : 0);
      })
      .example({"param=2,3", "moment_1=2,3", "moment_2=2,3,0..2", "grad=2,3", "lr=1:-0.125", "iter=int64,1:4"})
      .example({"param=1", "moment_1=1", "moment_2=1,0..2", "grad=1", "lr=float,1:-0.125", "iter=int32,1:0"},
               {"weight_decay=0.5", "bias_correction_first=0"})
      .example({"param=0", "moment_1=0", "moment_2=0", "grad=0", "lr=1:-0.125", "iter=int64,1:1"});
}

// SparseAdam: Adam on the rows of a table that the gradient has, in place, by the same formula. Rows without a
// gradient keep their moments and values: nothing decays while a row is not looked up. No derivative: it changes
// parameters.

// Parameter and moments are in place: the outputs hold their values.
template <class T>
void sparse_adam(const AdamArgs& args, Out<T> param, Out<T> m1, Out<T> m2, Out<T> new_grad, Call& call) {
  const AdamStep<T> step(args, call.in(5), call.in(6));
  const In<T> grad = call.in_span<T>(4);
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  for_each_row(call.in(3), table[0], 2 + 2 * static_cast<double>(row), [&](int64_t k, int64_t at) {
    T* const p = param.data() + at * row;
    T* const a = m1.data() + at * row;
    T* const b = m2.data() + at * row;
    step(row, grad.data() + k * row, p, a, b, p, a, b, new_grad.empty() ? nullptr : new_grad.data() + k * row);
  });
}

REGISTER(sparse_adam) {
  auto spec = op<AdamArgs>("SparseAdam");
  spec.refuses("enableRAdam", false, "would rectify the rate of the first iterations");
  declare_adam_args(spec);
  declare_adam_table(spec);
  return spec
      .doc(
          "One step of Adam on those rows of a table that the gradient has; all others stay as they are, their "
          "moments too. The learning rate is negative: the step is added.")
      .shape([](const AdamArgs&, ShapeCall& call) { adam_shape(call, true); })
      .flops([](const auto&, const ShapeCall& c) { return adam_flops(c, 4); })
      .cpu(sparse_adam<float>, sparse_adam<double>)
      .example({"param=4,2", "moment_1=4,2", "moment_2=4,2,0..2", "indices=int64,3:2,0,2", "grad=3,2", "lr=1:-0.125",
                "iter=int64,1:4"})
      .example({"param=3", "moment_1=3", "moment_2=3,0..2", "indices=int32,1,2:1,2", "grad=1,2", "lr=float,1:-0.125",
                "iter=int32,1:0"},
               {"beta1=0.5", "beta2=0.75", "epsilon=0.125"})
      .example({"param=3,2", "moment_1=3,2", "moment_2=3,2,0..2", "indices=int64,0", "grad=0,2", "lr=1:-0.125",
                "iter=int64,1:1"});
}

// RowWiseSparseAdam: SparseAdam with one second moment for each row, of the mean of its gradient's squares.

template <class T>
void row_wise_adam(const AdamArgs& args, Out<T> param, Out<T> m1, Out<T> m2, Out<T> new_grad, Call& call) {
  const AdamStep<T> step(args, call.in(5), call.in(6));
  const In<T> grad = call.in_span<T>(4);
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  for_each_row(call.in(3), table[0], 2 + 2 * static_cast<double>(row), [&](int64_t k, int64_t at) {
    const T* const g = grad.data() + k * row;
    T squares = 0;
    for (int64_t i = 0; i < row; ++i) squares += g[i] * g[i];
    const T root = step.grown_root(m2[at], squares, row);
    T* const p = param.data() + at * row;
    T* const a = m1.data() + at * row;
    for (int64_t i = 0; i < row; ++i)
      step.element(g[i], root, p + i, a + i, new_grad.empty() ? nullptr : new_grad.data() + k * row + i);
  });
}

REGISTER(row_wise_sparse_adam) {
  auto spec = op<AdamArgs>("RowWiseSparseAdam");
  declare_adam_args(spec);
  declare_adam_table(spec);
  return spec
      .doc(
          "One step of Adam on those rows of a table that the gradient has, with one second moment for a row. Other "
          "rows stay as they are, their moments too. The learning rate is negative: the step is added.")
      .shape([](const AdamArgs&, ShapeCall& call) { row_wise_adam_shape(call); })
      .flops([](const auto&, const ShapeCall& c) {
        if (!c.known(3) || !c.known(4)) return 0.0;
        return (c.wants(3) ? 10 : 8) * input_size(c, 4) + 6 * input_size(c, 3) + 7;
      })
      .cpu(row_wise_adam<float>, row_wise_adam<double>)
      .example({"param=4,2", "moment_1=4,2", "moment_2=4,0..2", "indices=int64,3:2,0,2", "grad=3,2", "lr=1:-0.125",
                "iter=int64,1:4"})
      .example({"param=3", "moment_1=3", "moment_2=3,0..2", "indices=int32,1,2:1,2", "grad=1,2", "lr=float,1:-0.125",
                "iter=int32,1:0"},
               {"beta1=0.5", "beta2=0.75", "epsilon=0.125"})
      .example({"param=3,2", "moment_1=3,2", "moment_2=3,0..2", "indices=int64,0", "grad=0,2", "lr=1:-0.125",
                "iter=int64,1:1"});
}

}  // namespace
}  // namespace stepnet::cpu_adam
