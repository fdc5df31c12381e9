#include "stepnet/eager_op.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <unordered_set>

#include "core/operator/in_place.h"
#include "core/operator/program_gradients.h"
#include "stepnet/error.h"

namespace stepnet::autograd {
namespace {

constexpr size_t kMostKept = 4096;

// Everything that tells two signatures apart.
std::string key_of(const EagerOp::Signature& s) {
  std::string key = s.type;
  const auto add = [&](const std::vector<bool>& mask) {
    key += '\0';
    for (const bool bit : mask) key += bit ? '1' : '0';
  };
  add(s.inputs);
  add(s.outputs);
  for (const int i : s.in_place) key += fmt::format(",{}", i);
  for (const Argument& arg : s.args) {
    key += '\0';
    arg.AppendToString(&key);
  }
  return key;
}

std::string parameter_name(const ParamSpec* spec, int place) {
  if (!spec) return fmt::format("more{}", place);
  return spec->variadic ? fmt::format("{}{}", spec->name, place) : spec->name;
}

// The names by which messages call the inputs and outputs.
std::vector<std::string> names_of(const OpSpec& spec, int count, bool inputs) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    const ParamSpec* p = inputs ? spec.input_spec(i) : spec.output_spec(i);
    const int first = p ? (inputs ? spec.input_index(p->name) : spec.output_index(p->name)) : 0;
    names.push_back(parameter_name(p, i - first));
  }
  return names;
}

OperatorDef def_of(const EagerOp::Signature& s, const std::vector<std::string>& inputs,
                   std::vector<std::string> outputs) {
  OperatorDef def;
  def.set_type(s.type);
  def.set_is_gradient_op(true);  // which may leave inputs out
  for (size_t i = 0; i < inputs.size(); ++i) def.add_input(s.inputs[i] ? inputs[i] : "");
  for (size_t o = 0; o < outputs.size(); ++o) {
    const int in = s.in_place.empty() ? -1 : s.in_place[o];
    if (in >= 0) {
      outputs[o] = inputs[in];
    } else if (std::find(inputs.begin(), inputs.end(), outputs[o]) != inputs.end()) {
      outputs[o] += "_out";
    }
    def.add_output(s.outputs[o] ? outputs[o] : "");
  }
  for (const Argument& arg : s.args) *def.add_arg() = arg;
  return def;
}

EagerOp::Signature signature_of(const GradientProgram::Step& step) {
  EagerOp::Signature s{.type = step.type, .inputs = {}, .outputs = {}, .args = step.args, .in_place = {}};
  const OpSpec& spec = op_spec(step.type);
  for (const int in : step.inputs) s.inputs.push_back(in >= 0);
  // Outputs at the end that are not wanted are left out, unless their number means something.
  size_t last = step.outputs.size();
  while (last > 0 && step.outputs[last - 1] < 0 && !spec.output_spec(static_cast<int>(last) - 1)->variadic) --last;
  for (size_t o = 0; o < last; ++o) s.outputs.push_back(step.outputs[o] >= 0);
  return s;
}

std::vector<int> last_uses(const GradientProgram& program) {
  const auto steps = static_cast<int>(program.steps.size());
  std::vector<int> last(program.slots.size(), -1);
  for (int s = 0; s < steps; ++s)
    for (const int in : program.steps[s].inputs)
      if (in >= 0) last[in] = s;
  for (const Gradient& g : program.results)
    for (const Value& v : {g.dense, g.indices, g.values})
      if (v.defined()) last[v.slot] = steps;
  return last;
}

void list_reads(EagerGradient& g) {
  for (size_t i = 0; i < g.program.reads_input.size(); ++i)
    if (g.program.reads_input[i]) g.saved_inputs.push_back(static_cast<int>(i));
  for (size_t o = 0; o < g.program.reads_output.size(); ++o)
    if (g.program.reads_output[o]) g.saved_outputs.push_back(static_cast<int>(o));
}

}  // namespace

struct EagerOp::Entry {
  Mode mode;
  Flags inputs, outputs;  // wanted and present, or moved and needed
  EagerGradient gradient;
  Entry* next;
};

// Operators hold one another, and often themselves, through their derivatives. What only such circles hold goes when
// there are too many, and at the end of the process.
struct EagerOp::Cache {
  std::shared_mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<const EagerOp>> ops;
  size_t most = kMostKept;

