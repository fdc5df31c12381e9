#include "core/passes/defined_operators.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/nearest.h"
#include "core/operator/extensions.h"
#include "core/operator/nets_inside.h"
#include "core/passes/operator_definition.h"
#include "stepnet/arguments.h"
#include "stepnet/bound_op.h"
#include "stepnet/error.h"
#include "stepnet/op_spec.h"

namespace stepnet {
namespace {

using Names = std::set<std::string>;
using Renames = std::map<std::string, std::string>;
using Operators = google::protobuf::RepeatedPtrField<OperatorDef>;

// Definitions may use others several times, each of which may do so again.
constexpr int kMostOperators = 100'000;

bool defines_operators(const NetDef& net) { return std::ranges::any_of(net.arg(), holds_definitions); }

bool any_defines_operators(NetDef& net) {
  bool any = false;
  for_each_net(net, [&](const NetDef& inner) { any = any || defines_operators(inner); });
  return any;
}

std::string place_of(const OperatorDef& op) {
  const std::string where = source_text(op);
  return where.empty() ? "" : fmt::format(" (used at {})", where);
}

// What is known where a use stands.
struct Place {
  Names seen;              // names that its net has before it
  bool is_inside = false;  // its net runs on the blobs of a net around it, whose names are not among them
};

// Puts the operators of one definition in the place of one use.
class Use {
 public:
  Use(const OperatorDef& use, const OperatorDefinition& d, const Place& place, std::string prefix)
      : use_(use), d_(d), place_(place), prefix_(std::move(prefix)) {}

  void put(Operators& to) {
    to_ = &to;
    check();
    take_arguments();
    for (int i = 0; i < use_.input_size(); ++i) bind_input(i);
    for (int o = 0; o < use_.output_size(); ++o) bind_output(o);
    for (const OperatorDef& op : d_.net.op()) add(op);
    d_.has_gradient_net ? end_with_gradient() : copy_outputs();
  }

 private:
  const std::string& input_name(int i) const { return d_.net.external_input(i); }
  const std::string& output_name(int o) const { return d_.net.external_output(o); }
  bool is_input(const std::string& name) const { return names_in(d_.net.external_input(), name); }
  template <class List>
  static bool names_in(const List& list, const std::string& name) {
    return std::ranges::find(list, name) != list.end();
  }

  void check() const {
    require(use_.input_size() == d_.net.external_input_size(), "it must have {} inputs ({}), but has {}",
            d_.net.external_input_size(), fmt::join(d_.net.external_input(), ", "), use_.input_size());
    require(use_.output_size() == d_.net.external_output_size(),
            "it must have {} outputs ({}), of which \"\" stands for one that is not needed, but has {}",
            d_.net.external_output_size(), fmt::join(d_.net.external_output(), ", "), use_.output_size());
    for (int i = 0; i < use_.input_size(); ++i)
      require(!use_.input(i).empty(), "input {} (\"{}\") has an empty name", i, input_name(i));
    Names outputs;
    for (const std::string& name : use_.output())
      require(name.empty() || outputs.insert(name).second, "the output \"{}\" is given twice", name);
    for (const auto& [is_set, what] : {std::pair{use_.has_engine(), "an engine"},
                                       {use_.is_gradient_op(), "the mark of gradient operators"},
                                       {use_.has_domain(), "a domain"},
                                       {use_.has_op_version(), "a version"},
                                       {use_.HasExtension(recurrent), "a network in short form"},
                                       {use_.HasExtension(draws_as), "the argument \"stepnet.draws_as\""}})
      if (is_set) fail("it is defined in text and cannot have {}", what);
  }

  void take_arguments() {
    parameters_ = d_.parameters;
    Names given;
    std::vector<std::string> known;
    for (const auto& [name, value] : parameters_) known.push_back(name);
    for (const Argument& arg : use_.arg()) {
      const auto found = parameters_.find(arg.name());
      if (found == parameters_.end())
        fail("its definition has no argument \"{}\".{}", arg.name(), suggest(arg.name(), known));
      require(given.insert(arg.name()).second, "the argument \"{}\" is given twice", arg.name());
      require(!is_without_value(arg), "the argument \"{}\" has no value", arg.name());
      found->second = arg;
    }
    for (const auto& [name, value] : parameters_)
      require(!is_without_value(value), "the argument \"{}\" must be given", name);
  }

