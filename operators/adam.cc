// Adam (Kingma and Ba 2015, "Adam: a method for stochastic optimization", in the form with one corrected rate):
//
//   t = iter + 1, r = sqrt(1 - beta2^t) / (1 - beta1^t)
//   m1 = beta1 m1 + (1 - beta1) g,  m2 = beta2 m2 + (1 - beta2) g^2
//   param = param + lr r m1 / (sqrt(m2) + epsilon)
//
// lr is NEGATIVE, as for WeightedSum. No derivative: it changes parameters.

#include <cmath>

#include "core/operator.h"
#include "core/parallel.h"

namespace stepnet {
namespace {

struct AdamArgs {
  float beta1 = 0, beta2 = 0, epsilon = 0;
};

ArgCheck<float> decay_rate() {
  return [](const float& v) { return v >= 0 && v < 1 ? "" : "must be from 0 to less than 1"; };
}

void shape(const AdamArgs&, ShapeCall& call) {
  static constexpr const char* kNames[] = {"param", "moment_1", "moment_2", "grad"};
  for (int i = 1; i < 4; ++i)
    if (call.known(0) && call.known(i))
      require(call.shape(i) == call.shape(0), "{} has shape {}, but param {}", kNames[i], call.shape(i), call.shape(0));
  for (int i = 4; i < 6; ++i)
    if (call.known(i))
      require(call.shape(i).size() == 1, "{} must be one value, but has shape {}", i == 4 ? "lr" : "iter",
              call.shape(i).str());
  for (int i = 0; i < 3; ++i) call.set_like(i, i);
}

template <class T>
void adam(const AdamArgs& args, In<T> param, In<T> m1, In<T> m2, In<T> grad, const Tensor& lr, const Tensor& iter,
          Out<T> new_param, Out<T> new_m1, Out<T> new_m2) {
  const auto at = iter.item<int64_t>();
  require(at >= 0, "iter is {}, which is negative", at);
  const double t = static_cast<double>(at) + 1;
  const double rate =
      lr.item<double>() * std::sqrt(1 - std::pow(double{args.beta2}, t)) / (1 - std::pow(double{args.beta1}, t));
  const T beta1 = args.beta1, beta2 = args.beta2, epsilon = args.epsilon, step = static_cast<T>(rate);
  parallel_for(static_cast<int64_t>(param.size()), 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T g = grad[i];
      const T a = new_m1[i] = beta1 * m1[i] + (1 - beta1) * g;
      const T b = new_m2[i] = beta2 * m2[i] + (1 - beta2) * g * g;
      new_param[i] = param[i] + step * a / (std::sqrt(b) + epsilon);
    }
  });
}

REGISTER(adam) {
  return op<AdamArgs>("Adam")
      .doc("One step of Adam. The learning rate is negative: the step is added.")
      .arg("beta1", &AdamArgs::beta1, 0.9f, "decay of the first moment", decay_rate())
      .arg("beta2", &AdamArgs::beta2, 0.999f, "decay of the second moment", decay_rate())
      .arg("epsilon", &AdamArgs::epsilon, 1e-5f, "added to the square root of the second moment", float_at_least(0))
      .input("param", "the parameter, any shape")
      .input("moment_1", "running mean of the gradient")
      .input("moment_2", "running mean of its square")
      .input("grad", "the gradient")
      .input("lr", "the learning rate, one value, negative")
      .types({DType::float32, DType::float64})
      .input("iter", "how many steps were made before, one value")
      .types({DType::int64, DType::int32})
      .output("output_param", "the parameter after the step")
      .output("output_moment_1", "the first moment after the step")
      .output("output_moment_2", "the second moment after the step")
      .in_place("param", "output_param")
      .in_place("moment_1", "output_moment_1")
      .in_place("moment_2", "output_moment_2")
      .shape(shape)
      .cpu(adam<float>, adam<double>)
      .no_gradient("it changes parameters");
}

}  // namespace
}  // namespace stepnet
