// Forward mode over nets, see stepnet/gradients.h.
//
// Of each operator on the way a small net is made, with its gradient operators, and of these the gradient operators
// with respect to the gradients that were given: what is left of both where only that is wanted computes tangents from
// tangents. They get names that are written once.
#include "core/passes/network_rules.h"

#include <algorithm>

#include "core/net/dataflow.h"
#include "core/net/expansions.h"
#include "core/net/mentions.h"
#include "core/operator/in_place.h"
#include "core/operator/program_gradients.h"
#include "core/passes/defined_operators.h"
#include "core/passes/gradient_sums.h"
#include "stepnet/arguments.h"
#include "stepnet/bound_op.h"
#include "stepnet/gradients.h"

namespace stepnet {
namespace {

struct Rule {
  TangentRule apply = nullptr;
  bool (*reads)(const OperatorDef& op, int input) = nullptr;
};

std::map<std::string, Rule>& rules() {
  static std::map<std::string, Rule> all;
  return all;
}

bool reads_tangent(const OperatorDef& op, int input) {
  if (is_given_result(op, input)) return false;
  const auto rule = rules().find(op.type());
  return rule == rules().end() || !rule->second.reads || rule->second.reads(op, input);
}

std::map<std::string, GradientOperatorRule>& gradient_rules() {
  static std::map<std::string, GradientOperatorRule> all;
  return all;
}

std::map<std::string, InnerRunRule>& inner_run_rules() {
  static std::map<std::string, InnerRunRule> all;
  return all;
}

// What the blobs of an operator are called in its small net, by actual input or output.
std::string input_name(int i) { return fmt::format("x{}", i); }
std::string output_name(int o) { return fmt::format("y{}", o); }
std::string cotangent_name(int o) { return fmt::format("y{}_u", o); }
std::string tangent_name(int i) { return fmt::format("x{}_v", i); }

// The operators that compute the tangents of one operator's outputs, over the names above.
struct LocalTangents {
  std::vector<OperatorDef> ops;
  std::map<int, std::string> result;  // by output
};

OperatorDef with_local_names(const OperatorDef& op, const OpSpec& spec) {
  OperatorDef local = op;
  for (int i = 0; i < op.input_size(); ++i)
    if (!op.input(i).empty()) local.set_input(i, input_name(i));
  for (int o = 0; o < op.output_size(); ++o) {
    if (op.output(o).empty()) continue;
    local.set_output(o, output_name(o));
    for (int i = 0; i < op.input_size(); ++i)
      if (const InPlaceRule* rule = in_place_rule(spec, i, o); rule && rule->enforced && op.input(i) == op.output(o))
        local.set_output(o, input_name(i));
  }
  return local;
}

// The operators, from the first after the operator itself, that the names depend on.
std::vector<OperatorDef> needed_operators(const NetDef& net, std::set<std::string> needed) {
  std::vector<OperatorDef> ops;
  for (int i = net.op_size() - 1; i > 0; --i) {
    const OperatorDef& op = net.op(i);
    if (std::ranges::none_of(op.output(), [&](const auto& name) { return needed.count(name) > 0; })) continue;
    for (const std::string& name : op.output()) needed.erase(name);
    for (const std::string& name : op.input())
      if (!name.empty()) needed.insert(name);
    ops.push_back(op);
  }
  std::ranges::reverse(ops);
  return ops;
}

// Which names of a small net surely have the same shape, so that what is computed for its shape alone need not be.
class SameShapes {
 public:
  // Lets operators read shapes from the first name that has each.
  static void use_first(NetDef& net, const std::map<std::string, std::string>& known) {
    SameShapes shapes(net.op(0));
    shapes.known_ = known;
    for (int i = 1; i < net.op_size(); ++i) {
      OperatorDef& op = *net.mutable_op(i);
      const std::vector<bool> reads = element_reads(op_spec(op.type()), op);
      for (int k = 0; k < op.input_size(); ++k)
        if (!reads[k] && !op.input(k).empty()) op.set_input(k, shapes.of(op.input(k)));
      shapes.add(op);
    }
  }

