#include "recurrent/form/passes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "recurrent/form/net_storage.h"
#include "stepnet/arguments.h"
#include "stepnet/op_spec.h"

namespace stepnet {
namespace {

using Strings = std::vector<std::string>;

// Each product names its neighbours, and a chain of Concats of one blob twice doubles the parts with each.
constexpr size_t kMostParts = 64;

// The argument "axis", which is 1 for both operators if it is absent; none if it is not a number.
std::optional<int64_t> axis_of(const OperatorDef& op) {
  const Argument* axis = find_arg(op, "axis");
  if (!axis) return 1;
  return axis->has_i() ? std::optional<int64_t>(axis->i()) : std::nullopt;
}

bool is_concat(const OperatorDef& op) {
  const OpSpec* spec = find_op(op.type());
  return spec && spec->role == Role::concat && !find_arg(op, "order") && !find_arg(op, "add_axis") && axis_of(op);
}

bool is_product(const OperatorDef& op) {
  const Argument* axis_w = find_arg(op, "axis_w");
  return op.type() == "FC" && (!axis_w || (axis_w->has_i() && axis_w->i() == 1));
}

// Which of the other parts say where the columns of a part are. Those that no state feeds are taken, if such ones say
// it, so that the product waits for no timestep. One part is given all others, so that their widths are checked.
struct Neighbours {
  int begin = 0, end = 0;  // of the parts; the part itself among them
  bool from_end = false;
};

Neighbours neighbours_of(const std::vector<bool>& changing, int part) {
  const int count = static_cast<int>(changing.size());
  const auto last = std::find(changing.rbegin(), changing.rend(), true);
  const int checker = last == changing.rend() ? count - 1 : static_cast<int>(changing.rend() - last) - 1;
  if (part == checker) return {0, count, part == count - 1};
  const auto self = changing.begin() + part;
  const bool before = std::find(changing.begin(), self, true) != self;
  const bool after = std::find(self, changing.end(), true) != changing.end();
  if (before && !after) return {part, count, true};
  return {0, part + 1, false};
}

class Splitter {
 public:
  Splitter(const NetDef& net, const ConcatUse& use) : net_(net), use_(use), storage_(net), changing_(use.states) {
    for (int i = 0; i < net.op_size(); ++i) {
      const OperatorDef& op = net.op(i);
      const bool changes = std::ranges::any_of(op.input(), [&](const auto& name) { return changing_.count(name) > 0; });
      if (changes) changing_.insert(op.output().begin(), op.output().end());
      for (const std::string& name : op.input())
        if (std::vector<int>& readers = readers_[name]; readers.empty() || readers.back() != i) readers.push_back(i);
      if (is_concat(op)) concats_[op.output(0)].push_back(i);
    }
  }

  NetDef result() {
    for (int i = 0; i < net_.op_size(); ++i)
      if (is_concat(net_.op(i))) try_to_split(i);
    NetDef result = net_;
    result.clear_op();
    for (int i = 0; i < net_.op_size(); ++i) {
      if (dropped_.count(i) > 0) continue;
      if (const auto split = parts_.find(i); split != parts_.end()) {
        add_products(net_.op(i), split->second, result);
      } else {
        *result.add_op() = net_.op(i);
      }
    }
    return result;
  }

 private:
  const std::vector<int>& readers_of(const std::string& blob) const {
    static const std::vector<int> none;
    const auto found = readers_.find(blob);
    return found == readers_.end() ? none : found->second;
  }

  // Whether the Concat may go if all readers of its result do without it.
  bool can_go(int concat) const {
    const OperatorDef& op = net_.op(concat);
    const std::string& joined = op.output(0);
    if (op.output_size() > 1 && (use_.shown.count(op.output(1)) > 0 || !readers_of(op.output(1)).empty())) return false;
    return use_.shown.count(joined) == 0 && !storage_.is_written_between(joined, 0, concat) &&
           !storage_.is_written_between(joined, concat + 1, net_.op_size());
  }

