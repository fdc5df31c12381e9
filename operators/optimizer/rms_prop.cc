// RmsProp (Tieleman and Hinton 2012, lecture 6.5 of "Neural networks for machine learning"), with momentum:
//
//   ms = ms + (1 - decay) (g^2 - ms),  mom = momentum mom + lr g / sqrt(epsilon + ms)
//
// or with rate_last, as PyTorch has it,
//
//   mom = momentum mom + g / (sqrt(ms) + epsilon), and the step is lr mom
//
// The step, without rate_last mom, is written where the gradient was; another operator adds it to
// the parameter, or subtracts it, as the sign of lr wants. No derivative: it changes gradients on their way to the
// parameter.

#include "operators/optimizer/rms_prop.h"

#include "core/operator/flops.h"
#include "operators/optimizer/optimizer.h"

namespace stepnet::cpu_rms_prop {
namespace {

void shape(const RmsPropArgs&, ShapeCall& call) {
  require_same_shape(call, 1, "mean_squares", 0, "grad");
  require_same_shape(call, 2, "mom", 0, "grad");
  require_one_value(call, 3, "lr");
  for (int i = 0; i < 3; ++i) call.set_like(i, i);
}

template <class T>
void rms_prop(const RmsPropArgs& args, In<T> grad, In<T> mean_squares, In<T> mom, const Tensor& lr, Out<T> step,
              Out<T> new_mean_squares, Out<T> new_mom) {
  const T rate = static_cast<T>(lr.item<double>());
  parallel_for(static_cast<int64_t>(grad.size()), 2, [&](int64_t begin, int64_t end) {
    rms_prop_run(args, rate, end - begin, grad.data() + begin, mean_squares.data() + begin, mom.data() + begin,
                 step.data() + begin, new_mean_squares.data() + begin, new_mom.data() + begin);
  });
}

REGISTER(rms_prop) {
  return op<RmsPropArgs>("RmsProp")
      .doc(
          "The step of RmsProp; another operator, such as WeightedSum, applies it to the parameter. Where the mean "
          "square and epsilon are both 0 the result is not a number.")
      .arg("decay", &RmsPropArgs::decay, 0.9f, "how much of the mean square remains", decay_rate())
      .arg("momentum", &RmsPropArgs::momentum, 0.0f, "how much of the last step remains")
      .arg("epsilon", &RmsPropArgs::epsilon, 1e-5f, "added to the mean square, with rate_last to its root",
           float_at_least(0))
      .arg("rate_last", &RmsPropArgs::rate_last, false,
           "mom has no learning rate in it, the step is lr times mom, and epsilon is outside the root")
      .own_args({"rate_last"})
      .input("grad", "the gradient, any shape")
      .input("mean_squares", "running mean of the gradient's square, of the gradient's shape, not negative")
      .input("mom", "the last step, of the gradient's shape")
      .input("lr", "the learning rate, one value, of the sign that the step shall have")
      .types({DType::float32, DType::float64})
      .output("output_grad", "the step")
      .output("output_mean_squares", "the mean square after the step")
      .output("output_mom", "the step once more, for the next time; with rate_last without the learning rate")
      .in_place("grad", "output_grad")
      .in_place("mean_squares", "output_mean_squares")
      .in_place("mom", "output_mom")
      .shape(shape)
      .flops(flops_per_input(10))
      .cpu(rms_prop<float>, rms_prop<double>)
      .no_gradient("it changes gradients on their way to the parameter")
      .example({"grad=2,3", "mean_squares=2,3,0..2", "mom=2,3", "lr=1:-0.125"})
      .example({"grad=1", "mean_squares=1,0..2", "mom=1", "lr=float,1:0.125"},
               {"decay=0.5", "momentum=0.75", "epsilon=0.125"})
      .example({"grad=2,3", "mean_squares=2,3,0..2", "mom=2,3", "lr=1:-0.125"}, {"momentum=0.75", "rate_last=1"})
      .example({"grad=0", "mean_squares=0", "mom=0", "lr=1:-0.125"});
}

}  // namespace
}  // namespace stepnet::cpu_rms_prop