 private:
  explicit SameShapes(const OperatorDef& op) {
    const OpSpec& spec = op_spec(op.type());
    is_broadcast_ = spec.fused && broadcasts(spec) && op.output_size() == 1;
    for (int i = 0; i < op.input_size(); ++i) first_[tangent_name(i)] = input_name(i);
    for (int o = 0; o < op.output_size(); ++o) {
      const int like = shaped_like(spec, o);
      if (like >= 0 && like < op.input_size() && !op.input(like).empty()) first_[output_name(o)] = input_name(like);
      first_[cotangent_name(o)] = of(output_name(o));
    }
  }

  std::string of(const std::string& name) const {
    const auto found = first_.find(name);
    return found == first_.end() ? name : found->second;
  }

  static std::string axis_of(const OperatorDef& op) {
    const Argument* axis = find_arg(op, "axis");
    return axis ? axis->SerializeAsString() : "";
  }

  void add(const OperatorDef& op) {
    const OpSpec& spec = op_spec(op.type());
    for (int o = 0; o < op.output_size(); ++o) {
      const int like = shaped_like(spec, o);
      const auto known = known_.find(op.output(o));
      const bool is_like = like >= 0 && like < op.input_size() && !op.input(like).empty();
      const std::string shape = known != known_.end() ? of(known->second)
                                : is_like             ? of(op.input(like))
                                                      : computed(op, spec);
      if (!shape.empty()) first_[op.output(o)] = shape;
    }
    if (spec.takes_columns) wholes_[{axis_of(op), shapes_of(op.output())}] = of(op.input(0));
  }

  template <class Names>
  std::vector<std::string> shapes_of(const Names& names) const {
    std::vector<std::string> shapes;
    for (const std::string& name : names) shapes.push_back(of(name));
    return shapes;
  }

  // The shape of output 0 where no rule says it: of operands of one shape, or parts put together again; "" if unknown.
  std::string computed(const OperatorDef& op, const OpSpec& spec) const {
    if (op.input_size() == 0) return "";
    const std::string first = of(op.input(0));
    if (spec.fused && broadcasts(spec)) {
      // What the operator itself broadcasts to holds against its operands.
      const std::string result = of(output_name(0));
      const bool same = std::ranges::all_of(op.input(), [&](const auto& name) { return of(name) == first; });
      const bool whole = is_broadcast_ &&
                         std::ranges::any_of(op.input(), [&](const auto& name) { return of(name) == result; }) &&
                         std::ranges::all_of(op.input(), [&](const auto& name) {
                           return of(name) == result || of(name) == input_name(0) || of(name) == input_name(1);
                         });
      return same ? first : whole ? result : "";
    }
    const auto whole = wholes_.find({axis_of(op), shapes_of(op.input())});
    return spec.puts_columns && whole != wholes_.end() ? whole->second : "";
  }

