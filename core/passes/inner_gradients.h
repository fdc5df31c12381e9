// Gradients in the middle of a net: an operator that stands, in its place, for the gradient operators of the operators
// before it. So a net can learn while it runs, and what it learns with is differentiated like everything else.
//
//   op { type: "Gradients" input: "loss" input: "W" input: "b" output: "dW" output: "db" }
//
// What it becomes are ordinary operators, whose blobs have names that begin with that of its first output and a slash.
// They write each name once, so that they can be differentiated to any order, by gradients, tangents and further such
// operators. Threads: pure functions.
#pragma once

#include <string>

#include "stepnet/gradients.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

inline constexpr const char* kGradients = "Gradients";

// True if an operator of the net itself is one of them.
bool has_inner_gradients(const NetDef& net);

// Expands them, also in nets that other operators hold as arguments; networks that stand before them must be in full
// form. `step_net`: the net is a step net, see GradientRequest. Throws Error with the operator's place: a blob that is
// not there, that the loss does not depend on, or that comes from outside and has been overwritten; and what
// add_gradient_operators refuses.
void expand_inner_gradients(NetDef& net, bool step_net);

// BASE/, or BASE_1/ and so on: a beginning of names that nothing in the net mentions.
std::string free_prefix(const NetDef& net, const std::string& base);

// As add_gradient_operators; but all that they write has names that begin with `prefix`, as none of the net's do, and
// is written once.
GradientResult add_gradient_operators_under(NetDef& net, const GradientRequest& request, const std::string& prefix);

}  // namespace stepnet
