// Adagrad (Duchi, Hazan and Singer 2011, "Adaptive subgradient methods for online learning and stochastic
// optimization"):
//
//   h = decay h + g^2,  param = param + lr g / (sqrt(h) + epsilon)
//
// lr is NEGATIVE, as for Adam. No derivative: it changes parameters.

#include "operators/optimizer/adagrad.h"
#include "core/operator/flops.h"

namespace stepnet {
namespace {

void shape(const AdagradArgs&, ShapeCall& call) {
  require_same_shape(call, 1, "moment", 0, "param");
  require_same_shape(call, 2, "grad", 0, "param");
  require_one_value(call, 3, "lr");
  call.set_like(0, 0);
  call.set_like(1, 1);
}

template <class T>
void adagrad(const AdagradArgs& args, In<T> param, In<T> moment, In<T> grad, const Tensor& lr, Out<T> new_param,
             Out<T> new_moment) {
  const T rate = static_cast<T>(lr.item<double>());
  parallel_for(static_cast<int64_t>(param.size()), 1.5, [&](int64_t begin, int64_t end) {
    adagrad_run(args, rate, end - begin, grad.data() + begin, param.data() + begin, moment.data() + begin,
                new_param.data() + begin, new_moment.data() + begin);
  });
}

REGISTER(adagrad) {
  auto spec = op<AdagradArgs>("Adagrad");
  spec.arg("decay", &AdagradArgs::decay, 1.0f, "how much of the moment remains, from 0 to 1", float_between(0, 1))
      .input("param", "the parameter, any shape")
      .input("moment", "sum of the squares of the gradients so far, of the parameter's shape")
      .input("grad", "the gradient, of the parameter's shape");
  declare_adagrad_lr(spec);
  return spec
      .doc(
          "One step of Adagrad. The learning rate is negative: the step is added. Where the moment and epsilon are "
          "both 0 the result is not a number.")
      .in_place("param", "output_param")
      .in_place("moment", "output_moment_1")
      .shape(shape)
      .flops(flops_per_input(8, 2))
      .cpu(adagrad<float>, adagrad<double>)
      .example({"param=2,3", "moment=2,3,0..2", "grad=2,3", "lr=1:-0.125"})
      .example({"param=1", "moment=1,0..2", "grad=1", "lr=float,1:-0.125"}, {"decay=0.5", "epsilon=0.125"})
      .example({"param=0", "moment=0", "grad=0", "lr=1:-0.125"});
}

}  // namespace
}  // namespace stepnet