  std::map<std::string, std::string> first_;  // by name
  std::map<std::string, std::string> known_;  // what formulas say
  // By an axis and the shapes of parts along it: the shape of what they are parts of.
  std::map<std::pair<std::string, std::vector<std::string>>, std::string> wholes_;
  bool is_broadcast_ = false;
};

// A tangent is the same for all gradients of outputs that may be given, if the derivative is linear in these, as all
// are but for some that people write down: so nothing that is read for the tangents may come from these. A net that
// reads their values without depending on them is refused, too. `results`: what the operators are for; of some only the
// shape is read.
void check_linear(const OperatorDef& op, const std::vector<OperatorDef>& ops, std::set<std::string> results) {
  for (auto made = ops.rbegin(); made != ops.rend(); ++made) {
    if (std::ranges::none_of(made->output(), [&](const auto& name) { return results.count(name) > 0; })) continue;
    for (const std::string& name : made->output()) results.erase(name);
    const std::vector<bool> reads = element_reads(op_spec(made->type()), *made);
    for (int i = 0; i < made->input_size(); ++i)
      if (reads[i]) results.insert(made->input(i));
  }
  for (int o = 0; o < op.output_size(); ++o)
    if (results.count(cotangent_name(o)) > 0)
      throw Error("its derivative is not linear in the gradients of its outputs, so that it has no tangents",
                  "differentiate backward, or let its gradient net be linear in these");
}

// `moved`: per input, whether it has a tangent; `needed`: per output. No operators if all tangents are zero.
LocalTangents local_tangents(const BoundOp& op, const std::vector<bool>& moved, const std::vector<bool>& needed) {
  NetDef net;
  *net.add_op() = with_local_names(op.def, *op.spec);
  GradientRequest backward, forward;
  for (int o = 0; o < op.def.output_size(); ++o)
    if (needed[o]) {
      backward.targets.emplace_back(net.op(0).output(o), cotangent_name(o));
      forward.wanted.insert(cotangent_name(o));
    }
  for (int i = 0; i < op.def.input_size(); ++i)
    if (moved[i]) backward.wanted.insert(input_name(i));
  LocalTangents local;
  try {
    const GradientResult gradients = add_gradient_operators(net, backward);
    for (int i = 0; i < op.def.input_size(); ++i) {
      const auto gradient = gradients.gradients.find(input_name(i));
      if (!moved[i] || gradient == gradients.gradients.end() || !gradient->second.defined()) continue;
      forward.targets.emplace_back(append_dense_copy(net, gradient->second, input_name(i), input_name(i) + "_w"),
                                   tangent_name(i));
    }
    if (forward.targets.empty()) return local;
    const GradientResult tangents = add_gradient_operators(net, forward);
    std::set<std::string> names;
    for (int o = 0; o < op.def.output_size(); ++o) {
      const auto tangent = tangents.gradients.find(cotangent_name(o));
      if (!needed[o] || tangent == tangents.gradients.end() || !tangent->second.defined()) continue;
      local.result[o] = tangent->second.is_sparse()
                            ? append_dense_copy(net, tangent->second, cotangent_name(o), output_name(o) + "_t")
                            : tangent->second.dense;
      names.insert(local.result[o]);
    }
    std::map<std::string, std::string> shapes = gradients.shapes;
    shapes.insert(tangents.shapes.begin(), tangents.shapes.end());
    SameShapes::use_first(net, shapes);
    local.ops = needed_operators(net, names);
    if (op.def.type() == kWithGradient) check_linear(op.def, local.ops, names);
  } catch (const NoDependence&) {  // they are zero
    return {};
  }
  return local;
}

// Where the operator is told to have dense gradients, as in step nets, those made for it have them, too.
void keep_dense(const OperatorDef& op, OperatorDef& made) {
  const char* const name = "dense_gradient";
  const Argument* const dense = find_arg(op, name);
  const auto& args = op_spec(made.type()).args;
  if (dense && !find_arg(made, name) && std::ranges::find(args, name, &ArgSpec::name) != args.end())
    *made.add_arg() = *dense;
}

// True if the output is the input as it is.
bool is_same_value(const OperatorDef& op) {
  const Role role = op_spec(op.type()).role;
  return role == Role::copy || role == Role::alias;
}

class TangentPass {
 public:
  TangentPass(NetDef& net, const TangentRequest& request)
      : net_(net), request_(request), bound_(net, {.fixed_storages = request.fixed_storages}) {}

  TangentResult run() {
    take_names();
    take_given();
    find_needed();
    for (int i = 0; i < static_cast<int>(bound_.ops.size()); ++i) add_operator(i);
    return finish();
  }

 private:
  struct Place {
    std::map<std::string, std::string> names;
    bool before = false;
  };

