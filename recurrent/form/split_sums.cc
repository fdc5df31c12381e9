#include "recurrent/form/backward_net.h"

#include <algorithm>
#include <list>
#include <map>
#include <utility>

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

// The sums of a net, from the last to the first, while those of values that are added up over time are opened.
class OpenSums {
 public:
  OpenSums(NetDef& net, std::vector<SummedValue> values)
      : net_(net), storage_(net), gone_(net.op_size()), values_(values.begin(), values.end()) {
    size_t inputs = 0;
    for (int i = 0; i < net.op_size(); ++i) {
      for (const std::string& name : net.op(i).output()) first_writers_.emplace(name, i);
      for (const std::string& name : net.op(i).input()) readers_[name].push_back(i);
      inputs += static_cast<size_t>(net.op(i).input_size());
    }
    for (auto value = values_.begin(); value != values_.end(); ++value) by_name_[value->name].push_back(value);
    most_ = 64 + 4 * (values.size() + inputs);
  }

  std::vector<SummedValue> run() {
    for (int i = net_.op_size() - 1; i >= 0; --i)
      if (op_spec(net_.op(i).type()).role == Role::sum && can_be_opened(i)) open(i);
    NetDef net = net_;
    net.clear_op();
    for (int i = 0; i < net_.op_size(); ++i)
      if (!gone_[i]) net.add_op()->Swap(net_.mutable_op(i));
    net_ = std::move(net);
    return {values_.begin(), values_.end()};
  }

 private:
  using Place = std::list<SummedValue>::iterator;

  // Whether an operator behind this one is in the list, those that are gone left out.
  bool any_behind(std::vector<int>& operators, int index) const {
    while (!operators.empty() && gone_[operators.back()]) operators.pop_back();
    return !operators.empty() && operators.back() > index;
  }

  bool is_overwritten(const std::string& name, int index) {
    const auto [known, is_new] = writers_.try_emplace(storage_.of(name));
    if (is_new) known->second = storage_.writing(name);
    return any_behind(known->second, index);
  }

  // Whether the sum and its terms still have the values at the end of the step that they have at the sum, nobody else
  // sees the sum, and operators of the step net write all terms. Sums of sums can stand for more terms than a net of
  // some length can have.
  bool can_be_opened(int index) {
    const OperatorDef& sum = net_.op(index);
    const auto values = by_name_.find(sum.output(0));
    if (values == by_name_.end() || values->second.empty()) return false;
    if (values_.size() + values->second.size() * static_cast<size_t>(sum.input_size()) > most_) return false;
    if (any_behind(readers_[sum.output(0)], index) || is_overwritten(sum.output(0), index)) return false;
    return std::ranges::all_of(sum.input(), [&](const std::string& term) {
      const auto writer = first_writers_.find(term);
      return writer != first_writers_.end() && writer->second < index && !is_overwritten(term, index);
    });
  }

  void open(int index) {
    const OperatorDef& sum = net_.op(index);
    const std::vector<Place> places = std::exchange(by_name_[sum.output(0)], {});
    for (const Place place : places) {
      for (const std::string& term : sum.input())
        by_name_[term].push_back(values_.insert(place, {term, place->gradient}));
      values_.erase(place);
    }
    gone_[index] = true;
  }

  NetDef& net_;
  const NetStorage storage_;
  std::vector<bool> gone_;                           // operators
  std::map<std::string, int> first_writers_;         // by blob
  std::map<std::string, std::vector<int>> readers_;  // by blob, in order
  std::map<std::string, std::vector<int>> writers_;  // by storage, in order
  std::list<SummedValue> values_;
  std::map<std::string, std::vector<Place>> by_name_;
  size_t most_ = 0;  // values
};

}  // namespace

std::vector<SummedValue> open_sums(NetDef& net, std::vector<SummedValue> values) {
  return OpenSums(net, std::move(values)).run();
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
