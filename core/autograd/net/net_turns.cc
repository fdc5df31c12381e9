#include "core/autograd/net/net_turns.h"

#include <algorithm>
#include <map>

#include "core/net/dataflow.h"
#include "core/operator/op_spec.h"

namespace stepnet::autograd {

NetTurns net_turns(const NetDef& net, const std::vector<std::string>& names) {
  struct Turn {
    int first = -1, written = -1, used = -1;
  };
  std::map<std::string, size_t> places;
  for (const std::string& name : names) places.emplace(name, places.size());
  std::vector<Turn> turns(names.size());
  for (int s = 0; s < net.op_size(); ++s) {
    const OperatorDef& op = net.op(s);
    const auto meet = [&](const std::string& name, bool uses, bool writes) {
      const auto it = places.find(name);
      if (it == places.end()) return;
      Turn& turn = turns[it->second];
      if (turn.first < 0) turn.first = turn.used = s;
      if (uses) turn.used = s;
      if (writes) turn.written = s;
    };
    const std::vector<bool> reads = element_reads(op_spec(op.type()), op);
    for (int i = 0; i < op.input_size(); ++i) meet(op.input(i), reads[i], false);
    for (const std::string& name : op.output()) meet(name, true, true);
  }
  const std::vector<std::vector<size_t>> none(static_cast<size_t>(net.op_size()));
  NetTurns result{none, none, none};
  for (size_t place = 0; place < turns.size(); ++place) {
    const Turn& turn = turns[place];
    if (turn.first >= 0) result.first_named[turn.first].push_back(place);
    if (turn.written >= 0) result.last_written[turn.written].push_back(place);
    if (turn.used >= 0) result.last_used[turn.used].push_back(place);
  }
  return result;
}

bool may_have_alias(const NetDef& net, const std::string& name) {
  return std::ranges::any_of(net.op(), [&](const OperatorDef& op) {
    return std::ranges::any_of(op_spec(op.type()).aliases, [&](const AliasRule& rule) {
      const OpSpec& spec = op_spec(op.type());
      const int in = spec.input_index(rule.in), out = spec.output_index(rule.out);
      return (in < op.input_size() && op.input(in) == name) || (out < op.output_size() && op.output(out) == name);
    });
  });
}

}  // namespace stepnet::autograd