  OperatorDef& append(const OperatorDef& op) {
    OperatorDef& added = *to_->Add();
    added = op;
    if (!added.has_device_option() && use_.has_device_option()) *added.mutable_device_option() = use_.device_option();
    for (const std::string& name : use_.control_input()) added.add_control_input(name);
    const std::string before = op.debug_info().starts_with(kOfDefinition) ? op.debug_info() + ", " : "";
    added.set_debug_info(fmt::format("{}{}{}{}", before, kOfDefinition, d_.type, place_of(use_)));
    return added;
  }

  OperatorDef& append(const std::string& type) {
    OperatorDef op;
    op.set_type(type);
    if (use_.HasExtension(source)) *op.MutableExtension(source) = use_.GetExtension(source);
    return append(op);
  }

  std::string copy(const std::string& from, const std::string& to) {
    OperatorDef& op = append(op_with_role(Role::copy).type);
    op.add_input(from);
    op.add_output(to);
    return to;
  }

  // A name that the definition does not have.
  std::string own(const std::string& base) {
    std::string name = base;
    const auto is_taken = [&] {
      return names_in(d_.net.external_input(), name) || std::ranges::any_of(d_.net.op(), [&](const OperatorDef& op) {
               return names_in(op.input(), name) || names_in(op.output(), name);
             });
    };
    for (int n = 1; is_taken() || !own_.insert(name).second; ++n) name = fmt::format("{}_{}", base, n);
    return prefix_ + name;
  }

  // A step net of the definition has a blob of this name, and would read that in its place.
  bool is_hidden(const std::string& name) const { return d_.inside.count(name) > 0; }

  void bind_input(int i) {
    std::string name = use_.input(i);
    if (d_.has_gradient_net && names_in(use_.output(), name)) name = copy(name, own("given"));
    given_.push_back(name);
    names_[input_name(i)] = d_.copied[i] || is_hidden(name) ? copy(name, prefix_ + input_name(i)) : name;
  }

  // Writing to it changes nothing that is still to be read.
  bool is_fresh(const std::string& name) const {
    return !place_.is_inside && place_.seen.count(name) == 0 && !names_in(use_.input(), name) && !is_hidden(name);
  }

  void bind_output(int o) {
    if (is_input(output_name(o))) return;
    const bool is_direct = !d_.has_gradient_net && !use_.output(o).empty() && is_fresh(use_.output(o));
    names_[output_name(o)] = is_direct ? use_.output(o) : prefix_ + output_name(o);
  }

  std::string name_here(const std::string& name) {
    return name.empty() ? "" : names_.emplace(name, prefix_ + name).first->second;
  }

  void add(const OperatorDef& op) {
    OperatorDef& added = append(op);
    give_parameters(added, parameters_);
    for (std::string& name : *added.mutable_input()) name = name_here(name);
    for (std::string& name : *added.mutable_output()) name = name_here(name);
    for (int i = 0; i < op.control_input_size(); ++i) added.set_control_input(i, name_here(op.control_input(i)));
    if (added.has_name()) added.set_name(prefix_ + added.name());
    if (added.HasExtension(draws_as))
      if (const auto drawn = names_.find(added.GetExtension(draws_as)); drawn != names_.end())
        added.SetExtension(draws_as, drawn->second);
    if (has_short_form(added)) rename_in_short_form(*added.MutableExtension(recurrent), names_);
  }

  void copy_outputs() {
    std::vector<std::pair<std::string, std::string>> copies;
    for (int o = 0; o < use_.output_size(); ++o) {
      const std::string& made = names_.at(output_name(o));
      if (!use_.output(o).empty() && (made != use_.output(o) || is_input(output_name(o))))
        copies.emplace_back(made, use_.output(o));
    }
    // The caller's blobs are all read before one of them is written.
    for (size_t i = 0; copies.size() > 1 && i < copies.size(); ++i)
      if (names_in(use_.input(), copies[i].first)) copies[i].first = copy(copies[i].first, own("passed"));
    for (const auto& [from, to] : copies) copy(from, to);
  }