  const NetValue& value(int value) const { return bound_.flow.value(value); }
  const std::string& name_of(int value) const { return bound_.flow.name(this->value(value).blob); }
  std::string fresh(const std::string& base) {
    std::string name = base;
    for (int& n = numbers_[base]; taken_.count(name) > 0 || is_scope(name);) name = fmt::format("{}_{}", base, ++n);
    taken_.insert(name);
    return name;
  }
  // A network's blobs have names that begin with its own and a slash.
  bool is_scope(const std::string& name) const {
    const auto inside = taken_.lower_bound(name + "/");
    return inside != taken_.end() && inside->starts_with(name + "/");
  }
  std::string tangent(int value) const {  // "" also for -1
    const auto found = tangents_.find(value);
    return found == tangents_.end() ? "" : found->second;
  }
  // What moves along a given direction does not depend on what it is made of.
  void set_tangent(int value, const std::string& name) {
    if (value >= 0 && request_.stop.count(name_of(value)) == 0) tangents_.emplace(value, name);
  }
  void take_names();
  void take_given();
  void find_needed();
  void check_shared(int op) const;
  void add_operator(int op);
  int held_before(int op, const std::string& blob) const;
  bool finds_moving(int op) const;
  void apply_rule(int op, TangentRule rule);
  Place place(int op, const LocalTangents& local);
  std::string copy_before(const OperatorDef& def, const std::string& name);
  void emit(int op, const LocalTangents& local);
  TangentResult finish();

  NetDef& net_;
  const TangentRequest& request_;
  BoundNet bound_;
  std::set<std::string> taken_;
  std::map<std::string, int> numbers_;
  std::map<int, std::string> tangents_, given_;  // by value
  std::vector<bool> needed_;                     // by value
  std::vector<int> wanted_;                      // values
  google::protobuf::RepeatedPtrField<OperatorDef> ops_;
};

void TangentPass::take_names() {
  for (const auto& [blob, name] : request_.given) taken_.insert({blob, name});
  taken_.insert(net_.external_input().begin(), net_.external_input().end());
  taken_.insert(net_.external_output().begin(), net_.external_output().end());
  for (const OperatorDef& op : net_.op()) {
    taken_.insert(op.name());
    taken_.insert(op.input().begin(), op.input().end());
    taken_.insert(op.output().begin(), op.output().end());
  }
}

void TangentPass::take_given() {
  std::set<std::string> names;
  for (const auto& [blob, given] : request_.given) {
    const std::string name = given.empty() ? fresh(blob + "_tangent") : given;
    const int number = bound_.flow.find(blob);
    require(number >= 0, "there is no blob \"{}\" in net \"{}\" whose tangent could be given.{}", blob, net_.name(),
            suggest(blob, bound_.flow.names()));
    const int written = bound_.flow.find(name);
    if (written >= 0 && bound_.flow.last_writer(written) >= 0)
      throw Error(fmt::format("the tangent of \"{}\" is to be given as \"{}\", which the net writes", blob, name),
                  "give it another name");
    require(names.insert(name).second, "\"{}\" is given as the tangent of two blobs", name);
    given_[bound_.flow.meant(number)] = name;
    set_tangent(bound_.flow.meant(number), name);
    if (net_.external_input_size() > 0 && std::ranges::count(net_.external_input(), name) == 0)
      net_.add_external_input(name);
  }
}

// A value is needed if it is wanted, or if an operator that makes something needed reads it.
void TangentPass::find_needed() {
  needed_.resize(bound_.flow.values().size());
  const auto want = [&](int value) {
    wanted_.push_back(value);
    needed_[value] = true;
  };
  std::set<std::string> wanted = request_.wanted;
  if (wanted.empty()) wanted.insert(net_.external_output().begin(), net_.external_output().end());
  for (const std::string& name : wanted) {
    const int blob = bound_.flow.find(name);
    require(blob >= 0 || !request_.wanted.count(name),
            "there is no blob \"{}\" in net \"{}\" whose tangent is wanted.{}", name, net_.name(),
            suggest(name, bound_.flow.names()));
    if (blob >= 0) want(bound_.flow.last(blob));
  }
  if (wanted.empty())
    for (int blob = 0; blob < bound_.flow.blobs(); ++blob)
      if (bound_.flow.last(blob) >= 0) want(bound_.flow.last(blob));
  for (int i = static_cast<int>(bound_.ops.size()) - 1; i >= 0; --i) {
    const auto is_needed = [&](int output) { return output >= 0 && needed_[output] && given_.count(output) == 0; };
    if (std::ranges::none_of(bound_.flow.outputs(i), is_needed)) continue;
    const std::span<const int> inputs = bound_.flow.inputs(i);
    for (size_t k = 0; k < inputs.size(); ++k)
      if (inputs[k] >= 0 && reads_tangent(bound_.ops[i].def, static_cast<int>(k))) needed_[inputs[k]] = true;
  }
}

// Two names of one storage, of which one was written anew: what the other holds then is not known.
void TangentPass::check_shared(int op) const {
  const std::span<const int> inputs = bound_.flow.inputs(op), reads = bound_.flow.reads(op);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] < 0 || reads[i] < 0) continue;
    for (int held = inputs[i]; held >= 0 && value(held).replaces >= 0; held = value(held).replaces) {
      if (tangent(value(held).replaces).empty() && tangent(value(held).shows).empty()) continue;
      throw Error(
          fmt::format("it reads \"{}\", whose storage was overwritten under another name, so its tangent is not "
                      "known",
                      name_of(inputs[i])),
          fmt::format("write to a blob that is no alias of \"{}\"", name_of(inputs[i])));
    }
  }
}

