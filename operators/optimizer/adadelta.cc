// Adadelta (Zeiler 2012, "ADADELTA: an adaptive learning rate method"):
//
//   h = decay h + (1 - decay) g^2,  step = sqrt(d + epsilon) / sqrt(h + epsilon) g
//   param = param + lr step,  d = decay d + (1 - decay) step^2
//
// SparseAdadelta: the same on the rows of a table that the gradient has, in place. lr is NEGATIVE, as for Adagrad. No
// derivative: they change parameters.

#include "operators/optimizer/adadelta.h"

#include "core/operator/flops.h"

namespace stepnet::cpu_adadelta {
namespace {

// `sparse`: indices stand before the gradient.
void check_inputs(ShapeCall& call, bool sparse) {
  const int grad = sparse ? 4 : 3;
  require_same_shape(call, 1, "moment", 0, "param");
  require_same_shape(call, 2, "moment_delta", 0, "param");
  if (sparse)
    require_rows(call, 0, 3, grad);
  else
    require_same_shape(call, grad, "grad", 0, "param");
  require_one_value(call, grad + 1, "lr");
  for (int i = 0; i < 3; ++i) call.set_like(i, i);
}

template <class T>
void adadelta(const AdadeltaArgs& args, In<T> param, In<T> moment, In<T> delta, In<T> grad, const Tensor& lr,
              Out<T> new_param, Out<T> new_moment, Out<T> new_delta) {
  const T rate = static_cast<T>(lr.item<double>());
  parallel_for(static_cast<int64_t>(param.size()), 3, [&](int64_t begin, int64_t end) {
    adadelta_run(args, rate, end - begin, grad.data() + begin, param.data() + begin, moment.data() + begin,
                 delta.data() + begin, new_param.data() + begin, new_moment.data() + begin, new_delta.data() + begin);
  });
}

// Table and moments are in place: the outputs hold their values.
template <class T>
void sparse_adadelta(const AdadeltaArgs& args, Out<T> param, Out<T> moment, Out<T> delta, Call& call) {
  const In<T> grad = call.in_span<T>(4);
  const T rate = static_cast<T>(call.in(5).item<double>());
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  for_each_row(call.in(3), table[0], 2 + 3 * static_cast<double>(row), [&](int64_t k, int64_t at) {
    T* const p = param.data() + at * row;
    T* const h = moment.data() + at * row;
    T* const d = delta.data() + at * row;
    adadelta_run(args, rate, row, grad.data() + k * row, p, h, d, p, h, d);
  });
}

void declare_state(OpBuilder<AdadeltaArgs>& spec) {
  spec.arg("epsilon", &AdadeltaArgs::epsilon, 1e-5f, "added under the square roots", float_at_least(0))
      .arg("decay", &AdadeltaArgs::decay, 0.95f, "how much of the two means remains, from 0 to 1", float_between(0, 1))
      .input("param", "the parameter, any shape")
      .input("moment", "running mean of the gradient's square, of the parameter's shape")
      .input("moment_delta", "running mean of the steps' square, of the parameter's shape");
}

void declare_rest(OpBuilder<AdadeltaArgs>& spec) {
  spec.input("lr", "the learning rate, one value, negative")
      .types({DType::float32, DType::float64})
      .output("output_param", "the parameter after the step")
      .output("output_moment", "the gradient's mean square after the step")
      .output("output_moment_delta", "the steps' mean square after the step")
      .no_gradient("it changes parameters");
}

REGISTER(adadelta) {
  auto spec = op<AdadeltaArgs>("Adadelta");
  declare_state(spec);
  spec.input("grad", "the gradient, of the parameter's shape");
  declare_rest(spec);
  return spec.doc("One step of Adadelta. The learning rate is negative: the step is added.")
      .in_place("param", "output_param")
      .in_place("moment", "output_moment")
      .in_place("moment_delta", "output_moment_delta")
      .shape([](const AdadeltaArgs&, ShapeCall& call) { check_inputs(call, false); })
      .flops(flops_per_input(16, 3))
      .cpu(adadelta<float>, adadelta<double>)
      .example({"param=2,3", "moment=2,3,0..2", "moment_delta=2,3,0..2", "grad=2,3", "lr=1:-0.125"})
      .example({"param=1", "moment=1,0..2", "moment_delta=1,0..2", "grad=1", "lr=float,1:-0.125"},
               {"decay=0.5", "epsilon=0.125"})
      .example({"param=0", "moment=0", "moment_delta=0", "grad=0", "lr=1:-0.125"});
}

REGISTER(sparse_adadelta) {
  auto spec = op<AdadeltaArgs>("SparseAdadelta");
  declare_state(spec);
  spec.input("indices", "any shape, K values from 0 to R - 1; each repetition is a step of its own, in order")
      .types({DType::int32, DType::int64})
      .input("grad", "the gradient of those rows: the indices' shape, then a row's");
  declare_rest(spec);
  return spec
      .doc(
          "One step of Adadelta on those rows of a table that the gradient has; all others stay as they are. The "
          "learning rate is negative: the step is added.")
      .must_be_in_place("param", "output_param")
      .must_be_in_place("moment", "output_moment")
      .must_be_in_place("moment_delta", "output_moment_delta")
      .shape([](const AdadeltaArgs&, ShapeCall& call) { check_inputs(call, true); })
      .flops(flops_per_input(16, 4))
      .cpu(sparse_adadelta<float>, sparse_adadelta<double>)
      .example(
          {"param=4,2", "moment=4,2,0..2", "moment_delta=4,2,0..2", "indices=int64,3:2,0,2", "grad=3,2", "lr=1:-0.125"})
      .example({"param=3,2", "moment=3,2,0..2", "moment_delta=3,2,0..2", "indices=int64,0", "grad=0,2", "lr=1:-0.125"});
}

}  // namespace
}  // namespace stepnet::cpu_adadelta
