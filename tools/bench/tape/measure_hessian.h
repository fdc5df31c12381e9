// The times of a Hessian, and the check of how many matrix products it takes.
// Threads: for the main thread.
#pragma once

#include <functional>

#include "tools/bench/tape/hessian.h"

namespace stepnet::bench {

// One Hessian with layers of float, with the gradients and the buffers of the one before in place.
class HessianTimer {
 public:
  explicit HessianTimer(const MlpSizes& sizes, const std::string& activation = "Relu", Device device = {})
      : net_(sizes, activation, device) {}
  // Of the CPU at one thread, else by the clock; on a GPU from when it is idle until it is done.
  double run_ms(HessianKind kind) const;
  ProductCount count(HessianKind kind) const;

 private:
  Mlp<float> net_;
};

// Prints products, FLOPs and times, trimmed and untrimmed in turns. False if the products are not as many as the
// formulas say; on a GPU nobody counts them.
bool measure_hessian(const MlpSizes& sizes, bool with_backward, int rounds, Device device = {});
// Captures the net of these, on the CPU; each call of the result runs it and returns milliseconds.
std::function<double()> captured_timer(const MlpSizes& sizes, const std::string& activation, bool with_backward);
// Prints times of the captured nets of these, in planned memory, beside eager runs in turns, on the CPU. False if a bit
// differs.
bool measure_captured(const MlpSizes& sizes, bool with_backward, int rounds);
// Prints the second derivatives of a net with tanh layers beside central differences. False if they differ.
bool check_hessian_values(MlpSizes sizes);

}  // namespace stepnet::bench
