// SparseAdagrad: Adagrad, without decay, on the rows of a table that the gradient has, in place:
//
//   h[i] = h[i] + g^2,  param[i] = param[i] + lr g / (sqrt(h[i]) + epsilon)    for each index i and its row g
//
// A row whose gradient is 0 changes nothing in dense Adagrad either, so with distinct indices the two agree. No
// derivative: it changes parameters.

#include "core/operator/flops.h"
#include "operators/optimizer/adagrad.h"

namespace stepnet {
namespace {

void shape(const AdagradArgs&, ShapeCall& call) {
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
  declare_sparse_adagrad(spec, "sum of the squares of the gradients so far, of the table's shape");
  return spec
      .doc(
          "One step of Adagrad on those rows of a table that the gradient has; all others stay as they are. The "
          "learning rate is negative: the step is added.")
      .shape(shape)
      .flops(flops_per_input(7, 3))
      .cpu(sparse_adagrad<float>, sparse_adagrad<double>)
      .example({"param=4,2", "moment=4,2,0..2", "indices=int64,3:2,0,2", "grad=3,2", "lr=1:-0.125"})
      .example({"param=3", "moment=3,0..2", "indices=int32,1,2:1,2", "grad=1,2", "lr=float,1:-0.125"},
               {"epsilon=0.125"})
      .example({"param=3,2", "moment=3,2,0..2", "indices=int64,0", "grad=0,2", "lr=1:-0.125"});
}

}  // namespace
}  // namespace stepnet
