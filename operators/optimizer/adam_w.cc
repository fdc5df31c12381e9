// AdamW (Loshchilov and Hutter 2019, "Decoupled weight decay regularization"): Adam, and beside its step each parameter
// shrinks by a share of itself that no moment sees.
//
//   t = iter + 1, r = sqrt(1 - beta2^t) / (1 - beta1^t)
//   m1 = beta1 m1 + (1 - beta1) g,  m2 = beta2 m2 + (1 - beta2) g^2
//   param = param + lr (weight_decay param + r m1 / (sqrt(m2) + epsilon))
//
// lr is NEGATIVE, as for Adam. No derivative: it changes parameters.

#include "core/operator/flops.h"
#include "operators/optimizer/adam.h"

namespace stepnet {
namespace {

REGISTER(adam_w) {
  auto spec = op<AdamArgs>("AdamW");
  declare_adam_args(spec);
  spec.arg("weight_decay", &AdamArgs::weight_decay, 0.01f, "times the learning rate: the share that a parameter loses",
           float_at_least(0));
  declare_dense_adam(spec);
  return spec
      .doc(
          "One step of Adam with decoupled weight decay. The learning rate is negative: the step is added. Decay that "
          "goes through the moments, as a penalty on the squares of the parameters does, is made with Adam and a "
          "WeightedSum before it that adds the parameter times the decay to the gradient.")
      .flops([](const auto&, const ShapeCall& c) { return 14 * input_size(c, 3) + 8; })
      .example({"param=2,3", "moment_1=2,3", "moment_2=2,3,0..2", "grad=2,3", "lr=1:-0.125", "iter=int64,1:4"})
      .example({"param=1", "moment_1=1", "moment_2=1,0..2", "grad=1", "lr=float,1:-0.125", "iter=int32,1:0"},
               {"weight_decay=0.5"})
      .example({"param=0", "moment_1=0", "moment_2=0", "grad=0", "lr=1:-0.125", "iter=int64,1:1"});
}

}  // namespace
}  // namespace stepnet
