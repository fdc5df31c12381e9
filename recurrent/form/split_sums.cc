#include "recurrent/form/backward_net.h"

#include <algorithm>

#include "core/operator/op_spec.h"
#include "recurrent/form/net_storage.h"

namespace stepnet {
namespace {

// Not if it writes what it reads, which it does twice then.
bool can_be_split(const OpSpec& spec, const OperatorDef& op, const NetStorage& storage) {
  if (!spec.sums_rows) return false;
  for (int o = 0; o < op.output_size(); ++o) {
    const ParamSpec* output = spec.output_spec(o);
    if (!output || !output->uses) return false;
    const auto is_written = [&](const std::string& input) { return storage.of(input) == storage.of(op.output(o)); };
    if (!op.output(o).empty() && std::ranges::any_of(op.input(), is_written)) return false;
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

// Whether the sum and its terms still have the values at the end of the step that they had at operator `index`, nobody
// else sees the sum, and operators of the step net write all terms.
bool can_be_opened(const NetDef& net, const NetStorage& storage, int index) {
  const OperatorDef& sum = net.op(index);
  std::set<std::string> terms(sum.input().begin(), sum.input().end()), written;
  for (int i = 0; i < net.op_size(); ++i) {
    if (i < index) written.insert(net.op(i).output().begin(), net.op(i).output().end());
    if (i <= index) continue;
    for (const std::string& name : net.op(i).input())
      if (name == sum.output(0)) return false;
  }
  const auto is_overwritten = [&](const std::string& name) {
    return storage.is_written_between(name, index + 1, net.op_size());
  };
  if (is_overwritten(sum.output(0)) || std::ranges::any_of(terms, is_overwritten)) return false;
  return std::ranges::includes(written, terms);
}

}  // namespace

std::vector<SummedValue> open_sums(NetDef& net, std::vector<SummedValue> values) {
  for (int i = net.op_size() - 1; i >= 0; --i) {
    const OperatorDef op = net.op(i);
    const auto is_this = [&](const SummedValue& v) { return v.name == op.output(0); };
    if (op_spec(op.type()).role != Role::sum || std::ranges::none_of(values, is_this) ||
        !can_be_opened(net, NetStorage(net), i))
      continue;
    std::vector<SummedValue> opened;
    for (const SummedValue& v : values) {
      if (!is_this(v)) {
        opened.push_back(v);
        continue;
      }
      for (const std::string& term : op.input()) opened.push_back({term, v.gradient});
    }
    values = std::move(opened);
    net.mutable_op()->DeleteSubrange(i, 1);
  }
  return values;
}

NetDef split_sums(const NetDef& net, const std::set<std::string>& totals) {
  const NetStorage storage(net);
  NetDef result = net;
  result.clear_op();
  for (const OperatorDef& op : net.op()) {
    const auto is_total = [&](const std::string& name) { return totals.count(name) > 0; };
    const auto is_other = [&](const std::string& name) { return !name.empty() && totals.count(name) == 0; };
    const bool mixed = std::ranges::any_of(op.output(), is_total) && std::ranges::any_of(op.output(), is_other);
    if (!mixed || !can_be_split(op_spec(op.type()), op, storage)) {
      *result.add_op() = op;
      continue;
    }
    *result.add_op() = with_outputs(op, totals, false);
    *result.add_op() = with_outputs(op, totals, true);
  }
  return result;
}

}  // namespace stepnet
