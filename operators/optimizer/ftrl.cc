// Ftrl (McMahan et al. 2013, "Ad click prediction: a view from the trenches"), with n and z kept of each element:
//
//   z = z + g - (sqrt(n + g^2) - sqrt(n)) / alpha param,  n = n + g^2
//   param = -(z - sign(z) lambda1) / ((beta + sqrt(n)) / alpha + lambda2), or 0 where |z| <= lambda1
//
// GFtrl: columns of a matrix are groups, which are 0 together:
//
//   param = -z (1 - lambda1 sqrt(rows) / |z|) / (...), or 0 where the column's norm |z| <= lambda1 sqrt(rows)
//
// SparseFtrl: Ftrl on the rows of a table that the gradient has, in place. No derivative: they change parameters.

#include "operators/optimizer/ftrl.h"

#include "core/operator/flops.h"

namespace stepnet::cpu_ftrl {
namespace {

void check_inputs(const FtrlArgs& args, ShapeCall& call, bool sparse) {
  const int grad = sparse ? 3 : 2;
  if (sparse)
    require_rows(call, 0, 2, grad);
  else
    require_same_shape(call, grad, "grad", 0, "var");
  if (call.known(0) && call.known(1))
    require(call.shape(1).size() == 2 * call.shape(0).size(),
            "n_z must hold two values for each of var's, as [..., 2], but has shape {}, and var {}", call.shape(1),
            call.shape(0));
  require_one_value(call, grad + 1, "alpha");
  require(!args.alpha || !call.has(grad + 1), "alpha is both an argument and an input; leave one out");
  for (const int o : {0, 1}) call.set_like(o, o);
}

double flops(const ShapeCall& call, double each, int grad) {
  return each * (call.known(grad) ? static_cast<double>(call.shape(grad).size()) : 0);
}

// Throws Error if it is not positive.
double alpha_of(const FtrlArgs& args, const Call& call, int i) {
  const double alpha = call.has(i) ? call.in(i).item<double>() : double{args.alpha.value_or(kFtrlAlpha)};
  require(alpha > 0, "alpha must be greater than 0, but is {}", alpha);
  return alpha;
}

template <class T>
void ftrl(const FtrlArgs& args, In<T> param, In<T> nz, In<T> grad, Call& call) {
  const FtrlStep<T> step(args, alpha_of(args, call, 3));
  const Out<T> new_param = call.out_span<T>(0), new_nz = call.out_span<T>(1);
  parallel_for(static_cast<int64_t>(param.size()), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      step(&param[i], nz.data() + 2 * i, grad[i], &new_param[i], new_nz.data() + 2 * i);
  });
}

template <class T>
void gftrl(const FtrlArgs& args, In<T> param, In<T> nz, In<T> grad, Call& call) {
  const FtrlStep<T> step(args, alpha_of(args, call, 3));
  const Out<T> new_param = call.out_span<T>(0), new_nz = call.out_span<T>(1);
  const Shape& shape = call.in(0).shape();
  const int64_t rows = shape[0], columns = shape.size_between(1, shape.rank());
  parallel_for(columns, 8 * static_cast<double>(rows), [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j)
      gftrl_column(step, rows, columns, param.data() + j, nz.data() + 2 * j, grad.data() + j, new_param.data() + j,
                   new_nz.data() + 2 * j);
  });
}

// Table and n_z are in place: the outputs hold their values.
template <class T>
void sparse_ftrl(const FtrlArgs& args, Out<T> param, Out<T> nz, Call& call) {
  const FtrlStep<T> step(args, alpha_of(args, call, 4));
  const In<T> grad = call.in_span<T>(3);
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  for_each_row(call.in(2), table[0], 2 + 4 * static_cast<double>(row), [&](int64_t k, int64_t at) {
    for (int64_t i = 0; i < row; ++i) {
      T* const p = param.data() + at * row + i;
      T* const state = nz.data() + 2 * (at * row + i);
      step(p, state, grad[k * row + i], p, state);
    }
  });
}

void declare_state(OpBuilder<FtrlArgs>& spec) {
  spec.arg("alpha", &FtrlArgs::alpha, {}, "the rate at the start, positive; 0.005 if it is not an input either")
      .arg("beta", &FtrlArgs::beta, 1.0f, "delays the rate's fall", float_at_least(0))
      .arg("lambda1", &FtrlArgs::lambda1, 0.001f, "the weight of the parameters' sizes: makes zeros", float_at_least(0))
      .arg("lambda2", &FtrlArgs::lambda2, 0.001f, "the weight of their squares", float_at_least(0))
      .input("var", "the parameter, any shape")
      .input("n_z", "var's shape and 2: the sum of the gradient's squares, and z");
}