void TangentPass::add_operator(int op) {
  const BoundOp& bound = bound_.ops[op];
  std::vector<bool> moved, needed;
  for (const int input : bound_.flow.inputs(op)) moved.push_back(input >= 0 && !tangent(input).empty());
  for (const int output : bound_.flow.outputs(op))
    needed.push_back(output >= 0 && needed_[output] && given_.count(output) == 0 &&
                     may_move(*bound.spec, static_cast<int>(needed.size())));
  const auto any = [](const std::vector<bool>& of) { return std::ranges::find(of, true) != of.end(); };
  try {
    if (any(needed)) check_shared(op);
    const bool moves = any(moved) || (any(needed) && finds_moving(op));
    if (!moves || !any(needed) || bound.spec->gradient_rule == GradientRule::stop) {
      *ops_.Add() = bound.def;
      return;
    }
    if (const auto rule = rules().find(bound.def.type()); rule != rules().end())
      return apply_rule(op, rule->second.apply);
    emit(op, local_tangents(bound, moved, needed));
  } catch (Error& e) {
    if (!e.has("op")) add_op_context(e, bound);
    throw;
  }
}

// What a blob that is no input of the operator holds before it: nets in it find blobs by their names.
int TangentPass::held_before(int op, const std::string& blob) const {
  int held = -1;
  const std::span<const NetValue> values = bound_.flow.values();
  for (size_t v = 0; v < values.size(); ++v)
    if (values[v].writer < op && bound_.flow.name(values[v].blob) == blob &&
        (held < 0 || values[v].writer > values[held].writer))
      held = static_cast<int>(v);
  return held;
}

// True if nets in the operator may find a blob by its name that moves.
bool TangentPass::finds_moving(int op) const {
  if (rules().count(bound_.ops[op].def.type()) == 0) return false;
  Mentions mentions;
  for (const std::string& name : bound_.flow.names()) mentions.add(name);
  return std::ranges::any_of(mentions.in(bound_.ops[op].def.SerializeAsString()),
                             [&](const std::string& name) { return !tangent(held_before(op, name)).empty(); });
}

