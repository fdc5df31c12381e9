#include "tests/core/defined_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/operator/extensions.h"
#include "core/operator/nets_inside.h"
#include "stepnet/op_spec.h"

namespace stepnet::testing {
namespace {

bool may_move(const OperatorDef& op) {
  const OpSpec* spec = find_op(op.type());
  if (has_short_form(op) || (spec && (spec->random || spec->blob_kernel))) return false;
  return std::ranges::none_of(op.arg(), [](const Argument& arg) { return arg.has_n() || arg.nets_size() > 0; });
}

Argument& definitions_of(NetDef& net) {
  for (Argument& arg : *net.mutable_arg())
    if (holds_definitions(arg)) return arg;
  Argument& arg = *net.add_arg();
  arg.set_name(kOperators);
  return arg;
}

}  // namespace

bool move_into_definition(NetDef& net, NetDef& inner, int begin, int end, const std::string& type,
                          const std::set<std::string>& needed) {
  NetDef definition;
  definition.set_name(type);
  OperatorDef use;
  use.set_type(type);
  std::map<std::string, std::string> names;
  std::set<std::string> written, read_later = needed;
  const auto named = [&](const std::string& name) {
    return name.empty() ? "" : names.emplace(name, fmt::format("n{}", names.size())).first->second;
  };
  for (int i = end; i < inner.op_size(); ++i) read_later.insert(inner.op(i).input().begin(), inner.op(i).input().end());
  for (int i = begin; i < end; ++i) {
    OperatorDef op = inner.op(i);
    if (!may_move(op)) return false;
    for (std::string& name : *op.mutable_input()) {
      if (!name.empty() && written.count(name) == 0 && std::ranges::count(use.input(), name) == 0) {
        use.add_input(name);
        definition.add_external_input(named(name));
      }
      name = named(name);
    }
    for (std::string& name : *op.mutable_output()) {
      if (!name.empty() && written.insert(name).second && (needed.empty() || read_later.count(name) > 0)) {
        use.add_output(name);
        definition.add_external_output(named(name));
      }
      name = named(name);
    }
    *definition.add_op() = op;
  }
  if (use.output_size() == 0) return false;
  inner.mutable_op(begin)->Swap(&use);
  inner.mutable_op()->DeleteSubrange(begin + 1, end - begin - 1);
  Argument& all = definitions_of(net);
  int place = 0;  // behind those that it uses
  for (int i = 0; i < all.nets_size(); ++i)
    for (const OperatorDef& op : definition.op())
      if (op.type() == all.nets(i).name()) place = i + 1;
  all.add_nets()->Swap(&definition);
  for (int i = all.nets_size() - 1; i > place; --i) all.mutable_nets()->SwapElements(i, i - 1);
  return true;
}

NetDef& last_definition(NetDef& net) {
  Argument& all = definitions_of(net);
  return *all.mutable_nets(all.nets_size() - 1);
}

}  // namespace stepnet::testing
