#include "recurrent/form/passes.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "recurrent/form/net_storage.h"
#include "stepnet/arguments.h"
#include "stepnet/op_spec.h"

namespace stepnet {
namespace {

int64_t axis_of(const OperatorDef& op) {
  const Argument* axis = find_arg(op, "axis");
  return axis ? axis->i() : 1;
}

bool has_bias(const OperatorDef& op) { return op.input_size() > 2 && !op.input(2).empty(); }

class Merger {
 public:
  Merger(const NetDef& step, const MergeUse& use) : step_(step), storage_(step), use_(use) {}

  MergedProducts result() {
    MergedProducts result{step_, {}};
    const auto groups = find_groups();
    std::map<int, const std::vector<int>*> by_first;
    std::set<int> gone;
    for (const std::vector<int>& group : groups) {
      if (group.size() < 2) continue;
      by_first[group.front()] = &group;
      gone.insert(group.begin(), group.end());
    }
    result.step.clear_op();
    for (int i = 0; i < step_.op_size(); ++i) {
      if (const auto first = by_first.find(i); first != by_first.end()) add_merged(*first->second, result);
      if (gone.count(i) == 0) *result.step.add_op() = step_.op(i);
    }
    return result;
  }

 private:
  bool is_parameter(const std::string& name) const {
    return !name.empty() && storage_.writers(name) == 0 && !storage_.has_other_names(name) &&
           use_.inside.count(name) == 0;
  }

  // An FC by weights from outside, whose input has one value and whose output nobody writes twice.
  bool may_merge(const OperatorDef& op) const {
    if (op.type() != "FC" || op.input_size() < 2 || op.output_size() != 1) return false;
    const bool plain = std::ranges::all_of(op.arg(), [](const Argument& a) { return a.name() == "axis" && a.has_i(); });
    return plain && storage_.writers(op.input(0)) <= 1 && is_parameter(op.input(1)) &&
           (!has_bias(op) || is_parameter(op.input(2))) && storage_.writers(op.output(0)) == 1 &&
           use_.kept.count(op.output(0)) == 0;
  }

  // Operators that read the same input in the same way, in order; those with a bias apart from those without.
  std::vector<std::vector<int>> find_groups() const {
    std::map<std::tuple<std::string, int64_t, bool, std::string>, std::vector<int>> groups;
    for (int i = 0; i < step_.op_size(); ++i) {
      const OperatorDef& op = step_.op(i);
      if (!may_merge(op)) continue;
      groups[{op.input(0), axis_of(op), has_bias(op), op.device_option().SerializeAsString()}].push_back(i);
    }
    std::vector<std::vector<int>> result;
    for (auto& [key, group] : groups) result.push_back(std::move(group));
    return result;
  }

  // All weights, or all biases, one below the other.
  std::string join(const std::vector<int>& group, int input, const std::string& name, MergedProducts& result) const {
    OperatorDef& op = result.joins.emplace_back();
    op.set_type(op_with_role(Role::concat).type);
    const OperatorDef& like = step_.op(group.front());
    if (like.has_device_option()) *op.mutable_device_option() = like.device_option();
    for (const int i : group) op.add_input(step_.op(i).input(input));
    op.add_output(use_.fresh_outside(name));
    *op.add_arg() = make_arg("axis", int64_t{0});
    if (result.step.external_input_size() > 0) result.step.add_external_input(op.output(0));
    return op.output(0);
  }

  void add_merged(const std::vector<int>& group, MergedProducts& result) const {
    const OperatorDef& first = step_.op(group.front());
    OperatorDef& product = *result.step.add_op();
    product = first;
    product.set_input(1, join(group, 1, first.input(1) + "_merged", result));
    if (has_bias(first)) product.set_input(2, join(group, 2, first.input(2) + "_merged", result));
    product.set_output(0, use_.fresh(first.output(0) + "_merged"));
    OperatorDef& parts = *result.step.add_op();
    parts.set_type("SplitByRows");
    if (first.has_device_option()) *parts.mutable_device_option() = first.device_option();
    parts.add_input(product.output(0));
    for (const int i : group) {
      parts.add_input(step_.op(i).input(1));
      parts.add_output(step_.op(i).output(0));
    }
    *parts.add_arg() = make_arg("axis", axis_of(first));
  }

  const NetDef& step_;
  NetStorage storage_;
  const MergeUse& use_;
};

}  // namespace

MergedProducts merge_products(const NetDef& step, const MergeUse& use) { return Merger(step, use).result(); }

}  // namespace stepnet