void TangentPass::apply_rule(int op, TangentRule rule) {
  const OperatorDef& def = bound_.ops[op].def;
  const auto inputs = bound_.flow.inputs(op), outputs = bound_.flow.outputs(op);
  const auto place = [](const auto& names, const std::string& name) {
    return std::ranges::find(names, name) - names.begin();
  };
  const TangentCall call{def,
                         [&](const std::string& blob) {
                           const auto i = place(def.input(), blob);
                           return tangent(i < def.input_size() ? inputs[i] : held_before(op, blob));
                         },
                         [&](const std::string& output) {
                           const auto o = place(def.output(), output);
                           return o < def.output_size() && outputs[o] >= 0 && needed_[outputs[o]];
                         },
                         [&](const std::string& base) { return fresh(base); },
                         [&](int first) { check_inputs_unchanged(bound_, op, first); },
                         [&](const std::string& output) {
                           const auto o = place(def.output(), output);
                           return o < def.output_size() && outputs[o] >= 0 && !value(outputs[o]).uses.empty();
                         },
                         request_.fixed_storages};
  TangentOperators made = rule(call);
  for (OperatorDef& made_op : made.ops) *ops_.Add() = std::move(made_op);
  for (const auto& [output, name] : made.tangents) set_tangent(outputs[place(def.output(), output)], name);
}

// Names in the net of what the operators of one are made over. `before`: they come before the operator, as it
// overwrites what they read; where they read outputs too, that is copied before.
TangentPass::Place TangentPass::place(int op, const LocalTangents& local) {
  const BoundOp& bound = bound_.ops[op];
  const OperatorDef& def = bound.def;
  std::set<std::string> read;
  for (const OperatorDef& made : local.ops) read.insert(made.input().begin(), made.input().end());
  Place place;
  bool reads_output = false, overwrites = false;
  std::map<std::string, int> like;  // of given gradients, of which the shape alone is read: the inputs that have it
  for (int o = 0; o < def.output_size(); ++o) {
    const int input = shaped_like(*bound.spec, o);
    const bool has_input = input >= 0 && input < def.input_size() && !def.input(input).empty();
    place.names[output_name(o)] = place.names[cotangent_name(o)] = def.output(o);
    if (has_input) like[cotangent_name(o)] = input;
    if (has_input && read.count(cotangent_name(o)) > 0) read.insert(input_name(input));
    reads_output = reads_output || read.count(output_name(o)) + (has_input ? 0 : read.count(cotangent_name(o))) > 0;
  }
  for (int i = 0; i < def.input_size(); ++i) {
    const int input = bound_.flow.inputs(op)[i];
    if (input < 0) continue;
    place.names[input_name(i)] = def.input(i);
    place.names[tangent_name(i)] = tangent(input);
    if (value(input).overwritten != op || read.count(input_name(i)) == 0) continue;
    overwrites = true;
    if (reads_output) place.names[input_name(i)] = copy_before(def, def.input(i));
  }
  for (const auto& [cotangent, input] : like) place.names[cotangent] = place.names[input_name(input)];
  place.before = overwrites && !reads_output;
  return place;
}

std::string TangentPass::copy_before(const OperatorDef& def, const std::string& name) {
  OperatorDef& copy = *ops_.Add();
  copy.set_type(op_with_role(Role::copy).type);
  copy.add_input(name);
  copy.add_output(fresh(name + "_before"));
  if (def.has_device_option()) *copy.mutable_device_option() = def.device_option();
  return copy.output(0);
}

