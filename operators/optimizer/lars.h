// The arithmetic of Lars; see lars.cc. Threads: pure functions.
#pragma once

namespace stepnet {

struct LarsArgs {
  float offset = 0, lr_min = 0;
};

// From the norms of X and dX.
constexpr double lars_rate(const LarsArgs& args, double x, double dx, double decay, double trust, double lr_max) {
  const double own = x > 0 ? trust / (dx / x + decay + static_cast<double>(args.offset)) : 1.0;
  const double most = own < lr_max ? own : lr_max, least = static_cast<double>(args.lr_min);
  return most > least ? most : least;
}

}  // namespace stepnet
