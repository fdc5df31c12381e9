// NAdam (Dozat 2016, "Incorporating Nesterov momentum into Adam"), as torch.optim.NAdam takes its steps:
//
//   t = iter + 1, mu(t) = beta1 (1 - 0.96^(t momentum_decay) / 2), product = product mu(t)
//   m1 = beta1 m1 + (1 - beta1) g,  m2 = beta2 m2 + (1 - beta2) g^2
//   param = param + lr ((1 - mu(t)) / (1 - product) g + mu(t + 1) / (1 - product mu(t + 1)) m1)
//                      / (sqrt(m2 / (1 - beta2^t)) + epsilon)
//
// The product is 1 before the first step. lr is NEGATIVE, as for Adam. No derivative: it changes parameters.
#include "operators/optimizer/nadam.h"

#include "core/operator/flops.h"

namespace stepnet::cpu_nadam {
namespace {

template <class T>
void update(const NAdamArgs& args, In<T> param, In<T> m1, In<T> m2, In<T> product, In<T> grad, const Tensor& lr,
            const Tensor& iter, Out<T> new_param, Out<T> new_m1, Out<T> new_m2, Out<T> new_product) {
  const auto step = NAdamStep<T>::of(args, lr, iter, static_cast<double>(product[0]));
  parallel_for(static_cast<int64_t>(param.size()), 2, [&](int64_t begin, int64_t end) {
    step(end - begin, grad.data() + begin, param.data() + begin, m1.data() + begin, m2.data() + begin,
         new_param.data() + begin, new_m1.data() + begin, new_m2.data() + begin);
  });
  new_product[0] = static_cast<T>(step.product);
}

void shape(const NAdamArgs&, ShapeCall& call) {
  require_same_shape(call, 1, "moment_1", 0, "param");
  require_same_shape(call, 2, "moment_2", 0, "param");
  require_same_shape(call, 4, "grad", 0, "param");
  for (const auto& [i, name] : {std::pair{3, "product"}, {5, "lr"}, {6, "iter"}}) require_one_value(call, i, name);
  for (int i = 0; i < 4; ++i) call.set_like(i, i);
}

REGISTER(nadam) {
  return op<NAdamArgs>("NAdam")
      .own()
      .doc(
          "One step of Adam with Nesterov's momentum, whose share grows with the steps. The learning rate is negative: "
          "the step is added.")
      .arg("beta1", &NAdamArgs::beta1, 0.9F, "decay of the first moment", decay_rate())
      .arg("beta2", &NAdamArgs::beta2, 0.999F, "decay of the second moment", decay_rate())
      .arg("epsilon", &NAdamArgs::epsilon, 1e-8F, "added to the square root of the corrected second moment",
           float_at_least(0))
      .arg("momentum_decay", &NAdamArgs::momentum_decay, 4e-3F, "how fast the momentum grows to beta1",
           float_at_least(0))
      .input("param", "the parameter, any shape")
      .input("moment_1", "running mean of the gradient")
      .input("moment_2", "running mean of its square")
      .input("product", "of the momenta of all steps before, one value; 1 before the first")
      .input("grad", "the gradient, of the parameter's shape")
      .input("lr", "the learning rate, one value, negative")
      .types({DType::float32, DType::float64})
      .input("iter", "how many steps were made before, one value")
      .types({DType::int64, DType::int32})
      .output("output_param", "the parameter after the step")
      .output("output_moment_1", "the first moment after the step")
      .output("output_moment_2", "the second moment after the step")
      .output("output_product", "the product with this step's momentum")
      .no_gradient("it changes parameters")
      .in_place("param", "output_param")
      .in_place("moment_1", "output_moment_1")
      .in_place("moment_2", "output_moment_2")
      .in_place("product", "output_product")
      .shape(shape)
      .flops([](const auto&, const ShapeCall& c) { return 15 * input_size(c, 4) + 19; })
      .cpu(update<float>, update<double>)
      .example({"param=2,3", "moment_1=2,3", "moment_2=2,3,0..2", "product=1:0.125", "grad=2,3", "lr=1:-0.125",
                "iter=int64,1:4"})
      .example(
          {"param=1", "moment_1=1", "moment_2=1,0..2", "product=1:1", "grad=1", "lr=float,1:-0.125", "iter=int32,1:0"},
          {"beta1=0.5", "beta2=0.75", "epsilon=0.125", "momentum_decay=2"})
      .example({"param=0", "moment_1=0", "moment_2=0", "product=1:0.5", "grad=0", "lr=1:-0.125", "iter=int64,1:1"});
}

}  // namespace
}  // namespace stepnet::cpu_nadam
