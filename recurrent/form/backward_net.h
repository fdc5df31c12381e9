// Sums in a backward step net.
//
// split_sums is a pass over it: an operator that gives a parameter's gradient, which is only added up over time, and
// another value, which the next timestep may wait for, becomes two, so that the first can run for many timesteps at
// once (FCGradient: dW and db apart from dX). Only operators whose schema says what each output is computed from.
// Threads: pure functions.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "stepnet/proto/net.pb.h"

namespace stepnet {

// A value of the step net that is added up over time, and which of the gradients it belongs to.
struct SummedValue {
  std::string name;
  size_t gradient = 0;
};

// Where such a value is itself a sum in the step net (a parameter that is used several times), its terms are added up
// over time instead, so that each can be added where it is made.
std::vector<SummedValue> open_sums(NetDef& net, std::vector<SummedValue> values);

// `totals`: names of the values that are added up over time.
NetDef split_sums(const NetDef& net, const std::set<std::string>& totals);

}  // namespace stepnet
