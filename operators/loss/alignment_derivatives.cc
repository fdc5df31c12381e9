#include "operators/loss/alignment_derivatives.h"

#include "operators/loops/composing.h"

namespace stepnet {

std::vector<Value> AlignmentLoss::values(Formula& f) const {
  std::vector<Value> all;
  for (const std::string& name : inputs) all.push_back(f.x(name));
  return all;
}

Value AlignmentLoss::by_dloss(Formula& f, bool each_sample, const std::vector<Value>& more, Value u) const {
  const Value dloss = f.x("dloss");
  std::vector<Value> all = values(f);
  all.push_back(composing::fill(f, dloss, 1));
  all.insert(all.end(), more.begin(), more.end());
  const Value y = f.op(type + (more.empty() ? "Gradient" : "Hessian"), all, f.forward_args());
  const Value products = composing::mul(f, f.same_shape(y, f.x(inputs.front())), u);
  const Value sums =
      each_sample ? f.op("ReduceSum", {products}, {make_arg("axes", axes)}) : f.op("SumElements", {products});
  return composing::reshaped(f, sums, dloss);
}

Value AlignmentLoss::times_hessian(Formula& f, Value v) const {
  std::vector<Value> all = values(f);
  all.insert(all.end(), {f.x("dloss"), v});
  return f.op(type + "Hessian", all, f.forward_args());
}

}  // namespace stepnet
