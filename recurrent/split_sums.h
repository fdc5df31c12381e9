// A pass over a backward step net: an operator that gives a parameter's gradient, which is only added up over time, and
// another value, which the next timestep may wait for, becomes two, so that the first can run for many timesteps at
// once (FCGradient: dW and db apart from dX). Only operators whose schema says what each output is computed from.
#pragma once

#include <set>
#include <string>

#include "proto/net.pb.h"

namespace stepnet {

// `totals`: names of the values that are added up over time.
NetDef split_sums(const NetDef& net, const std::set<std::string>& totals);

}  // namespace stepnet
