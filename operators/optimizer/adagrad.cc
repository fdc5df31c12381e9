// Adagrad (Duchi, Hazan and Singer 2011, "Adaptive subgradient methods for online learning and stochastic
// optimization"):
//
//   h = decay h + g^2,  param = param + lr g / (sqrt(h) + epsilon)
//
// With weight_decay, of all three, g is the gradient + weight_decay param. lr / (sqrt(h) + epsilon) and what is added
// to the parameter may be outputs. lr is NEGATIVE, as for Adam. No derivative: it changes parameters.

#include "operators/optimizer/adagrad.h"

#include "core/operator/flops.h"

namespace stepnet::cpu_adagrad {
namespace {

void shape(const AdagradArgs&, ShapeCall& call) {
  require_same_shape(call, 1, "moment", 0, "param");
  require_same_shape(call, 2, "grad", 0, "param");
  require_one_value(call, 3, "lr");
  for (const int i : {0, 2, 3}) call.set_like(i, 0);
  call.set_like(1, 1);
}

template <class T>
void adagrad(const AdagradArgs& args, In<T> param, In<T> moment, In<T> grad, const Tensor& lr, Out<T> new_param,
             Out<T> new_moment, Out<T> effective, Out<T> update) {
  const T rate = static_cast<T>(lr.item<double>());
  parallel_for(static_cast<int64_t>(param.size()), 1.5, [&](int64_t begin, int64_t end) {
    adagrad_run(args, rate, end - begin, grad.data() + begin, param.data() + begin, moment.data() + begin,
                new_param.data() + begin, new_moment.data() + begin,
                effective.empty() ? nullptr : effective.data() + begin,
                update.empty() ? nullptr : update.data() + begin);
  });
}

// Of the two whose moments are of elements: `each` for an element of the gradient, input `grad`, and two for its decay.
double flops(const AdagradArgs& a, const ShapeCall& c, int grad, double each) {
  return input_size(c, grad) * (each + (a.weight_decay == 0 ? 0 : 2));
}

REGISTER(adagrad) {
  auto spec = op<AdagradArgs>("Adagrad");
  spec.arg("decay", &AdagradArgs::decay, 1.0f, "how much of the moment remains, from 0 to 1", float_between(0, 1))
      .input("param", "the parameter, any shape")
      .input("moment", "sum of the squares of the gradients so far, of the parameter's shape")
      .input("grad", "the gradient, of the parameter's shape");
  declare_adagrad_lr(spec);
  return spec.output("output_effective_lr", "lr / (sqrt(h) + epsilon), like param")
      .optional()
      .output("output_update", "what is added to the parameter")
      .optional()
      .doc(
          "One step of Adagrad. The learning rate is negative: the step is added. Where the moment and epsilon are "
          "both 0 the result is not a number.")
      .in_place("param", "output_param")
      .in_place("moment", "output_moment_1")
      .shape(shape)
      .flops([](const AdagradArgs& a, const ShapeCall& c) {
        return flops(a, c, 2, 8 + int{c.wants(2)} + 2 * int{c.wants(3)});
      })
      .cpu(adagrad<float>, adagrad<double>)
      .example({"param=2,3", "moment=2,3,0..2", "grad=2,3", "lr=1:-0.125"})
      .example({"param=1", "moment=1,0..2", "grad=1", "lr=float,1:-0.125"}, {"decay=0.5", "epsilon=0.125"})
      .example({"param=2,3", "moment=2,3,0..2", "grad=2,3", "lr=1:-0.125"}, {"weight_decay=0.25"})
      .example({"param=0", "moment=0", "grad=0", "lr=1:-0.125"});
}

// SparseAdagrad: Adagrad, without decay, on the rows of a table that the gradient has, in place:
//
//   h[i] = h[i] + g^2,  param[i] = param[i] + lr g / (sqrt(h[i]) + epsilon)    for each index i and its row g
//
// A row whose gradient is 0 changes nothing in dense Adagrad either, so with distinct indices the two agree. No
// derivative: it changes parameters.

void sparse_shape(const AdagradArgs&, ShapeCall& call) {
  require_same_shape(call, 1, "moment", 0, "param");
  require_rows(call, 0, 2, 3);
  require_one_value(call, 4, "lr");
  call.set_like(0, 0);
  call.set_like(1, 1);
}

// Table and moment are in place: the outputs hold their values.
template <class T>
void sparse_adagrad(const AdagradArgs& args, Out<T> param, Out<T> moment, Call& call) {
  const In<T> grad = call.in_span<T>(3);
  const T rate = static_cast<T>(call.in(4).item<double>());
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  for_each_row(call.in(2), table[0], 2 + 1.5 * static_cast<double>(row), [&](int64_t k, int64_t at) {
    T* const p = param.data() + at * row;
    T* const h = moment.data() + at * row;
    adagrad_run(args, rate, row, grad.data() + k * row, p, h, p, h);
  });
}

REGISTER(sparse_adagrad) {
  auto spec = op<AdagradArgs>("SparseAdagrad");
  spec.refuses("decay", 1.0F, "would let the moments decay, which the public format refuses, too");
  declare_sparse_adagrad(spec, "sum of the squares of the gradients so far, of the table's shape");
  return spec
      .doc(
          "One step of Adagrad on those rows of a table that the gradient has; all others stay as they are. The "
          "learning rate is negative: the step is added.")
      .shape(sparse_shape)
      .flops([](const AdagradArgs& a, const ShapeCall& c) { return flops(a, c, 3, 7); })
      .cpu(sparse_adagrad<float>, sparse_adagrad<double>)
      .example({"param=4,2", "moment=4,2,0..2", "indices=int64,3:2,0,2", "grad=3,2", "lr=1:-0.125"})
      .example({"param=3", "moment=3,0..2", "indices=int32,1,2:1,2", "grad=1,2", "lr=float,1:-0.125"},
               {"epsilon=0.125"})
      .example({"param=4,2", "moment=4,2,0..2", "indices=int64,3:2,0,2", "grad=3,2", "lr=1:-0.125"},
               {"weight_decay=0.25"})
      .example({"param=3,2", "moment=3,2,0..2", "indices=int64,0", "grad=0,2", "lr=1:-0.125"});
}

// RowWiseSparseAdagrad: SparseAdagrad with one moment for each row of the table, in place:
//
//   h[i] = h[i] + mean(g^2),  param[i] = param[i] + lr g / (sqrt(h[i]) + epsilon)    for each index i and its row g
//
// A table of R rows needs R moments instead of one for each element. With counter_halflife the weight decay of a row
// is multiplied by counter_halflife / counter[i], unless its counter is 0. No derivative: it changes parameters.

void row_wise_shape(const AdagradArgs& args, ShapeCall& call) {
  require_rows(call, 0, 2, 3);
  if (call.known(0) && call.known(1))
    require(call.shape(1).size() == call.shape(0)[0], "moment has shape {}, but param {} needs one value for each row",
            call.shape(1), call.shape(0));
  require(args.counter_halflife <= 0 || call.has(5), "argument \"counter_halflife\" needs the input counter");
  if (args.counter_halflife > 0 && call.known(0) && call.known(5))
    require(call.shape(5).size() == call.shape(0)[0], "counter has shape {}, but param {} needs one value for each row",
            call.shape(5), call.shape(0));
  require_one_value(call, 4, "lr");
  call.set_like(0, 0);
  call.set_like(1, 1);
}

// One step of a row.
template <class T>
void row_step(const AdagradArgs& args, T rate, T decay, int64_t size, const T* grad, T* param, T* moment) {
  const auto g = [&](int64_t i) { return decay == 0 ? grad[i] : grad[i] + decay * param[i]; };
  T sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += g(i) * g(i);
  const T h = *moment += size > 0 ? sum / static_cast<T>(size) : T{0};
  const T step = rate / (std::sqrt(h) + static_cast<T>(args.epsilon));
  for (int64_t i = 0; i < size; ++i) param[i] += step * g(i);
}

// How often each row's index was met, if that counts; else 0.
double count_of(const AdagradArgs& args, const Call& call, int64_t row) {
  if (args.counter_halflife <= 0) return 0;
  const Tensor& counter = call.in(5);
  return counter.dtype() == DType::float64 ? counter.data<double>()[row]
                                           : static_cast<double>(counter.data<float>()[row]);
}

// Table and moment are in place: the outputs hold their values.
template <class T>
void row_wise(const AdagradArgs& args, Out<T> param, Out<T> moment, Call& call) {
  const T rate = static_cast<T>(call.in(4).item<double>());
  const In<T> grad = call.in_span<T>(3);
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  for_each_row(call.in(2), table[0], 5 + static_cast<double>(row), [&](int64_t k, int64_t at) {
    const T decay = static_cast<T>(row_decay(args, count_of(args, call, at)));
    row_step(args, rate, decay, row, grad.data() + k * row, param.data() + at * row, moment.data() + at);
  });
}

// A moment for each index.
std::vector<int64_t> row_wise_gpu_workspace(const AdagradArgs& a, const Call& c) {
  if (a.weight_decay != 0) return {};
  return {static_cast<int64_t>(dtype_size(c.in(0).dtype())) * c.in(2).size()};
}

REGISTER(row_wise_sparse_adagrad) {
  auto spec = op<AdagradArgs>("RowWiseSparseAdagrad");
  declare_sparse_adagrad(spec, "R values in any shape: for each row, the sum so far of its gradients' mean squares");
  return spec.input("counter", "R values in any shape: how often each row's index was met; read by counter_halflife")
      .types({DType::float64, DType::float32})
      .optional()
      .arg("counter_halflife", &AdagradArgs::counter_halflife, int64_t{-1},
           "over a row's counter: what its weight decay is multiplied by; not greater than 0: it is not")
      .doc(
          "One step of Adagrad, with one moment for a whole row, on those rows of a table that the gradient has; all "
          "others stay as they are. The learning rate is negative: the step is added.")
      .shape(row_wise_shape)
      .gpu_workspace(row_wise_gpu_workspace)
      .flops([](const AdagradArgs& a, const ShapeCall& c) {
        const bool counts = a.weight_decay != 0 && a.counter_halflife > 0;
        return flops(a, c, 3, 4) + (counts ? 7 : 5) * input_size(c, 2);
      })
      .cpu(row_wise<float>, row_wise<double>)
      .example({"param=4,2", "moment=4,0.5..2", "indices=int64,3:2,0,2", "grad=3,2", "lr=1:-0.125"})
      .example({"param=3", "moment=3,1,0.5..2", "indices=int32,1,2:1,2", "grad=1,2", "lr=float,1:-0.125"},
               {"epsilon=0.125"})
      .example({"param=4,2", "moment=4,0.5..2", "indices=int64,3:2,0,2", "grad=3,2", "lr=1:-0.125"},
               {"weight_decay=0.25"})
      .example({"param=4,2", "moment=4,0.5..2", "indices=int64,3:2,0,2", "grad=3,2", "lr=1:-0.125",
                "counter=double,4:1,0,8,2"},
               {"weight_decay=0.25", "counter_halflife=2"})
      .example({"param=3,0", "moment=3,0.5..2", "indices=int64,2:1,1", "grad=2,0", "lr=1:-0.125"});
}

}  // namespace
}  // namespace stepnet::cpu_adagrad
