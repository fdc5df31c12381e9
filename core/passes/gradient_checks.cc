#include "core/passes/gradient_checks.h"

#include <algorithm>
#include <map>

#include "core/operator/in_place.h"

namespace stepnet {
namespace {

// By slot of the program: some step is given it.
std::vector<bool> used_slots(const GradientProgram& program) {
  std::vector<bool> used(program.slots.size(), false);
  for (const GradientProgram::Step& step : program.steps)
    for (const int slot : step.inputs)
      if (slot >= 0) used[slot] = true;
  return used;
}

void check_shape(const BoundNet& net, const std::string& name, int value, int from) {
  const int reshaper = net.flow.reshaper(net.flow.find(name), from);
  if (reshaper < 0) return;
  const BoundOp& writer = net.ops[reshaper];
  throw Error(
      fmt::format("the gradient reads the shape of version {} of \"{}\", but operator {} ({}) may have given it "
                  "another",
                  net.flow.value(value).version, name, writer.index, writer.def.type()),
      fmt::format("let {} write to another blob than \"{}\"", writer.def.type(), name));
}

}  // namespace

void check_value(const BoundNet& net, const std::string& name, int value) {
  const int blob = net.flow.find(name);
  if (net.flow.last(blob) == value) return;
  const BoundOp& writer = net.ops[net.flow.last_writer(blob)];
  const NetValue& read = net.flow.value(value);
  const auto& written = writer.def.output();
  const bool by_name = std::find(written.begin(), written.end(), name) != written.end();
  throw Error(
      fmt::format("the gradient reads version {} of \"{}\", but operator {} ({}) has made it version {}{}",
                  read.version, net.flow.name(read.blob), writer.index, writer.def.type(), net.flow.versions(blob),
                  by_name ? "" : fmt::format(" by writing \"{}\", which is an alias", written[0])),
      fmt::format("let {} write to another blob than \"{}\"", writer.def.type(), by_name ? name : written[0]));
}

void check_in_place(const BoundOp& op, const std::vector<bool>& wanted) {
  const OpSpec& spec = *op.spec;
  if (std::ranges::all_of(spec.in_place, [](const InPlaceRule& r) { return r.forbidden_if_wanted.empty(); })) return;
  for (int i = 0; i < op.def.input_size(); ++i) {
    const auto o = std::ranges::find(op.def.output(), op.def.input(i)) - op.def.output().begin();
    const InPlaceRule* rule = o < op.def.output_size() ? in_place_rule(spec, i, static_cast<int>(o)) : nullptr;
    if (!rule || op.def.input(i).empty()) continue;
    for (const std::string& other : rule->forbidden_if_wanted) {
      const int at = spec.input_index(other);
      if (at < static_cast<int>(wanted.size()) && wanted[at])
        throw Error(fmt::format("\"{}\" is overwritten in place, but the gradient of \"{}\" is computed from it",
                                op.def.input(i), op.def.input(at)),
                    "write the output to another blob");
    }
  }
}

// Two names of one storage, of which one was written anew.
void check_shared(const BoundNet& net, int op, const std::vector<bool>& wanted) {
  const std::span<const int> inputs = net.flow.inputs(op), reads = net.flow.reads(op);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!wanted[i] || reads[i] < 0 || net.flow.value(inputs[i]).replaces < 0) continue;
    const int blob = net.flow.value(inputs[i]).blob;
    const std::string& name = net.flow.name(blob);
    const BoundOp& writer = net.ops[net.flow.last_writer(blob)];
    throw Error(
        fmt::format("it reads \"{}\", whose storage operator {} ({}) has overwritten under another name, so its "
                    "gradient is not known",
                    name, writer.index, writer.def.type()),
        fmt::format("let {} write to a blob that is no alias of \"{}\"", writer.def.type(), name));
  }
}

bool reads_lost_shape(const BoundNet& net, int index, const GradientProgram& program) {
  const std::vector<bool> used = used_slots(program);
  for (size_t s = 0; s < program.slots.size(); ++s) {
    const GradientProgram::Slot& slot = program.slots[s];
    if (slot.kind != GradientProgram::SlotKind::input || !used[s] || program.reads_input[slot.index]) continue;
    if (net.flow.reshaper(net.flow.find(net.ops[index].def.input(slot.index)), index) >= 0) return true;
  }
  return false;
}

