#include "stepnet/gradients.h"

#include <algorithm>
#include <array>

#include "core/net/dataflow.h"
#include "core/operator/in_place.h"
#include "core/passes/gradient_checks.h"
#include "core/passes/gradient_names.h"
#include "core/passes/gradient_sums.h"
#include "core/passes/inner_gradients.h"
#include "core/passes/network_rules.h"

namespace stepnet {
namespace {

struct ForwardOp {
  const BoundOp& op;
  std::span<const int> inputs, outputs;  // values; -1: absent
  std::vector<bool> wanted = {};         // per input
  // Per input that a gradient would be wanted of: it is zero, or is none. Empty if no formula was asked.
  std::vector<bool> is_zero = {}, is_none = {};
};

// Names of a gradient program's slots while they are chosen.
struct Naming {
  std::map<int, std::string> named;
  std::map<int, size_t> result_of;                                            // by slot: the input it is a gradient of
  std::map<int, std::vector<std::pair<size_t, int>>> reads;                   // by slot: steps, and which input of it
  std::map<std::string, std::vector<std::pair<size_t, int>>> reads_of_bytes;  // the same of what has a name by now
  std::map<std::string, int> own;  // bytes of gradients of the operator's outputs, which it reads for the last time
  GradientNames::SplitNumbers own_splits;
  std::vector<std::string> held;  // by results that have a name by now
};

// True if the step's output `slot` may have the name of its input `i`.
bool works_in_place(const GradientProgram::Step& step, int i, int slot) {
  const auto o = std::ranges::find(step.outputs, slot) - step.outputs.begin();
  return may_write_over(op_spec(step.type), i, static_cast<int>(o));
}

// True if the step's output `slot` may be another name of the gradient of an output.
bool shows_output_gradient(const GradientProgram& program, size_t s, int slot) {
  const GradientProgram::Step& step = program.steps[s];
  const auto o = std::ranges::find(step.outputs, slot) - step.outputs.begin();
  const int source = aliased_input(op_spec(step.type), static_cast<int>(o));
  return source >= 0 && program.slots[step.inputs[source]].kind == GradientProgram::SlotKind::output_gradient;
}

class GradientPass {
 public:
  GradientPass(NetDef& net, const GradientRequest& request, const std::string& prefix = "")
      : net_(net),
        request_(request),
        names_(net, prefix),
        sums_(net_, names_),
        bound_(net, {.fixed_storages = request.fixed_storages}) {}

  GradientResult run() {
    result_.first_gradient_op = net_.op_size();
    mark_wanted();
    seed_targets();
    for (int i = static_cast<int>(forward_.size()) - 1; i >= 0; --i) {
      differentiate(forward_[i]);
      finish_blobs_first_read_by(i);
    }
    for (const int value : pending_by_name()) finish(value);
    add_zeros();
    name_results();
    if (!request_.fixed_storages) part_results();
    return std::move(result_);
  }

 private:
  // A finished gradient, and how often its names had been written by then.
  using Written = std::array<GradientNames::Written, 3>;
  struct Done {
    GradientName name;
    Written written;
  };

  const NetValue& value(int value) const { return bound_.flow.value(value); }
  const std::string& name_of(int value) const { return bound_.flow.name(this->value(value).blob); }
  bool is_asked_for(int value) const;
  bool may_hold_needed(int value) const;
  void mark_wanted();
  void leave_out_zeros(ForwardOp& f) const;
  void seed_targets();
  GradientProgram record(const ForwardOp& f, const std::vector<bool>& present);
  void differentiate(ForwardOp& f);
  void emit(ForwardOp& f, const GradientProgram& program);
  void apply_rule(ForwardOp& f, const std::vector<bool>& present, GradientOperatorRule rule);
  Naming prepare_naming(const ForwardOp& f, const GradientProgram& program) const;
  void give_name(Naming& naming, int slot, const std::string& name);
  std::map<int, std::string> name_slots(ForwardOp& f, const GradientProgram& program);
  bool may_write(const GradientProgram& program, size_t s, int slot, const std::string& name,
                 const Naming& naming) const;
  std::string name_output(const ForwardOp& f, const GradientProgram& program, size_t s, int slot, const Naming& naming);
  std::string slot_name(const ForwardOp& f, const GradientProgram::Slot& slot) const;
  void contribute(ForwardOp& f, const GradientProgram& program, const std::map<int, std::string>& named);
  void finish_blobs_first_read_by(int op);
  void densify(int value, Done& done, const OperatorDef& like);
  const GradientName& finish(int value);
  std::vector<int> pending_by_name() const;
  std::set<int> reached_by_zeros() const;
  void add_zeros();
  void name_results();
  void part_results();
  void part(const std::string& name);
  void add_contribution(int value, GradientName c);
  Written written(const GradientName& name) const;