void TangentPass::emit(int op, const LocalTangents& local) {
  const OperatorDef& def = bound_.ops[op].def;
  Place place = this->place(op, local);
  if (!place.before) *ops_.Add() = def;
  std::map<std::string, size_t> last;  // by name: its last writer
  for (size_t i = 0; i < local.ops.size(); ++i)
    for (const std::string& name : local.ops[i].output()) last[name] = i;
  std::map<std::string, std::string> results;
  for (const auto& [o, name] : local.result) results.emplace(name, def.output(o) + "_tangent");
  const std::string part = (def.output_size() > 0 ? def.output(0) : def.type()) + "_tangent_part";
  std::set<std::string> own;  // tangents and what is made here: nothing overwrites them
  for (int i = 0; i < def.input_size(); ++i) own.insert(tangent_name(i));
  for (size_t i = 0; i < local.ops.size(); ++i) {
    OperatorDef made = local.ops[i];
    for (const std::string& name : made.output()) own.insert(name);
    if (is_same_value(made) && own.count(made.input(0)) > 0) {
      place.names[made.output(0)] = place.names.at(made.input(0));
      continue;
    }
    made.clear_is_gradient_op();
    made.clear_name();
    keep_dense(def, made);
    for (std::string& name : *made.mutable_input())
      if (!name.empty()) name = place.names.at(name);
    for (std::string& name : *made.mutable_output()) {
      if (name.empty()) continue;
      const auto result = last.at(name) == i ? results.find(name) : results.end();
      name = place.names[name] = fresh(result != results.end() ? result->second : part);
    }
    *ops_.Add() = std::move(made);
  }
  for (const auto& [o, name] : local.result) set_tangent(bound_.flow.outputs(op)[o], place.names.at(name));
  if (place.before) *ops_.Add() = def;
}

TangentResult TangentPass::finish() {
  TangentResult result;
  for (const auto& [value, name] : given_) result.tangents[name_of(value)] = name;
  for (const int value : wanted_) {
    const std::string name = tangent(value);
    if (name.empty()) {  // what the blob held before has one at most
      result.tangents.erase(name_of(value));
      continue;
    }
    result.tangents[name_of(value)] = name;
    if (std::ranges::count(net_.external_output(), name_of(value)) > 0 &&
        std::ranges::count(net_.external_output(), name) == 0)
      net_.add_external_output(name);
  }
  net_.mutable_op()->Swap(&ops_);
  return result;
}

}  // namespace

void add_tangent_rule(const std::string& type, TangentRule rule, bool (*reads)(const OperatorDef& op, int input)) {
  rules()[type] = {rule, reads};
}
void add_inner_run_rule(const std::string& type, InnerRunRule rule) { inner_run_rules()[type] = rule; }

InnerRunRule inner_run_rule(const std::string& type) {
  const auto rule = inner_run_rules().find(type);
  return rule == inner_run_rules().end() ? nullptr : rule->second;
}

void add_gradient_rule(const std::string& type, GradientOperatorRule rule) { gradient_rules()[type] = rule; }

GradientOperatorRule gradient_rule(const std::string& type) {
  const auto found = gradient_rules().find(type);
  return found == gradient_rules().end() ? nullptr : found->second;
}

void check_inputs_unchanged(const BoundNet& net, int op, int first) {
  const std::span<const int> inputs = net.flow.inputs(op);
  const int writer = inputs.empty() || inputs.back() < 0 ? -1 : net.flow.value(inputs.back()).writer;
  if (writer < 0) return;  // in another net: then that these are the same is for who runs both
  const std::span<const int> before = net.flow.inputs(writer);
  for (size_t i = 0; i < before.size() && first + i < inputs.size(); ++i)
    if (before[i] != inputs[first + i])
      throw Error(fmt::format("\"{}\" does not hold what operator {} ({}) has read any more",
                              net.ops[writer].def.input(static_cast<int>(i)), writer, net.ops[writer].def.type()),
                  fmt::format("let nothing write to \"{}\" after it", net.ops[writer].def.input(static_cast<int>(i))));
}

TangentResult add_short_tangent_operators(NetDef& net, const TangentRequest& request) {
  return TangentPass(net, request).run();
}

TangentResult add_tangent_operators(NetDef& net, const TangentRequest& request) {
  expand_net(net);
  TangentResult result = add_short_tangent_operators(net, request);
  expand_net(net);
  return result;
}

}  // namespace stepnet