  // The Concat that makes a part, if it makes it for operator `reader` alone; or -1.
  int inner_concat(const std::string& part, int reader) const {
    const auto made = concats_.find(part);
    if (made == concats_.end() || readers_of(part).size() != 1) return -1;
    for (const int i : made->second)
      if (i < reader && axis_of(net_.op(i)) == axis_of(net_.op(reader)) && can_go(i)) return i;
    return -1;
  }

  // Those of Concats inside of it too, if the parts stay what they are to the end of the step, when the products'
  // gradients read them. `concats` are all of these.
  bool collect_parts(int concat, Strings& parts, std::set<int>& concats) const {
    concats.insert(concat);
    if (concats.size() > kMostParts) return false;
    for (const std::string& part : net_.op(concat).input()) {
      if (const int inner = inner_concat(part, concat); inner >= 0) {
        if (!collect_parts(inner, parts, concats)) return false;
      } else {
        if (storage_.is_written_between(part, concat + 1, net_.op_size())) return false;
        parts.push_back(part);
      }
      if (parts.size() > kMostParts) return false;
    }
    return true;
  }

  void try_to_split(int concat) {
    const OperatorDef& op = net_.op(concat);
    const std::vector<int> readers = readers_of(op.output(0));
    const auto fits = [&](int r) {
      const OperatorDef& reader = net_.op(r);
      return is_product(reader) && axis_of(reader) == axis_of(op) && reader.input(0) == op.output(0) &&
             std::ranges::count(reader.input(), op.output(0)) == 1;
    };
    if (readers.empty() || !can_go(concat) || !std::ranges::all_of(readers, fits)) return;
    Strings parts;
    std::set<int> concats;
    if (!collect_parts(concat, parts, concats) || parts.size() < 2) return;
    dropped_.merge(concats);
    for (const int reader : readers) parts_[reader] = parts;
  }

  void add_products(const OperatorDef& fc, const Strings& parts, NetDef& result) const {
    OperatorDef sum = fc;
    sum.set_type(op_with_role(Role::sum).type);
    sum.clear_input();
    sum.clear_arg();
    for (size_t i = 0; i < parts.size(); ++i) {
      sum.add_input(use_.term_name(fc.output(0)));
      *result.add_op() = product(fc, parts, static_cast<int>(i), sum.input(static_cast<int>(i)));
    }
    *result.add_op() = sum;
  }

  OperatorDef product(const OperatorDef& fc, const Strings& parts, int part, const std::string& term) const {
    std::vector<bool> changing;
    for (const std::string& name : parts) changing.push_back(changing_.count(name) > 0);
    const Neighbours near = neighbours_of(changing, part);
    OperatorDef op = fc;
    op.set_type("FCColumns");
    op.clear_arg();
    op.set_output(0, term);
    op.set_input(0, parts[part]);
    if (part > 0 && fc.input_size() > 2) op.mutable_input()->RemoveLast();
    if (op.input_size() == 2 && near.end - near.begin > 1) op.add_input("");
    for (int i = near.begin; i < near.end; ++i)
      if (i != part) op.add_input(parts[i]);
    *op.add_arg() = make_arg("axis", *axis_of(fc));
    *op.add_arg() = make_arg("before", int64_t{part - near.begin});
    if (near.from_end) *op.add_arg() = make_arg("from_end", true);
    return op;
  }

  const NetDef& net_;
  const ConcatUse& use_;
  NetStorage storage_;
  std::map<std::string, std::vector<int>> readers_;  // by blob, in order
  std::map<std::string, std::vector<int>> concats_;  // by what they join, in order
  std::set<std::string> changing_;                   // what depends on a state
  std::map<int, Strings> parts_;                     // of the products that are split
  std::set<int> dropped_;                            // Concats
};

}  // namespace

NetDef split_concats(const NetDef& net, const ConcatUse& use) { return Splitter(net, use).result(); }

}  // namespace stepnet