  // Calls that were made before this stay longer, so what they hold counts as unused, too.
  ~Cache() {
    for (const auto& [key, op] : ops) op->drop_gradients();
  }
  void drop_unused() {
    std::unordered_map<const EagerOp*, int64_t> held;  // by derivatives
    for (const auto& [key, op] : ops) for_each_step(*op, [&](const EagerOp& step) { ++held[&step]; });
    std::vector<const EagerOp*> open;
    for (const auto& [key, op] : ops)
      if (op.use_count() > held[op.get()] + 1) open.push_back(op.get());
    std::unordered_set<const EagerOp*> used;
    while (!open.empty()) {
      const EagerOp* op = open.back();
      open.pop_back();
      if (used.insert(op).second) for_each_step(*op, [&](const EagerOp& step) { open.push_back(&step); });
    }
    for (const auto& [key, op] : ops)
      if (!used.contains(op.get())) op->drop_gradients();
    std::erase_if(ops, [&](const auto& entry) { return !used.contains(entry.second.get()); });
    most = std::max(kMostKept, 2 * ops.size());
  }
  template <class Fn>
  static void for_each_step(const EagerOp& op, Fn fn) {
    for (const Entry* e = op.entries_.load(std::memory_order_acquire); e; e = e->next) {
      for (const std::shared_ptr<const EagerOp>& step : e->gradient.steps) fn(*step);
      if (e->gradient.instead) fn(*e->gradient.instead);
      if (e->gradient.from_inputs)
        for (const std::shared_ptr<const EagerOp>& step : e->gradient.from_inputs->steps) fn(*step);
    }
  }
};

EagerOp::Cache& EagerOp::cache() {
  static Cache cache;
  return cache;
}

std::shared_ptr<const EagerOp> EagerOp::get(const Signature& signature) {
  Cache& c = cache();
  const std::string key = key_of(signature);
  {
    const std::shared_lock lock(c.mutex);
    if (const auto it = c.ops.find(key); it != c.ops.end()) return it->second;
  }
  auto made = std::make_shared<const EagerOp>(signature);
  const std::unique_lock lock(c.mutex);
  if (c.ops.size() >= c.most) c.drop_unused();  // arguments that differ in every call
  return c.ops.emplace(key, std::move(made)).first->second;
}

OperatorDef EagerOp::definition(const Signature& s) {
  const OpSpec& spec = op_spec(s.type);
  std::vector<std::string> outputs = names_of(spec, static_cast<int>(s.outputs.size()), false);
  OperatorDef def = def_of(s, names_of(spec, static_cast<int>(s.inputs.size()), true), std::move(outputs));
  def.clear_is_gradient_op();
  return def;
}

EagerOp::EagerOp(const Signature& s) : present_inputs_(s.inputs), present_outputs_(s.outputs), in_place_(s.in_place) {
  const OpSpec& spec = op_spec(s.type);
  for (size_t o = 0; o < s.in_place.size(); ++o) {
    const int in = s.in_place[o];
    require(in < 0 || (in < static_cast<int>(s.inputs.size()) && s.inputs[in] && o < s.outputs.size() && s.outputs[o]),
            "{}: output {} cannot overwrite input {}, as one of them is absent", s.type, o, in);
  }
  names_ = names_of(spec, static_cast<int>(s.inputs.size()), true);
  output_names_ = names_of(spec, static_cast<int>(s.outputs.size()), false);
  bound_ = bind_op(def_of(s, names_, output_names_), "", 0);
  for (size_t o = 0; o < s.outputs.size(); ++o) alias_of_.push_back(aliased_input(spec, static_cast<int>(o)));
}

struct EagerOp::Elsewhere {
  BoundOp bound;
  Elsewhere* next;
};

const BoundOp& EagerOp::bound_on(Device device) const {
  if (device == bound_.device) return bound_;
  Elsewhere* first = elsewhere_.load(std::memory_order_acquire);
  for (const Elsewhere* e = first; e; e = e->next)
    if (e->bound.device == device) return e->bound;
  auto made = std::make_unique<Elsewhere>(Elsewhere{bound_, first});
  made->bound.device = device;
  Elsewhere* added = made.release();
  while (!elsewhere_.compare_exchange_weak(added->next, added, std::memory_order_acq_rel)) {
  }
  return added->bound;
}

EagerOp::~EagerOp() {
  drop_gradients();
  for (Elsewhere* e = elsewhere_; e;) delete std::exchange(e, e->next);
}

void EagerOp::drop_gradients() const {
  for (Entry* e = entries_.exchange(nullptr); e;) delete std::exchange(e, e->next);
}

namespace {

bool is_integer(const ParamSpec* input) {
  return input && !input->types.empty() && std::ranges::none_of(input->types, is_floating);
}

// Whether the inputs that are read are some of the others without at least one that is not of whole numbers.
bool reads_fewer(const OpSpec& spec, const std::vector<int>& inputs, const std::vector<int>& others) {
  std::vector<int> left;
  std::ranges::set_difference(others, inputs, std::back_inserter(left));
  return std::ranges::includes(others, inputs) &&
         std::ranges::any_of(left, [&](int i) { return !is_integer(spec.input_spec(i)); });
}

}  // namespace

