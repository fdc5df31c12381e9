// NetObserver: sees each operator of a net before and after it runs, with what the net releases after it, and step nets
// while they are compiled, and what became of their timesteps.
//
// Threads: called by the thread that runs the net.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "stepnet/bound_op.h"

namespace stepnet {

inline constexpr std::string_view kStepCode = "code";

class NetObserver {
 public:
  virtual ~NetObserver() = default;
  virtual void before(const BoundOp& op) = 0;
  virtual void after(const BoundOp& op) = 0;  // not if it throws
  // A step net that an operator of the net compiles, as it is written ("" for the pass) and after each pass; after all
  // of them its code (kStepCode for the pass).
  virtual void compiled([[maybe_unused]] std::string_view step_net, [[maybe_unused]] std::string_view pass,
                        [[maybe_unused]] const std::function<std::string()>& text) {}
  // How the loop over timesteps of such a step net runs on a device: as one kernel, a graph, or operator by operator,
  // and why not in a better way.
  virtual void looped([[maybe_unused]] std::string_view loop, [[maybe_unused]] const std::string& how) {}
};

}  // namespace stepnet
