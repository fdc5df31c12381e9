// Online learning: gradients over a stream that is run in chunks, as if it had been run at once.
//
// For a state h of B samples and N units, and a parameter W of a product u = FC(x, W) that h is made of, the
// sensitivity S[b, n, k] is the derivative of h[b, n] with respect to W[n, k] through all timesteps so far. Where unit
// n of the states depends on unit n of the states before alone, over the timesteps of a chunk
//     S_last = dh_last/dh_first S_first + sum over t of dh_last/du_t x_t,
// whose factors are gradients of the sum of h_last, because each unit has its own. They are computed by a second
// network beside the first, of the part of the step that works element by element. With <S_first, W - W'> added to the
// first state, where W' is W without a gradient, the value stays and the gradient gets what earlier chunks contribute.
//
// So nothing is kept but S, as much as the weights for each sample and state, and the gradients are exact (real-time
// recurrent learning). Two approximations are for states whose units depend on each other by products: snap1 keeps the
// diagonal of these weights (SnAp-1: J. Menick et al., ICLR 2021), eprop leaves such paths out (e-prop: G. Bellec et
// al., 2020). Within a chunk all gradients are exact, whatever the rule.
//
// Threads: pure functions.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "recurrent/form/state_paths.h"

namespace stepnet {

// rtrl, snap1 and eprop; throws Error for another name.
std::vector<std::string> learning_rule_names();
LearningRule learning_rule(const std::string& name);

struct SensitivityRequest {
  LearningRule rule = LearningRule::rtrl;
  // Blobs from outside that are trained. Empty: all that are no states and no sequences of a network.
  std::set<std::string> parameters = {};
};

// A blob that the net's next run reads where this run wrote another.
struct CarriedSensitivity {
  std::string first, last;
  // The state's initial value, and its last one, if the network shows it; what the sensitivity is to.
  std::string state, last_state, parameter;
};

struct Sensitivities {
  std::vector<CarriedSensitivity> carried;
  // Writes the first sensitivities of a stream, which are zeros, from the shapes of parameters and initial states.
  NetDef start;
};

// Lets the gradients that are derived from the net have what earlier chunks contribute. To be called before they are.
// Expands networks in short form. The initial values of the networks' states must be carried over chunks, by the
// caller, and have the shape of the last ones, [1, B, N]; at the start of a stream they are constants. Throws Error:
// see find_state_paths; no network; a network of lengths, in reverse or without gradients.
Sensitivities add_sensitivities(NetDef& net, const SensitivityRequest& request);

}  // namespace stepnet
