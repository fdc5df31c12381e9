// Wngrad (Wu, Ward and Bottou 2018, "WNGrad: learn the learning rate in gradient descent"), with one number b for all
// of a parameter:
//
//   rate = lr / (b + epsilon),  param = param + rate g,  b = b + |g|^2 / (b + epsilon)
//
// rate and what is added may be outputs. SparseWngrad: the same on the rows of a table that the gradient has, in place,
// with b + |g|^2 / b. lr is NEGATIVE, as for Adagrad. No derivative: they change parameters.

#include "operators/optimizer/wngrad.h"

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/optimizer/optimizer.h"

namespace stepnet::cpu_wngrad {
namespace {

void shape(const WngradArgs&, ShapeCall& call) {
  require_one_value(call, 1, "seq_b");
  require_same_shape(call, 2, "grad", 0, "param");
  require_one_value(call, 3, "lr");
  for (const int o : {0, 3}) call.set_like(o, 0);
  call.set_like(1, 1);
  if (call.known(0)) call.set(2, call.dtype(0), Shape{1});
}

void sparse_shape(const WngradArgs&, ShapeCall& call) {
  require_one_value(call, 1, "seq_b");
  require_rows(call, 0, 2, 3);
  require_one_value(call, 4, "lr");
  for (const int o : {0, 1}) call.set_like(o, o);
}

template <class T>
void wngrad(const WngradArgs& args, In<T> param, In<T> b, In<T> grad, const Tensor& lr, Out<T> new_param, Out<T> new_b,
            Out<T> effective, Out<T> update) {
  const double base = static_cast<double>(b[0]), root = base + static_cast<double>(args.epsilon);
  const T rate = static_cast<T>(lr.item<double>() / root);
  parallel_for(static_cast<int64_t>(param.size()), 0.5, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T step = rate * grad[i];
      new_param[i] = param[i] + step;
      if (!update.empty()) update[i] = step;
    }
  });
  new_b[0] = static_cast<T>(base + vec_sum_squares(grad) / root);
  if (!effective.empty()) effective[0] = rate;
}

// Table and b are in place: the outputs hold their values.
template <class T>
void sparse_wngrad(const WngradArgs& args, Out<T> param, Out<T> b, Call& call) {
  const In<T> grad = call.in_span<T>(3);
  const double base = static_cast<double>(b[0]);
  const T rate = static_cast<T>(call.in(4).item<double>() / (base + static_cast<double>(args.epsilon)));
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  for_each_row(call.in(2), table[0], 2 + 0.5 * static_cast<double>(row), [&](int64_t k, int64_t at) {
    for (int64_t i = 0; i < row; ++i) param[at * row + i] += rate * grad[k * row + i];
  });
  if (!grad.empty()) b[0] = static_cast<T>(base + vec_sum_squares(grad) / base);  // b may be 0
}

void declare(OpBuilder<WngradArgs>& spec) {
  spec.arg("epsilon", &WngradArgs::epsilon, 1e-5f, "added to b", float_at_least(0))
      .input("param", "the parameter, any shape")
      .input("seq_b", "b, one value");
}

void declare_rest(OpBuilder<WngradArgs>& spec) {
  spec.input("lr", "the learning rate, one value, negative")
      .types({DType::float32, DType::float64})
      .output("output_param", "the parameter after the step")
      .output("output_seq_b", "b after the step")
      .no_gradient("it changes parameters");
}

REGISTER(wngrad) {
  auto spec = op<WngradArgs>("Wngrad");
  declare(spec);
  spec.input("grad", "the gradient, of the parameter's shape");
  declare_rest(spec);
  return spec.doc("One step of WNGrad. The learning rate is negative: the step is added.")
      .output("output_effective_lr", "lr / (b + epsilon), one value")
      .optional()
      .output("output_update", "what is added to the parameter")
      .optional()
      .in_place("param", "output_param")
      .in_place("seq_b", "output_seq_b")
      .shape(shape)
      .flops([](const auto&, const ShapeCall& c) { return 4 * input_size(c, 2) + 4; })
      .cpu(wngrad<float>, wngrad<double>)
      .example({"param=2,3", "seq_b=1,0.5..2", "grad=2,3", "lr=1:-0.125"})
      .example({"param=1", "seq_b=,0.5..2", "grad=1", "lr=float,1:-0.125"}, {"epsilon=0.125"})
      .example({"param=0", "seq_b=1,0.5..2", "grad=0", "lr=1:-0.125"});
}

REGISTER(sparse_wngrad) {
  auto spec = op<WngradArgs>("SparseWngrad");
  declare(spec);
  spec.input("indices", "any shape, K values from 0 to R - 1")
      .types({DType::int32, DType::int64})
      .input("grad", "the gradient of those rows: the indices' shape, then a row's");
  declare_rest(spec);
  return spec
      .doc(
          "One step of WNGrad on those rows of a table that the gradient has; all others stay as they are. The "
          "learning rate is negative: the step is added.")
      .must_be_in_place("param", "output_param")
      .must_be_in_place("seq_b", "output_seq_b")
      .shape(sparse_shape)
      .flops([](const auto&, const ShapeCall& c) { return 4 * input_size(c, 3) + 4; })
      .cpu(sparse_wngrad<float>, sparse_wngrad<double>)
      .example({"param=4,2", "seq_b=1,0.5..2", "indices=int64,3:2,0,2", "grad=3,2", "lr=1:-0.125"})
      .example({"param=3,2", "seq_b=1,0.5..2", "indices=int64,0", "grad=0,2", "lr=1:-0.125"});
}

}  // namespace
}  // namespace stepnet::cpu_wngrad