  void end_with_gradient() {
    OperatorDef& op = append(kWithGradient);
    if (!use_.name().empty()) op.set_name(use_.name());
    for (int o = 0; o < use_.output_size(); ++o) {
      op.add_input(names_.at(output_name(o)));
      op.add_output(use_.output(o).empty() ? own("unused") : use_.output(o));
    }
    for (const std::string& name : given_) op.add_input(name);
    *op.add_arg() = make_arg("definition", d_.type);
    *op.add_arg() = make_arg("results", use_.output_size());
    *op.add_arg() = make_arg("gradient_net", d_.gradient_net);
    give_parameters(op, parameters_);
  }

  const OperatorDef& use_;
  const OperatorDefinition& d_;
  const Place& place_;
  const std::string prefix_;
  Operators* to_ = nullptr;
  std::map<std::string, Argument> parameters_;
  Names own_;
  Renames names_;                   // by the definition's name
  std::vector<std::string> given_;  // inputs, with what they held before
};

using Scope = std::map<std::string, std::shared_ptr<const OperatorDefinition>>;

class Expander {
 public:
  explicit Expander(const NetDef& net) : text_(net.SerializeAsString()) {}

  void expand(NetDef& net, Scope scope, Place place) {
    read_definitions(net, scope);
    place.seen.insert(net.external_input().begin(), net.external_input().end());
    Operators ops;
    for (int i = 0; i < net.op_size(); ++i) {
      OperatorDef& op = *net.mutable_op(i);
      const auto found = scope.find(op.type());
      if (found == scope.end()) {
        check_type(net, i, scope);
        expand_inside(op, scope);
        *ops.Add() = op;
      } else {
        put(net, i, *found->second, place, ops);
      }
      require(ops.size() <= kMostOperators,
              "with what its definitions stand for, net \"{}\" has more than {} operators", net.name(), kMostOperators);
      place.seen.insert(op.input().begin(), op.input().end());
      place.seen.insert(op.output().begin(), op.output().end());
    }
    net.mutable_op()->Swap(&ops);
    if (net.HasExtension(model) && net.GetExtension(model).has_init())
      expand(*net.MutableExtension(model)->mutable_init(), scope, {});
  }

 private:
  void put(const NetDef& net, int i, const OperatorDefinition& d, const Place& place, Operators& ops) {
    const OperatorDef& use = net.op(i);
    try {
      Use(use, d, place, prefix(use)).put(ops);
    } catch (Error& e) {
      add_op_context(e, {use, nullptr, nullptr, {}, net.name(), i});
      throw;
    }
  }

  void expand_inside(OperatorDef& op, const Scope& scope) {
    for (Argument& arg : *op.mutable_arg()) {
      if (arg.has_n()) expand(*arg.mutable_n(), scope, {.seen = {}, .is_inside = true});
      for (NetDef& inner : *arg.mutable_nets()) expand(inner, scope, {.seen = {}, .is_inside = true});
    }
    if (!has_short_form(op)) return;
    RecurrentDef& def = *op.MutableExtension(recurrent);
    Place place{.seen = {def.timestep(), def.lengths()}, .is_inside = false};
    for (const SequenceLink& sequence : def.sequence()) place.seen.insert(sequence.inner());
    for (const StateLink& state : def.state()) place.seen.insert(state.input());
    expand(*def.mutable_step_net(), scope, std::move(place));
  }

  void check_type(const NetDef& net, int i, const Scope& scope) const {
    const std::string& type = net.op(i).type();
    if (find_op(type) || type.empty()) return;
    std::vector<std::string> known = op_types();
    for (const auto& [name, definition] : scope) known.push_back(name);
    Error error(fmt::format("there is no operator \"{}\", and no definition of one.{}", type, suggest(type, known)));
    if (const auto later = uses_.find(type); later != uses_.end()) {
      std::vector<std::string> path = {reading_};
      if (find_path(type, reading_, path))
        error = Error(fmt::format("the operator \"{}\" is defined by itself: {}", reading_, fmt::join(path, " -> ")),
                      "a definition uses those before it alone");
      else
        error = Error(fmt::format("the operator \"{}\" is defined behind \"{}\", which uses it", type, reading_),
                      "put its definition before that");
    }
    add_op_context(error, {net.op(i), nullptr, nullptr, {}, net.name(), i});
    throw Error(std::move(error));
  }