void check_versions(const BoundNet& net, int index, const GradientProgram& program, std::set<std::string>& kept) {
  const OperatorDef& def = net.ops[index].def;
  const std::vector<bool> used = used_slots(program);
  for (size_t s = 0; s < program.slots.size(); ++s) {
    const GradientProgram::SlotKind kind = program.slots[s].kind;
    const int k = program.slots[s].index;
    const bool is_input = kind == GradientProgram::SlotKind::input;
    if (!is_input && kind != GradientProgram::SlotKind::output) continue;
    const std::string& name = is_input ? def.input(k) : def.output(k);
    const int value = is_input ? net.flow.inputs(index)[k] : net.flow.outputs(index)[k];
    if (is_input ? program.reads_input[k] : program.reads_output[k]) {
      kept.insert(name);
      check_value(net, name, value);
    } else if (used[s]) {
      check_shape(net, name, value, is_input ? index : index + 1);
    }
  }
}

namespace {

// An operator on the way from a wanted value to a target, and which of its inputs lies on it.
struct OnTheWay {
  int op = 0, input = 0;
};

// From a wanted value to the target; empty if there is no way.
std::vector<OnTheWay> way_between(const BoundNet& net, const std::set<int>& wanted, int target) {
  std::map<int, OnTheWay> made_by;  // by value that depends on a wanted one
  for (int op = 0; op < static_cast<int>(net.ops.size()); ++op) {
    const std::span<const int> inputs = net.flow.inputs(op);
    const auto on =
        std::ranges::find_if(inputs, [&](int value) { return wanted.count(value) > 0 || made_by.count(value) > 0; });
    if (on == inputs.end()) continue;
    for (const int output : net.flow.outputs(op))
      if (output >= 0) made_by.emplace(output, OnTheWay{op, static_cast<int>(on - inputs.begin())});
  }
  std::vector<OnTheWay> way;
  for (int value = target; wanted.count(value) == 0;) {
    const auto step = made_by.find(value);
    if (step == made_by.end()) return {};
    way.push_back(step->second);
    value = net.flow.inputs(step->second.op)[step->second.input];
  }
  std::ranges::reverse(way);
  return way;
}

// Why an operator hands no gradient on to its input; "" if it does, or if nothing is known.
std::string why_it_ends(const BoundOp& op, int input) {
  const OpSpec& spec = *op.spec;
  if (spec.gradient_rule == GradientRule::stop) return "stops gradients";
  if (spec.gradient_rule == GradientRule::refuse) return fmt::format("has no gradient: {}", spec.no_gradient_reason);
  try {
    std::vector<bool> wanted(op.def.input_size(), false);
    wanted[input] = true;
    const GradientProgram program =
        record_gradient(spec, op.def, op.args.get(), wanted, std::vector<bool>(op.def.output_size(), true));
    const Gradient& g = program.results[input];
    if (g.is_zero) return fmt::format("has a derivative that is zero everywhere by \"{}\"", op.def.input(input));
    if (!g.defined()) return fmt::format("has no derivative by \"{}\"", op.def.input(input));
  } catch (const Error& e) {
    return e.fact();
  }
  return "";
}

}  // namespace

std::string where_derivatives_end(const BoundNet& net, const std::set<int>& wanted, const std::set<int>& targets) {
  for (const int target : targets) {
    const std::vector<OnTheWay> way = way_between(net, wanted, target);
    for (auto end = way.rbegin(); end != way.rend(); ++end) {
      const BoundOp& op = net.ops[end->op];
      const std::string why = why_it_ends(op, end->input);
      if (why.empty()) continue;
      std::vector<std::string> names;
      for (const OnTheWay& step : way)
        names.push_back(fmt::format("{} ({})", net.ops[step.op].index, net.ops[step.op].def.type()));
      const std::string place = source_text(op.def);
      return fmt::format("\"{}\" depends on \"{}\" by operators {}, but operator {} ({}){} {}",
                         net.flow.name(net.flow.value(target).blob),
                         net.ops[way.front().op].def.input(way.front().input), fmt::join(names, ", "), op.index,
                         op.def.type(), place.empty() ? "" : " at " + place, why);
    }
  }
  return "";
}

}  // namespace stepnet
