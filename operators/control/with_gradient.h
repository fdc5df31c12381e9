// The arguments of WithGradient and its kernel, which is the same on every device. Threads: thread-safe.
#pragma once

#include <string>

#include "operators/loops/copy_elements.h"
#include "stepnet/op_spec.h"

namespace stepnet {

struct WithGradientArgs {
  int64_t results = 1;
  std::string definition;
  NetArg gradient_net;
};

inline void copy_results(const WithGradientArgs& args, Call& call) {
  for (int i = 0; i < static_cast<int>(args.results); ++i) copy_values(call.in(i), call.out(i));
}

}  // namespace stepnet