  // Appends the types from `from` to `to`, if there is a way, among the definitions that are being read.
  bool find_path(const std::string& from, const std::string& to, std::vector<std::string>& path) const {
    Names seen;
    return find_path(from, to, path, seen);
  }
  bool find_path(const std::string& from, const std::string& to, std::vector<std::string>& path, Names& seen) const {
    const auto uses = uses_.find(from);
    if (uses == uses_.end() || !seen.insert(from).second) return false;
    path.push_back(from);
    if (from == to) return true;
    for (const std::string& type : uses->second)
      if (find_path(type, to, path, seen)) return true;
    path.pop_back();
    return false;
  }

  void read_definitions(NetDef& net, Scope& scope) {
    std::vector<NetDef> written;
    for (const Argument& arg : net.arg())
      if (holds_definitions(arg)) {
        require(written.empty(), "net \"{}\" has the argument \"{}\" twice", net.name(), kOperators);
        if (arg.nets_size() == 0)
          fail("net \"{}\" has the argument \"{}\", which must be nets", net.name(), kOperators);
        written.assign(arg.nets().begin(), arg.nets().end());
      }
    if (written.empty()) return;
    for (int i = net.arg_size() - 1; i >= 0; --i)
      if (holds_definitions(net.arg(i))) net.mutable_arg()->DeleteSubrange(i, 1);
    const auto uses_around = uses_;
    const std::string reading_around = reading_;
    for (NetDef& definition : written)
      for_each_net(definition, [&, name = definition.name()](const NetDef& inner) {
        for (const OperatorDef& op : inner.op()) uses_[name].insert(op.type());
        for (const Argument& arg : inner.arg())
          for (const OperatorDef& op : arg.n().op()) uses_[name].insert(op.type());
      });
    for (const NetDef& definition : written) read_definition_of(net, definition, scope);
    uses_ = uses_around;
    reading_ = reading_around;
  }

  void read_definition_of(const NetDef& net, const NetDef& definition, Scope& scope) {
    try {
      require(scope.count(definition.name()) == 0, "\"{}\" is defined twice", definition.name());
      reading_ = definition.name();
      scope[definition.name()] = std::make_shared<const OperatorDefinition>(
          read_definition(definition, [&](NetDef& inner) { expand(inner, scope, {}); }));
    } catch (Error& e) {
      std::string where;
      if (definition.HasExtension(net_source)) {
        const SourcePosition& at = definition.GetExtension(net_source);
        where = fmt::format("{}:{}:{}, ", at.file(), at.line(), at.column());
      }
      e.add("in",
            fmt::format("{}the definition of operator \"{}\" of net \"{}\"", where, definition.name(), net.name()));
      throw;
    }
  }

  // Of names that nothing has or will have: what other passes make begins with a name that is there.
  std::string prefix(const OperatorDef& use) {
    std::string& head = heads_[use.type()];
    for (int n = 1; head.empty() || text_.find(head) != text_.npos; ++n)
      head = n == 1 ? use.type() + "." : fmt::format("{}_{}.", use.type(), n - 1);
    const auto output = std::ranges::find_if(use.output(), [](const auto& name) { return !name.empty(); });
    const std::string base = head + (output == use.output().end() ? "" : *output);
    std::string prefix = base + "/";
    for (int n = 1; !prefixes_.insert(prefix).second; ++n) prefix = fmt::format("{}_{}/", base, n);
    return prefix;
  }

  const std::string text_;
  std::map<std::string, std::string> heads_;  // by type
  Names prefixes_;
  std::map<std::string, Names> uses_;  // by definition that is being read: the types of its operators
  std::string reading_;
};

}  // namespace

bool is_given_result(const OperatorDef& op, int input) {
  if (op.type() != kWithGradient) return false;
  const Argument* results = find_arg(op, "results");
  return results && input < results->i();
}

void expand_defined_operators(NetDef& net) {
  if (!any_defines_operators(net)) return;
  take_all_extensions(net);
  Expander(net).expand(net, {}, {});
}

}  // namespace stepnet
