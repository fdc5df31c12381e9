// Hooks on several variables at once, called once in each pass that one of them takes part in.
//
// A variable takes part if the pass runs its node or takes its gradient there, so that a pass for some inputs alone
// waits for nobody else. Interior variables are meant as they are now: a later write in place makes others of them.
// Threads: passes on several threads may meet in one group; each has its own gradients.
#pragma once

#include <functional>
#include <vector>

#include "stepnet/node.h"

namespace stepnet::autograd {

// When the gradients of all that take part have arrived, and at the end of the pass if some never do. One gradient per
// variable, undefined where none arrived. Throws Error if one of them requires no gradient.
HookHandle register_all_hook(const std::vector<Variable>& variables, std::function<void(const Gradients&)> hook);

// With the first gradient that arrives at one of them, and which it is.
HookHandle register_any_hook(const std::vector<Variable>& variables,
                             std::function<void(size_t which, const VariableGradient&)> hook);

}  // namespace stepnet::autograd
