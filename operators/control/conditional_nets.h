// What If and While share: a condition that says whether a net in an argument runs, and what the nets read and write.
// Threads: pure functions.
#pragma once

#include "core/net/inner_net.h"
#include "stepnet/operator.h"

namespace stepnet {

template <class Args>
OpBuilder<Args>& declare_conditional(OpBuilder<Args>& b, const char* condition) {
  return b.input("condition", condition)
      .object()
      .input("externals", "what the nets read")
      .object()
      .variadic(0)
      .output("results", "what the nets write")
      .object()
      .variadic(0)
      .in_place_anywhere("condition", "results")
      .in_place_anywhere("externals", "results")
      .side_effect();
}

// Throws Error if `required` is missing or one of the two nets is wrong.
inline void check_conditional_nets(const char* required, const NetArg& net, const char* optional, const NetArg& other) {
  require(net.present, "argument \"{}\" holds no net", required);
  check_inner_net(required, net);
  check_inner_net(optional, other);
}

}  // namespace stepnet
