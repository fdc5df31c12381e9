// RecurrentNetwork in full form, written shortly; and gradients of any net by central differences.
//
// A link is "h_prev = S[0]": the step blob, the tensor that it is rows of, the row at timestep 0; "w = S[0:3]" has a
// window of three rows. A view is "h_all = S[1]", a state "S = h0", a parameter "W = W_step": the input and its
// gradient of one timestep.
// Threads: not for concurrent use.
#pragma once

#include <string>
#include <vector>

#include "tests/recurrent/unrolled.h"

namespace stepnet::testing {

struct FullForm {
  std::vector<std::string> inputs;   // the sequence first
  std::vector<std::string> outputs;  // the scratch "steps" is put behind them
  Lines states, links, views, step;
  Lines backward = {}, backward_links = {}, params = {};  // no lines: it only runs forward
  std::vector<int64_t> outputs_with_grads = {};
  std::vector<std::string> recompute = {};
  bool text = false;            // step nets are protobuf text in strings
  bool unnamed_params = false;  // without "param_grads"
};

// A net "outer" with this operator, step nets "step" and "backward_step", whose external inputs are the feeds.
NetDef full_net(const FullForm& form, const Feeds& feeds);

// Gradients of sum(outside .* outputs) by every floating feed, as `run_with_gradients` gives them.
CellResults differences(const NetDef& net, const Feeds& feeds, const Feeds& outside, double step = 1e-5);

// The net's gradients against differences; feeds are float64. Returns "" or what is wrong.
std::string check_differences(const NetDef& net, const Feeds& feeds, const Feeds& outside, double tol = 1e-7);

}  // namespace stepnet::testing
