// Lars (You, Gitman and Ginsburg 2017, "Large batch training of convolutional networks"): a learning rate of X's own,
//
//   trust / (|dX| / |X| + wd + offset), or 1 if X is 0, but at most lr_max, and at least lr_min.
//
// No derivative: it is made for a step.

#include "operators/optimizer/lars.h"

#include <cmath>

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/optimizer/optimizer.h"

namespace stepnet::cpu_lars {
namespace {

void shape(const LarsArgs&, ShapeCall& call) {
  require_same_shape(call, 1, "dX", 0, "X");
  for (const auto& [i, name] : {std::pair{2, "wd"}, {3, "trust"}, {4, "lr_max"}}) require_one_value(call, i, name);
  if (call.known(0)) call.set(0, call.dtype(0), Shape{1});
}

template <class T>
void rescale(const LarsArgs& args, In<T> x, In<T> dx, const Tensor& decay, const Tensor& trust, const Tensor& lr_max,
             Out<T> rate) {
  rate[0] = static_cast<T>(lars_rate(args, std::sqrt(vec_sum_squares(x)), std::sqrt(vec_sum_squares(dx)),
                                     decay.item<double>(), trust.item<double>(), lr_max.item<double>()));
}

// The sums of the two tensors' squares.
std::vector<int64_t> gpu_workspace(const LarsArgs&, const Call&) { return {2 * sizeof(double)}; }

REGISTER(lars) {
  return op<LarsArgs>("Lars")
      .doc(
          "The learning rate of one parameter by layer-wise adaptive rate scaling: from the norms of the parameter and "
          "of its gradient.")
      .arg("offset", &LarsArgs::offset, 0.5f, "added to the quotient of the norms", float_at_least(0))
      .arg("lr_min", &LarsArgs::lr_min, 0.02f, "the least rate")
      .input("X", "the parameter, any shape")
      .input("dX", "its gradient, of the same shape")
      .input("wd", "the weight decay, one value")
      .types({DType::float32, DType::float64})
      .input("trust", "how much of itself a parameter may change by, one value")
      .types({DType::float32, DType::float64})
      .input("lr_max", "the greatest rate, one value")
      .types({DType::float32, DType::float64})
      .output("lr_rescaled", "[1], the rate")
      .shape(shape)
      .flops([](const auto&, const ShapeCall& c) { return 2 * input_size(c, 0) + 2 * input_size(c, 1) + 6; })
      .gpu_workspace(gpu_workspace)
      .precision(Precision::float32)
      .cpu(rescale<float>, rescale<double>)
      .no_gradient("it is the rate of a step")
      .example({"X=2,3", "dX=2,3", "wd=1:0.125", "trust=1:0.5", "lr_max=1:8"})
      .example({"X=2", "dX=2", "wd=float,1:0.125", "trust=float,:0.5", "lr_max=float,1:0.25"},
               {"offset=0.25", "lr_min=0.125"});
}

}  // namespace
}  // namespace stepnet::cpu_lars
