// Adam (Kingma and Ba 2015, "Adam: a method for stochastic optimization", in the form with one corrected rate):
//
//   t = iter + 1, r = sqrt(1 - beta2^t) / (1 - beta1^t)
//   m1 = beta1 m1 + (1 - beta1) g,  m2 = beta2 m2 + (1 - beta2) g^2
//   param = param + lr r m1 / (sqrt(m2) + epsilon)
//
// lr is NEGATIVE, as for WeightedSum. No derivative: it changes parameters.

#include "operators/optimizer/adam.h"
#include "core/operator/flops.h"

namespace stepnet {
namespace {

REGISTER(adam) {
  auto spec = op<AdamArgs>("Adam");
  declare_adam_args(spec);
  declare_dense_adam(spec);
  return spec
      .doc(
          "One step of Adam. The learning rate is negative: the step is added. Where the second moment and epsilon are "
          "both 0 the result is not a number.")
      .flops([](const auto&, const ShapeCall& c) { return 12 * input_size(c, 3) + 7; })
      .example({"param=2,3", "moment_1=2,3", "moment_2=2,3,0..2", "grad=2,3", "lr=1:-0.125", "iter=int64,1:4"})
      .example({"param=1", "moment_1=1", "moment_2=1,0..2", "grad=1", "lr=float,1:-0.125", "iter=int32,1:0"},
               {"beta1=0.5", "beta2=0.75", "epsilon=0.125"})
      .example({"param=0", "moment_1=0", "moment_2=0", "grad=0", "lr=1:-0.125", "iter=int64,1:1"});
}

}  // namespace
}  // namespace stepnet
