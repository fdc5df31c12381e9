// `stepnet gradcheck`: whether the gradients of an operator, or of a net, are right.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <set>

#include "core/gradient_check.h"
#include "core/io/npy.h"
#include "core/net.h"
#include "recurrent/model.h"
#include "tools/check_inputs.h"
#include "tools/commands.h"
#include "tools/net_file.h"
#include "tools/usage.h"

namespace stepnet::tools {
namespace {

constexpr int kWrong = 1;

struct GradcheckOptions {
  std::string target, loss;
  std::vector<std::string> inputs, args, feeds;
  int64_t outputs = 0;
  GradientCheckOptions check;
};

// The values that a command line names, by blob.
std::map<std::string, Tensor> given_values(const GradcheckOptions& options) {
  std::map<std::string, Tensor> values;
  for (const std::string& text : options.inputs) {
    const InputText input = parse_input("--input", text, DType::float64);
    values[input.name] = random_values(input, options.check.seed + values.size());
  }
  for (const std::string& text : options.feeds) {
    const auto [name, path] = parse_feed(text);
    values[name] = read_npy(path);
  }
  return values;
}

Tensor in_double(const Tensor& value) {
  if (value.dtype() != DType::float32) return value;
  Tensor wide = Tensor::empty(DType::float64, value.shape());
  std::ranges::copy(value.span<float>(), wide.data<double>());
  return wide;
}

// What the net makes by itself is float64 too.
void fill_in_double(NetDef& net) {
  constexpr int kDouble = static_cast<int>(DType::float64), kFloat = static_cast<int>(DType::float32);
  for (OperatorDef& op : *net.mutable_op()) {
    const OpSpec* spec = find_op(op.type());
    const bool typed = spec && std::ranges::any_of(spec->args, [](const ArgSpec& a) { return a.name == "dtype"; });
    if (!typed) continue;
    Argument* dtype = nullptr;
    for (Argument& arg : *op.mutable_arg())
      if (arg.name() == "dtype") dtype = &arg;
    if (!dtype) *(dtype = op.add_arg()) = make_arg("dtype", kFloat);
    if (dtype->i() == kFloat) dtype->set_i(kDouble);
  }
}

// The declared inputs that were given, in their order; those left out at the end are absent.
void add_inputs(const OpSpec& spec, const std::map<std::string, Tensor>& values, OperatorDef& op) {
  std::set<std::string> used;
  for (const ParamSpec& p : spec.inputs) {
    if (p.variadic) {
      for (int i = 0; values.count(fmt::format("{}{}", p.name, i)) > 0; ++i)
        op.add_input(*used.insert(fmt::format("{}{}", p.name, i)).first);
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

void add_outputs(const OpSpec& spec, int64_t several, OperatorDef& op) {
  for (const ParamSpec& p : spec.outputs)
    for (int64_t i = 0; i < (p.variadic ? std::max<int64_t>(several, p.at_least) : 1); ++i)
      op.add_output(p.variadic                     ? fmt::format("{}{}", p.name, i)
                    : spec.input_index(p.name) < 0 ? p.name
                                                   : p.name + "_out");
  for (const InPlaceRule& rule : spec.in_place)
    if (rule.enforced) op.set_output(spec.output_index(rule.out), op.input(spec.input_index(rule.in)));
}

std::vector<std::string> floating_outputs(const NetDef& net, const std::map<std::string, Tensor>& feeds,
                                          uint64_t seed) {
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  RunContext context;
  context.seed = seed;
  run_net_once(net, workspace, context);
  std::vector<std::string> names;
  for (const std::string& name : net.op(net.op_size() - 1).output())
    if (const Blob* blob = name.empty() ? nullptr : workspace.find(name))
      if (blob->is_tensor() && !blob->empty() && blob->tensor().dtype() == DType::float64) names.push_back(name);
  return names;
}

bool has_derivative(const OpSpec& spec, const std::string& input) {
  return std::ranges::any_of(spec.derivatives,
                             [&](const DerivativeSpec& d) { return std::ranges::count(d.inputs, input) > 0; });
}

GradientSubject operator_subject(const GradcheckOptions& options) {
  const OpSpec& spec = op_spec(options.target);
  GradientSubject subject{{}, given_values(options), {}, {}};
  OperatorDef& op = *subject.net.add_op();
  op.set_type(spec.type);
  for (const std::string& text : options.args) *op.add_arg() = parse_arg(spec, text);
  add_inputs(spec, subject.feeds, op);
  add_outputs(spec, options.outputs, op);
  subject.outputs = floating_outputs(subject.net, subject.feeds, options.check.seed);
  for (int i = 0; i < op.input_size(); ++i) {
    const auto value = subject.feeds.find(op.input(i));
    if (value == subject.feeds.end() || value->second.dtype() != DType::float64) continue;
    if (spec.whole_derivative || has_derivative(spec, spec.input_spec(i)->name)) subject.inputs.push_back(op.input(i));
  }
  require(!subject.inputs.empty(), "{} has no gradient of what it is given{}{}", spec.type,
          spec.no_gradient_reason.empty() ? "" : ": ", spec.no_gradient_reason);
  return subject;
}

GradientSubject net_subject(const GradcheckOptions& options) {
  require(options.args.empty(), "--arg is for an operator; a net has its arguments in it");
  NetDef net = load_expanded_net(options.target);
  const ModelDef def = net.GetExtension(model);
  net.ClearExtension(model);
  fill_in_double(net);
  GradientSubject subject{net, given_values(options), {options.loss.empty() ? def.loss() : options.loss}, {}};
  require(!subject.outputs[0].empty(), "which blob is differentiated is said by --loss BLOB");
  if (def.has_init()) {
    Workspace workspace;
    RunContext context;
    context.seed = options.check.seed;
    run_net_once(def.init(), workspace, context);
    for (const std::string& name : workspace.names())
      if (workspace.at(name).is_tensor()) subject.feeds.emplace(name, in_double(workspace.fetch(name)));
  }
  for (auto& [name, value] : subject.feeds) {
    value = in_double(value);
    if (value.dtype() == DType::float64) subject.inputs.push_back(name);
  }
  return subject;
}

std::string row_text(const GradientRow& row) {
  const std::string verdict = row.right ? "right" : "WRONG";
  const std::string kinks = row.kinks > 0 ? fmt::format(", {} at a kink", row.kinks) : "";
  return fmt::format("{:<20} {:>5} {:>8} {:>12.2e}  {:<14} {:>16.9g} {:>16.9g}  {}{}\n", row.input, row.order,
                     row.tried, row.error, row.where, row.derivative, row.differences, verdict, kinks);
}

void check(const GradcheckOptions& options) {
  const bool is_file = std::filesystem::exists(options.target);
  const GradientReport report =
      check_gradients(is_file ? net_subject(options) : operator_subject(options), options.check);
  fmt::print("{:<20} {:>5} {:>8} {:>12}  {:<14} {:>16} {:>16}  {}\n", "input", "order", "tried", "error", "at",
             "derivative", "differences", "verdict");
  for (const GradientRow& row : report.rows) fmt::print("{}", row_text(row));
  for (const std::string& sentence : report.broken) fmt::print("{}\n", sentence);
  if (!report.right()) throw CLI::RuntimeError(kWrong);
}

}  // namespace

void add_gradcheck_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("gradcheck", "Check gradients against differences; exits 1 if one is wrong");
  auto o = std::make_shared<GradcheckOptions>();  // shared with the callback, which runs after this returns
  command->add_option("TARGET", o->target, "An operator, or a file with a net")->required()->type_name("");
  command->add_option("--input", o->inputs, "The type, sizes and range of values of an input; may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME=[TYPE,]SIZE,...[,LOW..HIGH]");
  command->add_option("--feed", o->feeds, "An input's values; may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME=FILE.npy");
  command->add_option("--arg", o->args, "An argument of the operator; may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME=VALUE");
  command->add_option("--outputs", o->outputs, "How many outputs, of an operator that has several of a kind")
      ->check(whole_number(1, 1024))
      ->type_name("N");
  command->add_option("--loss", o->loss, "The blob of a net to differentiate; a model's loss if not given")
      ->type_name("BLOB");
  command->add_option("--order", o->check.order, "2: gradients of gradients too")->check(CLI::Range(1, 2));
  command->add_option("--directions", o->check.directions, "Try so many random directions instead of all elements")
      ->check(CLI::Range(0, 1'000'000));
  command->add_option("--tolerance", o->check.tolerance, "Largest relative error")->check(number_above(0));
  command->add_option("--step", o->check.step, "Step of the differences")->check(number_above(0));
  command->add_option("--seed", o->check.seed, "Of all random numbers");
  command->callback([o] { check(*o); });
}

}  // namespace stepnet::tools
