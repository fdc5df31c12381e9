// Lamb (You et al. 2019, "Large batch optimization for deep learning: training BERT in 76 minutes", algorithm 2, with
// phi(z) = z): Adam's step with decoupled weight decay, as long as the parameter is times the rate.
//
//   t = iter + 1
//   m1 = beta1 m1 + (1 - beta1) g,  m2 = beta2 m2 + (1 - beta2) g^2
//   u = m1 / (1 - beta1^t) / (sqrt(m2 / (1 - beta2^t)) + epsilon) + weight_decay param
//   param = param + lr |param| / |u| u
//
// The quotient of the norms, which are of the whole parameter, is not bounded, and is 1 where either is 0. Gradients
// are not clipped here. lr is NEGATIVE, as for Adam. No derivative: it changes parameters.
#include "operators/optimizer/lamb.h"

#include <algorithm>
#include <vector>

#include "core/operator/flops.h"

namespace stepnet::cpu_lamb {
namespace {

constexpr int64_t kBlock = 4096;  // elements whose squares are summed by themselves, whatever the number of threads

struct Squares {
  double param = 0, direction = 0;
};

template <class T>
void update(const LambArgs& args, In<T> param, In<T> m1, In<T> m2, In<T> grad, const Tensor& lr, const Tensor& iter,
            Out<T> new_param, Out<T> new_m1, Out<T> new_m2) {
  const auto step = LambStep<T>::of(args, lr, iter);
  const auto size = static_cast<int64_t>(param.size()), blocks = (size + kBlock - 1) / kBlock;
  std::vector<Squares> squares(static_cast<size_t>(blocks));
  parallel_for(blocks, 6.0 * kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      for (int64_t i = block * kBlock; i < std::min(size, (block + 1) * kBlock); ++i) {
        new_m1[i] = step.mean(m1[i], grad[i]);
        new_m2[i] = step.mean_square(m2[i], grad[i]);
        const auto u = static_cast<double>(step.direction(new_m1[i], new_m2[i], param[i]));
        squares[block].param += static_cast<double>(param[i]) * static_cast<double>(param[i]);
        squares[block].direction += u * u;
      }
  });
  Squares all;
  for (const Squares& s : squares) {
    all.param += s.param;
    all.direction += s.direction;
  }
  const T rate = step.rate(all.param, all.direction);
  parallel_for(size, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      new_param[i] = param[i] + rate * step.direction(new_m1[i], new_m2[i], param[i]);
  });
}

std::vector<int64_t> gpu_workspace(const LambArgs&, const Call&) { return {2 * sizeof(double)}; }

REGISTER(lamb) {
  return op<LambArgs>("Lamb")
      .own()
      .doc(
          "One step of Adam with decoupled weight decay, whose length is that of the parameter times the learning "
          "rate. "
          "The learning rate is negative: the step is added.")
      .arg("beta1", &LambArgs::beta1, 0.9F, "decay of the first moment", decay_rate())
      .arg("beta2", &LambArgs::beta2, 0.999F, "decay of the second moment", decay_rate())
      .arg("epsilon", &LambArgs::epsilon, 1e-6F, "added to the square root of the corrected second moment",
           float_at_least(0))
      .arg("weight_decay", &LambArgs::weight_decay, 0.01F, "how much of the parameter is in the direction of the step",
           float_at_least(0))
      .input("param", "the parameter, any shape")
      .input("moment_1", "running mean of the gradient")
      .input("moment_2", "running mean of its square")
      .input("grad", "the gradient, of the parameter's shape")
      .input("lr", "the learning rate, one value, negative")
      .types({DType::float32, DType::float64})
      .input("iter", "how many steps were made before, one value")
      .types({DType::int64, DType::int32})
      .output("output_param", "the parameter after the step")
      .output("output_moment_1", "the first moment after the step")
      .output("output_moment_2", "the second moment after the step")
      .no_gradient("it changes parameters")
      .in_place("param", "output_param")
      .in_place("moment_1", "output_moment_1")
      .in_place("moment_2", "output_moment_2")
      .shape([](const LambArgs&, ShapeCall& call) { adam_shape(call, false); })
      .flops([](const auto&, const ShapeCall& c) { return 20 * input_size(c, 3) + 8; })
      .gpu_workspace(gpu_workspace)
      .cpu(update<float>, update<double>)
      .example({"param=2,3", "moment_1=2,3", "moment_2=2,3,0..2", "grad=2,3", "lr=1:-0.125", "iter=int64,1:4"})
      .example({"param=1", "moment_1=1", "moment_2=1,0..2", "grad=1", "lr=float,1:-0.125", "iter=int32,1:0"},
               {"beta1=0.5", "beta2=0.75", "epsilon=0.125", "weight_decay=0"})
      .example({"param=2:0,0", "moment_1=2", "moment_2=2,0..2", "grad=2", "lr=1:-0.125", "iter=int64,1:1"})
      .example({"param=0", "moment_1=0", "moment_2=0", "grad=0", "lr=1:-0.125", "iter=int64,1:1"});
}

}  // namespace
}  // namespace stepnet::cpu_lamb