// Tries the call with all outputs that may follow its last one. A formula that reads such a one where it is there, in
// place of inputs, has it because it takes less.
std::shared_ptr<const EagerOp> EagerOp::keeping_less(const EagerGradient& here, const Flags& wanted) const {
  const std::vector<ParamSpec>& declared = spec().outputs;
  const auto now = static_cast<size_t>(outputs());
  if (here.saved_inputs.empty() || now >= declared.size()) return nullptr;
  for (size_t o = now; o < declared.size(); ++o)
    if (!declared[o].optional || declared[o].variadic) return nullptr;
  Signature s{.type = type(), .inputs = present_inputs_.all(), .outputs = present_outputs_.all()};
  s.outputs.resize(declared.size(), true);
  s.in_place = in_place_;
  if (!in_place_.empty()) s.in_place.resize(declared.size(), -1);
  s.args.assign(bound_.def.arg().begin(), bound_.def.arg().end());
  Flags present(declared.size());
  for (size_t o = 0; o < now; ++o)
    if (wants_output(static_cast<int>(o))) present.set(o);
  try {
    std::shared_ptr<const EagerOp> fuller = get(s);
    return reads_fewer(spec(), fuller->gradient(wanted, present).saved_inputs, here.saved_inputs) ? fuller : nullptr;
  } catch (const Error&) {
    return nullptr;  // it has these outputs with other arguments alone
  }
}

const EagerGradient* EagerOp::find(Mode mode, const Flags& inputs, const Flags& outputs) const {
  for (const Entry* e = entries_.load(std::memory_order_acquire); e; e = e->next)
    if (e->mode == mode && e->inputs == inputs && e->outputs == outputs) return &e->gradient;
  return nullptr;
}

namespace {

// The program with an operator in front that computes output 0 again.
GradientProgram with_output_again(const BoundOp& op, GradientProgram program) {
  using SlotKind = GradientProgram::SlotKind;
  const auto slot_of = [&](SlotKind kind, int index) {
    const auto found = std::ranges::find_if(
        program.slots, [&](const GradientProgram::Slot& s) { return s.kind == kind && s.index == index; });
    const auto slot = static_cast<int>(found - program.slots.begin());
    if (found == program.slots.end()) program.slots.push_back({kind, index});
    return slot;
  };
  GradientProgram::Step again;
  again.type = op.def.type();
  again.args.assign(op.def.arg().begin(), op.def.arg().end());
  for (int i = 0; i < op.def.input_size(); ++i)
    again.inputs.push_back(op.def.input(i).empty() ? -1 : slot_of(SlotKind::input, i));
  const int output = slot_of(SlotKind::output, 0);
  program.slots[output] = {SlotKind::temporary};
  again.outputs = {output};
  program.steps.insert(program.steps.begin(), std::move(again));
  finish_program(program, op.def.input_size(), 1);
  return program;
}

}  // namespace

EagerGradient EagerOp::ready(GradientProgram program) {
  EagerGradient g;
  g.program = std::move(program);
  for (const GradientProgram::Step& step : g.program.steps) g.steps.push_back(get(signature_of(step)));
  g.last_use = last_uses(g.program);
  list_reads(g);
  return g;
}

// Of operators that broadcast, whose result may be larger than an operand. One that is written over an operand is
// there in its place.
std::shared_ptr<const EagerGradient> EagerOp::from_inputs(const EagerGradient& here) const {
  if (!broadcasts(spec()) || outputs() != 1 || in_place(0) >= 0 || here.saved_outputs.empty()) return nullptr;
  EagerGradient again = ready(with_output_again(bound_, here.program));
  if (again.saved_inputs == here.saved_inputs) return nullptr;  // then time would be spent on a result of any size
  return std::make_shared<const EagerGradient>(std::move(again));
}

// Two threads may add the same entry: the one found first serves.
const EagerGradient& EagerOp::add(Mode mode, const Flags& inputs, const Flags& outputs, GradientProgram program) const {
  auto made = std::make_unique<Entry>(
      Entry{mode, inputs, outputs, ready(std::move(program)), entries_.load(std::memory_order_acquire)});
  EagerGradient& g = made->gradient;
  if (mode == Mode::backward && outputs == present_outputs_) g.instead = keeping_less(g, inputs);
  if (mode == Mode::backward) g.from_inputs = from_inputs(g);
  Entry* entry = made.release();
  while (!entries_.compare_exchange_weak(entry->next, entry, std::memory_order_acq_rel)) {
  }
  return entry->gradient;
}

const EagerGradient& EagerOp::gradient(const Flags& wanted, const Flags& present) const {
  if (const EagerGradient* known = find(Mode::backward, wanted, present)) return *known;
  return add(Mode::backward, wanted, present,
             record_gradient(*bound_.spec, bound_.def, bound_.args.get(), wanted.all(), present.all()));
}

const EagerGradient& EagerOp::tangents(const Flags& moved) const {
  Flags needed(present_outputs_.size());
  for (int o = 0; o < outputs(); ++o)
    if (present_outputs_[o] && may_move(spec(), o)) needed.set(o);
  if (const EagerGradient* known = find(Mode::forward, moved, needed)) return *known;
  return add(Mode::forward, moved, needed,
             record_tangents(*bound_.spec, bound_.def, bound_.args.get(), moved.all(), needed.all()));
}

}  // namespace stepnet::autograd