void declare_rest(OpBuilder<FtrlArgs>& spec) {
  spec.input("alpha", "in place of the argument, one value")
      .types({DType::float32, DType::float64})
      .optional()
      .output("output_var", "the parameter after the step")
      .output("output_n_z", "n and z after the step")
      .no_gradient("it changes parameters");
}

void declare_dense(OpBuilder<FtrlArgs>& spec) {
  declare_state(spec);
  spec.input("grad", "the gradient, of the parameter's shape");
  declare_rest(spec);
  spec.in_place("var", "output_var").in_place("n_z", "output_n_z");
}

REGISTER(ftrl) {
  auto spec = op<FtrlArgs>("Ftrl");
  declare_dense(spec);
  return spec
      .doc(
          "One step of FTRL-proximal. It has no learning rate beside alpha, and the parameter's value before matters "
          "little: it follows from z.")
      .shape([](const FtrlArgs& args, ShapeCall& call) { check_inputs(args, call, false); })
      .flops([](const auto&, const ShapeCall& c) { return flops(c, 14, 2); })
      .cpu(ftrl<float>, ftrl<double>)
      .example({"var=2,3", "n_z=2,3,2,0..2", "grad=2,3"})
      .example({"var=1", "n_z=1,2,0..2", "grad=1", "alpha=float,1:0.125"}, {"beta=0.5", "lambda1=0.25", "lambda2=0.5"})
      .example({"var=0", "n_z=0,2,0..2", "grad=0"}, {"alpha=0.5"});
}

REGISTER(gftrl) {
  auto spec = op<FtrlArgs>("GFtrl");
  declare_dense(spec);
  return spec
      .doc(
          "One step of FTRL-proximal with group lasso: var is [outputs, inputs...], and the weights of one input are 0 "
          "together.")
      .shape([](const FtrlArgs& args, ShapeCall& call) {
        check_inputs(args, call, false);
        if (call.known(0)) require(call.shape(0).rank() >= 1, "var is a single value, which has no columns");
      })
      .flops([](const auto&, const ShapeCall& c) {
        if (!c.known(2) || c.shape(2).size() == 0) return 0.0;
        return flops(c, 16, 2) + 3 * static_cast<double>(c.shape(2).size_between(1, c.shape(2).rank()));
      })
      .cpu(gftrl<float>, gftrl<double>)
      .example({"var=2,3", "n_z=2,3,2,0..2", "grad=2,3"})
      .example({"var=1", "n_z=1,2,0..2", "grad=1", "alpha=float,1:0.125"}, {"beta=0.5", "lambda1=0.25", "lambda2=0.5"})
      .example({"var=0,2", "n_z=0,2,2,0..2", "grad=0,2"}, {"alpha=0.5"});
}

REGISTER(sparse_ftrl) {
  auto spec = op<FtrlArgs>("SparseFtrl");
  declare_state(spec);
  spec.input("indices", "any shape, K values from 0 to R - 1; each repetition is a step of its own, in order")
      .types({DType::int32, DType::int64})
      .input("grad", "the gradient of those rows: the indices' shape, then a row's");
  declare_rest(spec);
  return spec
      .doc("One step of FTRL-proximal on those rows of a table that the gradient has; all others stay as they are.")
      .must_be_in_place("var", "output_var")
      .must_be_in_place("n_z", "output_n_z")
      .shape([](const FtrlArgs& args, ShapeCall& call) { check_inputs(args, call, true); })
      .flops([](const auto&, const ShapeCall& c) { return flops(c, 14, 3); })
      .cpu(sparse_ftrl<float>, sparse_ftrl<double>)
      .example({"var=4,2", "n_z=4,2,2,0..2", "indices=int64,3:2,0,2", "grad=3,2"}, {"alpha=0.125"})
      .example({"var=3", "n_z=3,2,0..2", "indices=int32,2:1,2", "grad=2", "alpha=float,1:0.125"})
      .example({"var=3,2", "n_z=3,2,2,0..2", "indices=int64,0", "grad=0,2"});
}

}  // namespace
}  // namespace stepnet::cpu_ftrl
