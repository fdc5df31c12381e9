// What the tests of functions of the user's own share.
#pragma once

#include "stepnet/function.h"
#include "tests/core/autograd/tape_testing.h"

namespace stepnet::autograd::testing {

class TapeFunction : public TapeTest {};

inline Numbers numbers(const VariableGradient& g) { return g.defined() ? values_of(g.dense) : Numbers{}; }
inline Variable mul(const Variable& a, const Variable& b) { return testing::apply("Mul", {a, b}); }

}  // namespace stepnet::autograd::testing
