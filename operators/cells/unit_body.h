// What the bodies (OpBuilder::composed) of LSTMUnitGradient and GRUUnitGradient share: states and gates as matrices of
// rows, and rows whose sequence is over. Threads: as a Formula.
#pragma once

#include <vector>

#include "operators/cells/unit_rows.h"
#include "operators/loops/composing.h"

namespace stepnet {

struct UnitBody {
  Formula& f;
  const UnitArgs& a;
  Value valid;  // [rows], whether each is within its sequence; undefined where all are

  // `lengths`: the input that they are, if there are any; the timestep is the next one.
  UnitBody(Formula& formula, const UnitArgs& args, int lengths) : f(formula), a(args) {
    if (!a.sequence_lengths) return;
    const Value of_rows = composing::vector(f, f.x_at(lengths));
    valid = f.op("LT", {f.x_at(lengths + 1), of_rows}, composing::laid_over());
  }

  // [rows, D], or undefined if the input is not there.
  Value rows(int input) const {
    const Value v = f.x_at(input);
    return v.defined() ? composing::matrix(f, v, -1) : v;
  }

  // `count` gates of the size of `state`, of which those not wanted are undefined.
  std::vector<Value> gates(Value all, Value state, const std::vector<bool>& wanted) const {
    std::vector<Value> inputs(wanted.size() + 1, state);
    inputs[0] = all;
    std::vector<Value> parts = f.ops("SplitLike", inputs, {make_arg("axis", 1)}, wanted);
    for (const Value& part : parts)
      if (part.defined()) f.same_shape(part, state);
    return parts;
  }
  Value join(const std::vector<Value>& parts) const { return f.op("Concat", parts, {make_arg("axis", 1)}); }

  // In rows that are over what was `held`, if states are not dropped and there is such a thing, or zeros.
  Value or_held(Value within, Value held) const {
    if (!valid.defined()) return within;
    const Value over = a.drop_states || !held.defined() ? composing::zeros(f, within) : held;
    return f.same_shape(f.op("Where", {valid, within, over}, {make_arg("enable_broadcast", true)}), within);
  }
};

}  // namespace stepnet
