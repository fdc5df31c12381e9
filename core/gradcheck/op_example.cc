#include "core/gradcheck/op_example.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/gradcheck/input_text.h"
#include "core/io/text.h"
#include "core/net/expansions.h"
#include "core/net/net.h"
#include "core/tensor/placement.h"

namespace stepnet {
namespace {

std::string element_name(const ParamSpec& param, int i) { return fmt::format("{}{}", param.name, i); }

// The declared inputs that were given, in their order; those left out at the end are absent.
void add_inputs(const OpSpec& spec, const std::map<std::string, Tensor>& values, OperatorDef& op) {
  std::set<std::string> used;
  for (const ParamSpec& p : spec.inputs) {
    if (p.variadic) {
      for (int i = 0; values.count(element_name(p, i)) > 0; ++i) op.add_input(*used.insert(element_name(p, i)).first);
      continue;
    }
    require(p.optional || values.count(p.name) > 0, "{} needs --input {}=SIZE,SIZE,... ({})", spec.type, p.name, p.doc);
    op.add_input(values.count(p.name) > 0 ? *used.insert(p.name).first : "");
  }
  while (op.input_size() > 0 && op.input(op.input_size() - 1).empty()) op.mutable_input()->RemoveLast();
  for (const auto& [name, value] : values)
    require(used.count(name) > 0, "{} has no input \"{}\"; the elements of a list are named NAME0, NAME1, ...",
            spec.type, name);
}

void add_outputs(const OpSpec& spec, int several, OperatorDef& op) {
  for (const ParamSpec& p : spec.outputs)
    for (int i = 0; i < (p.variadic ? std::max(several, p.at_least) : 1); ++i)
      op.add_output(p.variadic ? element_name(p, i) : spec.input_index(p.name) < 0 ? p.name : p.name + "_out");
  for (const InPlaceRule& rule : spec.in_place)
    if (rule.enforced && spec.input_index(rule.in) < op.input_size())
      op.set_output(spec.output_index(rule.out), op.input(spec.input_index(rule.in)));
}

bool has_derivative(const OpSpec& spec, const std::string& input) {
  return spec.whole_derivative || spec.composed || std::ranges::any_of(spec.derivatives, [&](const DerivativeSpec& d) {
           return std::ranges::count(d.inputs, input) > 0;
         });
}

bool is_double(const GradientSubject& subject, const std::string& name) {
  const auto value = subject.feeds.find(name);
  return value != subject.feeds.end() && value->second.dtype() == DType::float64;
}

std::map<std::string, Tensor> values_of(const std::vector<std::string>& texts, uint64_t seed) {
  std::map<std::string, Tensor> values;
  for (const std::string& text : texts) {
    const InputText input = parse_input("an example's input", text, DType::float64);
    values[input.name] = input_value(input, seed + values.size());
  }
  return values;
}

std::string replaced(std::string text, std::string_view what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

GradientSubject net_subject(const OpSpec& spec, const OpExample& example, uint64_t seed, const std::string& folder) {
  GradientSubject subject;
  subject.net = parse_net_text(replaced(example.net, "$FOLDER", folder), "example of " + spec.type);
  expand_net(subject.net);
  subject.feeds = values_of(example.inputs, seed);
  subject.outputs = example.losses;
  if (subject.outputs.empty()) return subject;
  for (const auto& feed : subject.feeds)
    if (is_double(subject, feed.first)) subject.inputs.push_back(feed.first);
  return subject;
}

}  // namespace

std::vector<std::string> floating_outputs(const GradientSubject& subject, uint64_t seed) {
  Workspace workspace;
  const Device device = device_of(OperatorDef(), subject.net);
  for (const auto& [name, value] : subject.feeds) workspace.tensor(name) = placed(value, device);
  RunContext context;
  context.seed = seed;
  run_net_once(subject.net, workspace, context);
  std::vector<std::string> names;
  for (const std::string& name : subject.net.op(subject.net.op_size() - 1).output())
    if (const Blob* blob = name.empty() ? nullptr : workspace.find(name))
      if (blob->is_tensor() && !blob->empty() && blob->tensor().dtype() == DType::float64) names.push_back(name);
  return names;
}

void find_differentiable(GradientSubject& subject, uint64_t seed) {
  const OperatorDef& op = subject.net.op(0);
  const OpSpec& spec = op_spec(op.type());
  subject.inputs.clear();
  subject.outputs.clear();
  for (int i = 0; i < op.input_size(); ++i)
    if (is_double(subject, op.input(i)) && has_derivative(spec, spec.input_spec(i)->name))
      subject.inputs.push_back(op.input(i));
  if (!subject.inputs.empty()) subject.outputs = floating_outputs(subject, seed);
}

GradientSubject operator_subject(const OpSpec& spec, const std::map<std::string, Tensor>& values,
                                 const std::vector<std::string>& args, int outputs, uint64_t seed) {
  GradientSubject subject{{}, values, {}, {}, {}};
  OperatorDef& op = *subject.net.add_op();
  op.set_type(spec.type);
  for (const std::string& text : args) *op.add_arg() = parse_arg(spec, text);
  add_inputs(spec, values, op);
  add_outputs(spec, outputs, op);
  find_differentiable(subject, seed);
  return subject;
}

GradientSubject example_subject(const OpSpec& spec, const OpExample& example, uint64_t seed,
                                const std::string& folder) {
  try {
    if (!example.net.empty()) return net_subject(spec, example, seed, folder);
    return operator_subject(spec, values_of(example.inputs, seed), example.args, example.outputs, seed);
  } catch (Error& e) {
    e.add("in", "an example of " + spec.type);
    throw;
  }
}

}  // namespace stepnet
