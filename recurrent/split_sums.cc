#include "recurrent/split_sums.h"

#include <algorithm>

#include "core/op_spec.h"

namespace stepnet {
namespace {

bool can_be_split(const OpSpec& spec, const OperatorDef& op) {
  if (!spec.sums_rows) return false;
  for (int o = 0; o < op.output_size(); ++o) {
    const ParamSpec* output = spec.output_spec(o);
    if (!output || !output->uses) return false;
    if (std::ranges::count(op.input(), op.output(o)) > 0 && !op.output(o).empty()) return false;
  }
  return true;
}

// The operator with those outputs alone that are totals, or are none.
OperatorDef with_outputs(const OperatorDef& op, const std::set<std::string>& totals, bool total) {
  OperatorDef part = op;
  for (std::string& name : *part.mutable_output())
    if ((totals.count(name) > 0) != total) name.clear();
  return part;
}

}  // namespace

NetDef split_sums(const NetDef& net, const std::set<std::string>& totals) {
  NetDef result = net;
  result.clear_op();
  for (const OperatorDef& op : net.op()) {
    const auto is_total = [&](const std::string& name) { return totals.count(name) > 0; };
    const auto is_other = [&](const std::string& name) { return !name.empty() && totals.count(name) == 0; };
    const bool mixed = std::ranges::any_of(op.output(), is_total) && std::ranges::any_of(op.output(), is_other);
    if (!mixed || !can_be_split(op_spec(op.type()), op)) {
      *result.add_op() = op;
      continue;
    }
    *result.add_op() = with_outputs(op, totals, false);
    *result.add_op() = with_outputs(op, totals, true);
  }
  return result;
}

}  // namespace stepnet