  NetDef& net_;
  const GradientRequest& request_;
  GradientNames names_;
  GradientSums sums_;
  BoundNet bound_;
  GradientResult result_;
  std::vector<ForwardOp> forward_;
  std::set<int> asked_, needs_;  // values
  std::set<int> depends_;        // values: what needs_ has, and what depends on it by derivatives that are zero
  std::map<int, std::vector<GradientName>> pending_;
  std::map<int, Done> done_;
  std::map<std::string, int> alias_made_;  // by name: the operator that last made it another name of bytes
};

// The version of a blob that a caller means whose gradients are wanted.
bool GradientPass::is_asked_for(int value) const {
  if (value < 0 || request_.stop.count(name_of(value)) > 0) return false;
  if (request_.wanted.empty()) return this->value(value).version == 0;
  return asked_.count(value) > 0;
}

// True if the blob's storage was overwritten under another name, and what it held or what was written needs a gradient.
bool GradientPass::may_hold_needed(int value) const {
  for (int held = value; held >= 0 && this->value(held).replaces >= 0; held = this->value(held).replaces)
    if (needs_.count(this->value(held).replaces) > 0 || needs_.count(this->value(held).shows) > 0) return true;
  return false;
}

// A gradient is needed for what is wanted, and for everything on the way from there to the end.
void GradientPass::mark_wanted() {
  for (const std::string& name : request_.wanted)
    if (const int blob = bound_.flow.find(name); blob >= 0) {
      const int meant = bound_.flow.meant(blob);
      require(value(meant).replaces < 0,
              "the gradient of \"{}\" is wanted, but its storage was overwritten under another name", name);
      asked_.insert(meant);
    }
  for (size_t i = 0; i < bound_.ops.size(); ++i) {
    const int op = static_cast<int>(i);
    ForwardOp f{bound_.ops[i], bound_.flow.inputs(op), bound_.flow.outputs(op)};
    bool depends = false;
    for (const int input : f.inputs) {
      if (is_asked_for(input) || may_hold_needed(input)) needs_.insert(input);
      f.wanted.push_back(needs_.count(input) > 0);
      depends = depends || f.wanted.back() || depends_.count(input) > 0;
    }
    if (names_.is_higher_order()) leave_out_zeros(f);
    bool any = std::ranges::find(f.wanted, true) != f.wanted.end();
    if (f.op.spec->gradient_rule == GradientRule::stop) any = depends = false;
    for (const int output : f.outputs) {
      if (output < 0 || request_.stop.count(name_of(output)) > 0) continue;
      if (any || is_asked_for(output)) needs_.insert(output);
      if (depends || is_asked_for(output)) depends_.insert(output);
    }
    forward_.push_back(std::move(f));
  }
}

// What is known to be zero is not computed, and so nothing that only it would need.
void GradientPass::leave_out_zeros(ForwardOp& f) const {
  const OpSpec& spec = *f.op.spec;
  if (spec.gradient_rule != GradientRule::undefined || spec.whole_derivative || gradient_rule(spec.type)) return;
  if (std::ranges::find(f.wanted, true) == f.wanted.end()) return;
  try {
    const std::vector<bool> present(f.outputs.size(), true);
    const GradientProgram program = record_gradient(spec, f.op.def, f.op.args.get(), f.wanted, present);
    for (size_t i = 0; i < f.wanted.size(); ++i) {
      const Gradient& g = program.results[i];
      f.is_zero.push_back(f.wanted[i] && g.is_zero);
      f.is_none.push_back(f.wanted[i] && !g.is_zero && !g.defined());
      f.wanted[i] = f.wanted[i] && g.defined();
    }
  } catch (const Error&) {  // no derivative: reported if a target turns out to depend on it
  }
}

void GradientPass::seed_targets() {
  bool any = false;
  for (const auto& [blob, given] : request_.targets) {
    const int number = bound_.flow.find(blob);
    if (number < 0)
      fail("there is no blob \"{}\" in net \"{}\" to differentiate.{}", blob, net_.name(),
           suggest(blob, bound_.flow.names()));
    const int target = bound_.flow.last(number);
    require(value(target).replaces < 0,
            "\"{}\" is to be differentiated, but its storage was overwritten under another name", blob);
    GradientName name{.dense = given, .indices = "", .values = ""};
    if (given.empty()) {
      name.dense = names_.fresh(names_.gradient_of(blob, "_autogen_grad"));
      const int writer = bound_.flow.last_writer(number);
      OperatorDef& fill = append_gradient_op(net_, op_with_role(Role::fill_like).type,
                                             writer >= 0 ? bound_.ops[writer].def : OperatorDef());
      fill.add_input(blob);
      fill.add_output(name.dense);
      *fill.add_arg() = make_arg("value", 1.0f);
    }
    // A step net's is a place in the states' gradients, which are the network's own.
    given.empty() || request_.fixed_storages ? names_.take(name.dense) : names_.take_given(name.dense);
    add_contribution(target, name);
    any = any || needs_.count(target) > 0 || depends_.count(target) > 0;
  }
  if (any || request_.targets.empty() || request_.wanted.empty()) return;
  std::vector<std::string> targets;
  std::set<int> values;
  for (const auto& [blob, given] : request_.targets) {
    targets.push_back(blob);
    values.insert(bound_.flow.last(bound_.flow.find(blob)));
  }
  const std::string end = where_derivatives_end(bound_, asked_, values);
  throw NoDependence(fmt::format("{} of net \"{}\" depends on none of the blobs whose gradients are wanted: {}{}{}",
                                 fmt::join(targets, ", "), net_.name(), fmt::join(request_.wanted, ", "),
                                 end.empty() ? "" : "; ", end));
}

void GradientPass::add_contribution(int value, GradientName c) {
  names_.hold(c);
  pending_[value].push_back(std::move(c));
}

// Where the shape of an operand that may have been broadcast is not there any more, the forward operator is told that
// its operands have one shape: then the gradient need not read it.
GradientProgram GradientPass::record(const ForwardOp& f, const std::vector<bool>& present) {
  GradientProgram program = record_gradient(*f.op.spec, f.op.def, f.op.args.get(), f.wanted, present);
  if (!broadcasts(*f.op.spec) || !reads_lost_shape(bound_, f.op.index, program)) return program;
  OperatorDef& op = *net_.mutable_op(f.op.index);
  *op.add_arg() = make_arg("equal_shapes", true);
  return record_gradient(*f.op.spec, op, parse_args(*f.op.spec, op).get(), f.wanted, present);
}

void GradientPass::differentiate(ForwardOp& f) {
  if (std::find(f.wanted.begin(), f.wanted.end(), true) == f.wanted.end()) return;
  std::vector<bool> present;
  bool any = f.outputs.empty();
  for (const int output : f.outputs) {
    const bool has = done_.count(output) > 0 || pending_.count(output) > 0;
    present.push_back(has && finish(output).defined());
    any = any || present.back();
  }
  if (!any) return;
  try {
    check_shared(bound_, f.op.index, f.wanted);
    for (const int output : f.outputs)
      if (const auto it = done_.find(output); it != done_.end() && it->second.name.is_sparse())
        densify(output, it->second, f.op.def);
    if (const GradientOperatorRule rule = gradient_rule(f.op.def.type())) {
      apply_rule(f, present, rule);
    } else {
      const GradientProgram program = record(f, present);
      check_in_place(f.op, f.wanted);
      check_versions(bound_, f.op.index, program, result_.kept);
      emit(f, program);
    }
    result_.differentiated.push_back({f.op.index, f.wanted, present});
  } catch (Error& e) {
    add_op_context(e, f.op);
    throw;
  }
  // The gradients of this operator's outputs have been read for the last time.
  for (const int output : f.outputs)
    if (const auto it = done_.find(output); it != done_.end()) names_.release(it->second.name);
}

void GradientPass::apply_rule(ForwardOp& f, const std::vector<bool>& present, GradientOperatorRule rule) {
  const OperatorDef& def = f.op.def;
  GradientCall call{.op = def, .gradients = {}, .wanted = f.wanted, .fresh = {}};
  for (size_t o = 0; o < present.size(); ++o)
    call.gradients.push_back(present[o] ? done_.at(f.outputs[o]).name.dense : "");
  std::set<std::string> fresh;
  call.fresh = [&](const std::string& base) {
    const std::string own = names_.gradient_of("_" + base, "");
    std::string name = names_.fresh(own);
    for (int n = 1; !fresh.insert(name).second; ++n) name = names_.fresh(fmt::format("{}_{}", own, n));
    return name;
  };
  call.check_unchanged = [&](int first) { check_inputs_unchanged(bound_, f.op.index, first); };
  const GradientOperators made = rule(call);
  std::set<std::string> read;
  for (const OperatorDef& op : made.ops) read.insert(op.input().begin(), op.input().end());
  for (int i = 0; i < def.input_size(); ++i) {
    if (def.input(i).empty() || read.count(def.input(i)) == 0) continue;
    result_.kept.insert(def.input(i));
    check_value(bound_, def.input(i), f.inputs[i]);
  }
  for (const OperatorDef& op : made.ops) {
    *net_.add_op() = op;
    net_.mutable_op(net_.op_size() - 1)->set_is_gradient_op(true);
    for (const std::string& name : op.output())
      if (!name.empty()) names_.take(name);
  }
  for (int i = 0; i < def.input_size(); ++i)
    if (f.wanted[i] && !made.gradients[i].empty())
      add_contribution(f.inputs[i], {.dense = made.gradients[i], .indices = "", .values = ""});
}

std::string GradientPass::slot_name(const ForwardOp& f, const GradientProgram::Slot& slot) const {
  switch (slot.kind) {
    case GradientProgram::SlotKind::input:
      return f.op.def.input(slot.index);
    case GradientProgram::SlotKind::output:
      return f.op.def.output(slot.index);
    case GradientProgram::SlotKind::output_gradient:
      return done_.at(f.outputs[slot.index]).name.dense;
    case GradientProgram::SlotKind::temporary:
      break;
  }
  return "";
}

// May step `s` write its output `slot` to `name`? Not if another gradient holds what is there, a later step or a result
// reads it, or step `s` itself reads it and does not work in place.
bool GradientPass::may_write(const GradientProgram& program, size_t s, int slot, const std::string& name,
                             const Naming& naming) const {
  if (names_.is_higher_order() && names_.taken(name)) return false;
  int holders = names_.holders(name);
  if (const auto it = naming.own.find(names_.bytes_of(name)); it != naming.own.end()) holders -= it->second;
  if (holders > 0 || names_.is_foreign(name)) return false;
  const auto reads = naming.reads_of_bytes.find(names_.bytes_of(name));
  if (reads == naming.reads_of_bytes.end()) return true;
  const bool stays = names_.shows_given(name);
  return std::ranges::all_of(reads->second, [&](const auto& read) {
    const auto& [step, input] = read;
    if (stays && step == s) return false;
    if (step < s || program.steps[step].inputs[input] == slot) return true;
    return step == s && works_in_place(program.steps[s], input, slot);
  });
}

std::string GradientPass::name_output(const ForwardOp& f, const GradientProgram& program, size_t s, int slot,
                                      const Naming& naming) {
  const auto result = naming.result_of.find(slot);
  if (result == naming.result_of.end())
    return names_.temporary(f.op.def.output_size() > 0 ? f.op.def.output(0) : f.op.def.type());
  const int input = f.inputs[result->second];
  const Gradient& g = program.results[result->second];
  const std::string suffix = g.dense.slot == slot ? "" : g.values.slot == slot ? "_values" : "_indices";
  const std::string base = names_.gradient_of(name_of(input)) + suffix;
  // Sparse parts of several readers are told apart from the first on, as the public format does.
  // Another name for the gradient of an output is none that a sum could be written over, which is to have the base.
  // Of higher orders the sum is no part's name, as each is written once.
  const bool shared = value(input).uses.size() > 1 &&
                      (names_.is_higher_order() || !suffix.empty() || shows_output_gradient(program, s, slot));
  if (!shared && may_write(program, s, slot, base, naming)) return base;
  const auto usable = [&](const std::string& name) {
    return !names_.taken(name) || may_write(program, s, slot, name, naming);
  };
  return names_.split(base, usable, naming.own_splits);
}

Naming GradientPass::prepare_naming(const ForwardOp& f, const GradientProgram& program) const {
  Naming naming;
  for (size_t i = 0; i < program.results.size(); ++i) {
    const Gradient& g = program.results[i];
    for (const int slot : {g.dense.slot, g.indices.slot, g.values.slot})
      if (slot >= 0) naming.result_of.emplace(slot, i);
  }
  for (size_t s = 0; s < program.steps.size(); ++s)
    for (size_t i = 0; i < program.steps[s].inputs.size(); ++i)
      naming.reads[program.steps[s].inputs[i]].emplace_back(s, static_cast<int>(i));
  std::map<std::string, int> own;
  for (const int output : f.outputs) {
    const auto it = done_.find(output);
    if (it == done_.end()) continue;
    ++own[it->second.name.dense];
    ++naming.own[names_.bytes_of(it->second.name.dense)];
  }
  naming.own_splits = names_.splits_among(own);
  return naming;
}

// What a result is called is held from then on.
void GradientPass::give_name(Naming& naming, int slot, const std::string& name) {
  naming.named[slot] = name;
  if (const auto it = naming.reads.find(slot); it != naming.reads.end())
    std::ranges::copy(it->second, std::back_inserter(naming.reads_of_bytes[names_.bytes_of(name)]));
  if (naming.result_of.count(slot) == 0) return;
  names_.hold({.dense = name, .indices = "", .values = ""});
  naming.held.push_back(name);
}

std::map<int, std::string> GradientPass::name_slots(ForwardOp& f, const GradientProgram& program) {
  Naming naming = prepare_naming(f, program);
  for (size_t i = 0; i < program.slots.size(); ++i)
    if (program.slots[i].kind != GradientProgram::SlotKind::temporary)
      give_name(naming, static_cast<int>(i), slot_name(f, program.slots[i]));
  for (size_t s = 0; s < program.steps.size(); ++s) {
    const GradientProgram::Step& step = program.steps[s];
    for (size_t o = 0; o < step.outputs.size(); ++o) {
      if (step.outputs[o] < 0) continue;
      const std::string name = name_output(f, program, s, step.outputs[o], naming);
      const int source = aliased_input(op_spec(step.type), static_cast<int>(o));
      source < 0 ? names_.take(name) : names_.take_alias(name, naming.named.at(step.inputs[source]));
      give_name(naming, step.outputs[o], name);
    }
  }
  for (const std::string& name : naming.held) names_.release({.dense = name, .indices = "", .values = ""});
  return std::move(naming.named);
}

void GradientPass::emit(ForwardOp& f, const GradientProgram& program) {
  const std::map<int, std::string> named = name_slots(f, program);
  for (const GradientProgram::Step& step : program.steps) {
    OperatorDef& op = append_gradient_op(net_, step.type, f.op.def);
    if (f.op.def.has_engine()) op.set_engine(f.op.def.engine());
    for (const Argument& arg : step.args) *op.add_arg() = arg;
    for (const int in : step.inputs) op.add_input(in < 0 ? "" : named.at(in));
    // Unwanted outputs at the end are left out, unless their number means something.
    const OpSpec& spec = op_spec(step.type);
    int last = static_cast<int>(step.outputs.size());
    while (last > 0 && step.outputs[last - 1] < 0 && !spec.output_spec(last - 1)->variadic) --last;
    for (int o = 0; o < last; ++o) {
      op.add_output(step.outputs[o] < 0 ? "" : named.at(step.outputs[o]));
      if (aliased_input(spec, o) >= 0) alias_made_[op.output(o)] = net_.op_size() - 1;
    }
  }
  for (const auto& [slot, name] : named)
    if (const int like = program.slots[slot].like; like >= 0 && named.count(like) > 0)
      result_.shapes[name] = named.at(like);
  contribute(f, program, named);
}

void GradientPass::contribute(ForwardOp& f, const GradientProgram& program, const std::map<int, std::string>& named) {
  for (size_t i = 0; i < program.results.size(); ++i) {
    const Gradient& g = program.results[i];
    if (!f.wanted[i] || !g.defined()) continue;
    GradientName c;
    if (g.is_sparse()) {
      c.indices = named.at(g.indices.slot);
      c.values = named.at(g.values.slot);
    } else {
      c.dense = named.at(g.dense.slot);
    }
    add_contribution(f.inputs[i], std::move(c));
  }
}

void GradientPass::finish_blobs_first_read_by(int op) {
  for (const int input : forward_[op].inputs)
    if (input >= 0 && value(input).uses.front() == op && pending_.count(input) > 0) finish(input);
}

std::vector<int> GradientPass::pending_by_name() const {
  std::vector<int> values;
  for (const auto& [value, list] : pending_) values.push_back(value);
  std::ranges::sort(values, {}, [&](int v) { return std::pair(name_of(v), value(v).version); });
  return values;
}

const GradientName& GradientPass::finish(int value) {
  if (const auto it = done_.find(value); it != done_.end()) return it->second.name;
  std::vector<GradientName>& list = pending_[value];
  const std::vector<int>& uses = this->value(value).uses;
  Done done;
  done.name = list.size() == 1
                  ? list[0]
                  : sums_.add_up(name_of(value), list, uses.empty() ? OperatorDef() : bound_.ops[uses.back()].def);
  done.written = written(done.name);
  if (is_asked_for(value)) names_.hold(done.name);  // for good: it is a result
  return (done_[value] = std::move(done)).name;
}

// An operator takes the gradients of its outputs dense.
void GradientPass::densify(int value, Done& done, const OperatorDef& like) {
  done.name = sums_.make_dense(name_of(value), done.name, like);
  done.written = written(done.name);
  if (is_asked_for(value)) names_.hold(done.name);
}

GradientPass::Written GradientPass::written(const GradientName& name) const {
  return {names_.written(name.dense), names_.written(name.indices), names_.written(name.values)};
}

// The values that the targets depend on by derivatives of which one is known to be zero.
std::set<int> GradientPass::reached_by_zeros() const {
  std::set<int> reached, zero;
  for (const auto& [blob, given] : request_.targets) reached.insert(bound_.flow.last(bound_.flow.find(blob)));
  for (auto f = forward_.rbegin(); f != forward_.rend(); ++f) {
    if (f->op.spec->gradient_rule != GradientRule::undefined) continue;
    const auto any_in = [&](const std::set<int>& values) {
      return std::ranges::any_of(f->outputs, [&](int output) { return values.count(output) > 0; });
    };
    const bool is_reached = any_in(reached), is_zero = any_in(zero);
    if (!is_reached && !is_zero) continue;
    for (size_t i = 0; i < f->inputs.size(); ++i) {
      const int input = f->inputs[i];
      if (input < 0 || (!f->is_none.empty() && f->is_none[i])) continue;
      if (depends_.count(input) + needs_.count(input) == 0) continue;
      if (is_zero || (!f->is_zero.empty() && f->is_zero[i])) zero.insert(input);
      if (is_reached) reached.insert(input);
    }
  }
  return zero;
}

// What is wanted, and has no gradient but for derivatives that are zero, has one of zeros.
void GradientPass::add_zeros() {
  if (!names_.is_higher_order() || asked_.empty()) return;
  const std::set<int> reached = reached_by_zeros();
  for (const int value : asked_) {
    const auto found = done_.find(value);
    if (reached.count(value) == 0 || (found != done_.end() && found->second.name.defined())) continue;
    if (request_.stop.count(name_of(value)) > 0 || this->value(value).overwritten != NetValue::kNever) continue;
    const std::vector<int>& uses = this->value(value).uses;
    OperatorDef& zeros = append_gradient_op(net_, op_with_role(Role::fill_like).type,
                                            uses.empty() ? OperatorDef() : bound_.ops[uses.back()].def);
    Done done;
    done.name.dense = names_.fresh(names_.gradient_of(name_of(value)));
    zeros.add_input(name_of(value));
    zeros.add_output(done.name.dense);
    *zeros.add_arg() = make_arg("value", 0.0F);
    names_.take(done.name.dense);
    names_.hold(done.name);
    done.written = written(done.name);
    done_[value] = std::move(done);
  }
}

// What has been overwritten since, as the gradient of an earlier version, is no result.
void GradientPass::name_results() {
  for (int blob = 0; blob < bound_.flow.blobs(); ++blob) {
    const auto it = done_.find(bound_.flow.meant(blob));
    if (it != done_.end() && it->second.name.defined() && it->second.written == written(it->second.name))
      result_.gradients[bound_.flow.name(blob)] = it->second.name;
  }
}

// Callers write what they want in place, as optimizers and clipping do: none may show the bytes of another, or of a
// gradient that was given.
void GradientPass::part_results() {
  std::map<std::string, std::set<std::string>> names;  // by bytes
  for (const auto& [blob, result] : result_.gradients) {
    const std::string& name = result.is_sparse() ? result.values : result.dense;
    if (is_asked_for(bound_.flow.meant(bound_.flow.find(blob)))) names[names_.bytes_of(name)].insert(name);
  }
  for (const auto& [bytes, shown] : names) {
    bool is_free = shown.count(bytes) == 0 && !names_.is_foreign(bytes) && !names_.is_given(bytes);
    for (const std::string& name : shown) {
      if (name != bytes && !is_free) part(name);
      if (name != bytes) is_free = false;
    }
  }
}

// Lets a Copy at the end write the name, which until then is called otherwise.
void GradientPass::part(const std::string& name) {
  const int from = alias_made_.at(name);
  const std::string before = names_.temporary(name);
  names_.take(before);
  for (int i = from; i < net_.op_size(); ++i) {
    OperatorDef& op = *net_.mutable_op(i);
    if (i > from) std::ranges::replace(*op.mutable_input(), name, before);
    std::ranges::replace(*op.mutable_output(), name, before);
  }
  const OperatorDef like = net_.op(from);
  OperatorDef& copy = append_gradient_op(net_, op_with_role(Role::copy).type, like);
  copy.add_input(before);
  copy.add_output(name);
}

}  // namespace

GradientResult add_gradient_operators(NetDef& net, const GradientRequest& request) {
  return GradientPass(net, request).run();
}

GradientResult add_gradient_operators_under(NetDef& net, const GradientRequest& request, const std::string& prefix) {
  return GradientPass(net, request, prefix).run();
}

}  // namespace stepnet
