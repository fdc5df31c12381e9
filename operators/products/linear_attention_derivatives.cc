// The derivatives of LinearAttention, as linear_attention.cc has them, over any values.
#include "operators/products/linear_attention.h"

namespace stepnet {

std::vector<Value> attend_by_formula(Formula& f, const LinearAttentionValues& x, bool other,
                                     const std::vector<Value>& inputs, const std::vector<bool>& wanted) {
  std::vector<Argument> args;
  if (x.reverse != other) args.push_back(make_arg("reverse", true));
  if (x.leaving != other) args.push_back(make_arg("leaving", true));
  return f.ops("LinearAttention", inputs, args, wanted);
}

Value transposed_states(Formula& f, Value states) {
  if (!states.defined()) return states;
  return f.op("Transpose", {states}, {make_arg("axes", std::vector<int64_t>{0, 1, 3, 2})});
}

LinearAttentionGradients differentiate_attention(Formula& f, const LinearAttentionValues& x,
                                                 const LinearAttentionWants& wants) {
  LinearAttentionGradients d;
  const auto y = [&](bool other, const std::vector<Value>& inputs) {
    return attend_by_formula(f, x, other, inputs, {true, false})[0];
  };
  if (wants.q && x.dy.defined())
    d.q = f.same_shape(y(false, {x.dy, x.v, x.k, x.g, transposed_states(f, x.first)}), x.q);
  if (!wants.k && !wants.v && !wants.g && !wants.first) return d;
  const Value dy = x.dy.defined() ? x.dy : f.op("ZerosLike", {x.v});
  if (wants.k) d.k = f.same_shape(y(true, {x.v, dy, x.q, x.g, transposed_states(f, x.dlast)}), x.k);
  if (wants.v || wants.first) {
    // For dfirst alone there is nothing to read from the states, and so nothing to say of keys, in which it is
    // constant.
    const Value reader = wants.v ? x.k : x.q;
    const std::vector<Value> made =
        attend_by_formula(f, x, true, {reader, x.q, dy, x.g, x.dlast}, {wants.v, wants.first});
    if (made[0].defined()) d.v = f.same_shape(made[0], x.v);
    if (made[1].defined()) d.first = f.same_shape(made[1], x.first);
  }
  if (wants.g) {
    std::vector<Argument> args;
    if (x.reverse) args.push_back(make_arg("reverse", true));
    if (x.leaving) args.push_back(make_arg("leaving", true));
    d.g = f.same_shape(f.op("LinearAttentionDecay", {x.q, x.k, x.v, x.g, dy, x.first, x.dlast}, args), x.g);
  }
  return d;
}

}  // namespace stepnet
