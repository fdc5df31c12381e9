// Storm (Cutkosky and Orabona 2019, "Momentum-based variance reduction in non-convex SGD"), in the public format's form
// with one gradient:
//
//   s = s + |g|^2,  rate = lr / (beta + s)^(1/3),  alpha = momentum rate^2
//   m = g + (1 - alpha) (m - g),  param = param + rate m
//
// SparseStorm: the same on the rows of a table that the gradient has, in place. lr is NEGATIVE, as for Adagrad. No
// derivative: they change parameters.

#include "operators/optimizer/storm.h"

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"

namespace stepnet::cpu_storm {
namespace {

void check_inputs(ShapeCall& call, bool sparse) {
  require_same_shape(call, 1, "moment", 0, "param");
  require_one_value(call, 2, "grad_sq_sum");
  if (sparse)
    require_rows(call, 0, 4, 3);
  else
    require_same_shape(call, 3, "grad", 0, "param");
  require_one_value(call, sparse ? 5 : 4, "lr");
  for (int i = 0; i < 3; ++i) call.set_like(i, i);
}

double flops(const ShapeCall& call) { return call.known(3) ? 7 * static_cast<double>(call.shape(3).size()) + 6 : 0; }

template <class T>
void storm(const StormArgs& args, In<T> param, In<T> moment, In<T> before, In<T> grad, const Tensor& lr,
           Out<T> new_param, Out<T> new_moment, Out<T> sum) {
  const double all = static_cast<double>(before[0]) + vec_sum_squares(grad);
  sum[0] = static_cast<T>(all);
  const StormStep<T> step(args, lr.item<double>(), all);
  parallel_for(static_cast<int64_t>(param.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) step(grad[i], &param[i], &moment[i], &new_param[i], &new_moment[i]);
  });
}

// Table, moment and sum are in place: the outputs hold their values.
template <class T>
void sparse_storm(const StormArgs& args, Out<T> param, Out<T> moment, Out<T> sum, Call& call) {
  const In<T> grad = call.in_span<T>(3);
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  check_indices(call.in(4), table[0]);  // before the sum changes
  const double all = static_cast<double>(sum[0]) + vec_sum_squares(grad);
  sum[0] = static_cast<T>(all);
  const StormStep<T> step(args, call.in(5).item<double>(), all);
  for_each_row(call.in(4), table[0], 2 + static_cast<double>(row), [&](int64_t k, int64_t at) {
    for (int64_t i = 0; i < row; ++i) {
      T* const p = param.data() + at * row + i;
      T* const m = moment.data() + at * row + i;
      step(grad[k * row + i], p, m, p, m);
    }
  });
}

void declare_state(OpBuilder<StormArgs>& spec) {
  spec.arg("momentum", &StormArgs::momentum, 10.0f, "how fast the moment forgets", float_at_least(0))
      .arg("beta", &StormArgs::beta, 0.1f, "added to the sum of squares", float_at_least(0))
      .input("param", "the parameter, any shape")
      .input("moment", "the moment, of the parameter's shape")
      .input("grad_sq_sum", "the sum of the squares of all gradients so far, one value");
}

void declare_rest(OpBuilder<StormArgs>& spec) {
  spec.input("lr", "the learning rate, one value, negative")
      .types({DType::float32, DType::float64})
      .output("output_param", "the parameter after the step")
      .output("output_moment", "the moment after the step")
      .output("output_grad_sq_sum", "the sum after the step")
      .no_gradient("it changes parameters");
}

REGISTER(storm) {
  auto spec = op<StormArgs>("Storm");
  declare_state(spec);
  spec.input("grad", "the gradient, of the parameter's shape");
  declare_rest(spec);
  return spec.doc("One step of STORM. The learning rate is negative: the step is added.")
      .in_place("param", "output_param")
      .in_place("moment", "output_moment")
      .in_place("grad_sq_sum", "output_grad_sq_sum")
      .shape([](const StormArgs&, ShapeCall& call) { check_inputs(call, false); })
      .flops([](const auto&, const ShapeCall& c) { return flops(c); })
      .cpu(storm<float>, storm<double>)
      .example({"param=2,3", "moment=2,3", "grad_sq_sum=1,0..2", "grad=2,3", "lr=1:-0.125"})
      .example({"param=1", "moment=1", "grad_sq_sum=,0..2", "grad=1", "lr=float,1:-0.125"},
               {"momentum=0.5", "beta=0.25"})
      .example({"param=0", "moment=0", "grad_sq_sum=1,0..2", "grad=0", "lr=1:-0.125"});
}

REGISTER(sparse_storm) {
  auto spec = op<StormArgs>("SparseStorm");
  declare_state(spec);
  spec.input("grad", "the gradient of those rows: the indices' shape, then a row's")
      .input("indices", "any shape, K values from 0 to R - 1; each repetition is a step of its own, in order")
      .types({DType::int32, DType::int64});
  declare_rest(spec);
  return spec
      .doc(
          "One step of STORM on those rows of a table that the gradient has; all others stay as they are. The learning "
          "rate is negative: the step is added.")
      .must_be_in_place("param", "output_param")
      .must_be_in_place("moment", "output_moment")
      .must_be_in_place("grad_sq_sum", "output_grad_sq_sum")
      .shape([](const StormArgs&, ShapeCall& call) { check_inputs(call, true); })
      .flops([](const auto&, const ShapeCall& c) { return flops(c); })
      .cpu(sparse_storm<float>, sparse_storm<double>)
      .example({"param=4,2", "moment=4,2", "grad_sq_sum=1,0..2", "grad=3,2", "indices=int64,3:2,0,2", "lr=1:-0.125"})
      .example({"param=3,2", "moment=3,2", "grad_sq_sum=1,0..2", "grad=0,2", "indices=int64,0", "lr=1:-0.125"});
}

}  // namespace
}  // namespace stepnet::cpu_storm
