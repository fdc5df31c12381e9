// The arithmetic of MomentumSGD, MomentumSGDUpdate and SparseMomentumSGDUpdate; see momentum_sgd.cc. Threads: pure
// functions.
#pragma once

#include "operators/optimizer/optimizer.h"

namespace stepnet {

struct MomentumArgs {
  float momentum = 0;
  bool nesterov = false;
  bool rate_last = false;
};

// One step on a run of elements; the results may stand where the values were. Without `param`, the step alone.
template <class T>
constexpr void momentum_run(const MomentumArgs& args, T rate, int64_t size, const T* grad, const T* momentum, T* step,
                            T* new_momentum, const T* param = nullptr, T* new_param = nullptr) {
  const T mu = args.momentum;
  for (int64_t i = 0; i < size; ++i) {
    const T before = momentum[i], g = grad[i];
    const T after = mu * before + (args.rate_last ? g : rate * g);
    const T s = args.rate_last  ? rate * (args.nesterov ? g + mu * after : after)
                : args.nesterov ? (1 + mu) * after - mu * before
                                : after;
    new_momentum[i] = after;
    step[i] = s;
    if (param) new_param[i] = param[i] - s;
  }
}

inline OpBuilder<MomentumArgs>& declare_momentum(OpBuilder<MomentumArgs>& spec, const char* grad,
                                                 const char* momentum) {
  return spec.arg("momentum", &MomentumArgs::momentum, 0.0f, "how much of the last step remains")
      .arg("nesterov", &MomentumArgs::nesterov, false, "look ahead by the momentum")
      .arg("rate_last", &MomentumArgs::rate_last, false,
           "the momentum has no learning rate in it; the step is multiplied by it, as PyTorch does")
      .own_args({"rate_last"})
      .input("grad", grad)
      .input("momentum", momentum)
      .input("lr", "the learning rate, one value, positive")
      .types({DType::float32, DType::float64})
      .no_gradient("it changes parameters");
}

}  // namespace stepnet
