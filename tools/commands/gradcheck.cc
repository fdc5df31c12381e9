// `stepnet gradcheck`: whether the gradients of an operator, or of a net, are right.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/gradcheck/examples.h"
#include "core/gradcheck/gradient_report.h"
#include "core/gradcheck/input_text.h"
#include "core/io/json.h"
#include "core/io/npy.h"
#include "core/nearest.h"
#include "core/net/dataflow.h"
#include "core/operator/op_devices.h"
#include "recurrent/train/model.h"
#include "stepnet/gradient_check.h"
#include "stepnet/net.h"
#include "tools/commands/cli/device_choice.h"
#include "tools/commands/cli/net_file.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/cli/usage.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

constexpr int kWrong = 1;

struct GradcheckOptions {
  std::string target, loss, root;
  std::vector<std::string> inputs, args, feeds;
  int outputs = 1;
  bool all = false, tf32 = false, json = false;
  std::string device = "cpu", precision = "double";
  GradientCheckOptions check;
};

// The values that a command line names, by blob.
std::map<std::string, Tensor> given_values(const GradcheckOptions& options) {
  std::map<std::string, Tensor> values;
  for (const std::string& text : options.inputs) {
    const InputText input = parse_input("--input", text, DType::float64);
    values[input.name] = input_value(input, options.check.seed + values.size());
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

GradientSubject named_operator(const GradcheckOptions& options) {
  const OpSpec& spec = op_spec(options.target);
  GradientSubject subject =
      operator_subject(spec, given_values(options), options.args, options.outputs, options.check.seed);
  require(!subject.inputs.empty(), "{} has no gradient of what it is given{}{}", spec.type,
          spec.no_gradient_reason.empty() ? "" : ": ", spec.no_gradient_reason);
  return subject;
}

// Everything that the net reads must be given, and nothing else.
void require_fitting_values(const NetDef& net, const std::map<std::string, Tensor>& given,
                            const std::map<std::string, Tensor>& all) {
  const std::vector<std::string> read = read_from_outside(net);
  for (const auto& [name, value] : given)
    require(std::ranges::count(read, name) > 0, "--input or --feed \"{}\": the net reads no such blob from outside.{}",
            name, Nearest{name, read});
  for (const std::string& name : read) {
    if (name.empty() || all.count(name) > 0) continue;
    Error error(fmt::format("the net reads \"{}\", which holds nothing", name),
                fmt::format("give it with --input {0}=SIZE,SIZE,... or --feed {0}=FILE.npy", name));
    const auto reader =
        std::ranges::find_if(net.op(), [&](const OperatorDef& op) { return std::ranges::count(op.input(), name) > 0; });
    if (reader != net.op().end())
      if (const std::string place = source_text(*reader); !place.empty()) error.add("in", place);
    throw error;
  }
}

GradientSubject net_subject(const GradcheckOptions& options) {
  require(options.args.empty(), "--arg is for an operator; a net has its arguments in it");
  NetDef net = load_expanded_net(options.target);
  const ModelDef def = net.GetExtension(model);
  net.ClearExtension(model);
  fill_in_double(net);
  const std::map<std::string, Tensor> given = given_values(options);
  GradientSubject subject{net, given, {options.loss.empty() ? def.loss() : options.loss}, {}};
  require(!subject.outputs[0].empty(), "which blob is differentiated is said by --loss BLOB");
  subject.files = root_of(options.root);
  if (def.has_init()) {
    Workspace workspace;
    workspace.confine(subject.files);
    RunContext context;
    context.seed = options.check.seed;
    run_net_once(def.init(), workspace, context);
    for (const std::string& name : workspace.names())
      if (workspace.at(name).is_tensor()) subject.feeds.emplace(name, in_double(workspace.fetch(name)));
  }
  require_fitting_values(net, given, subject.feeds);
  for (auto& [name, value] : subject.feeds) {
    value = in_double(value);
    if (value.dtype() == DType::float64) subject.inputs.push_back(name);
  }
  return subject;
}

std::string verdict(const GradientRow& row) {
  std::string text = row.right ? "right" : "WRONG";
  if (row.kinks > 0) text += fmt::format(", {} at a kink", row.kinks);
  if (row.check == "gradient" && row.tried < row.elements)
    text += fmt::format(", along directions: {} elements", row.elements);
  return text;
}

std::string row_text(const GradientRow& row) {
  const std::string name = row.check == "hessian" ? "Hessian, " + row.input : row.input;
  return fmt::format("{:<29} {:>5} {:>8} {:>12.2e}  {:<14} {:>16.9g} {:>16.9g}  {}\n", name, row.order, row.tried,
                     row.error, row.where, row.derivative, row.differences, verdict(row));
}

// What a check gave, for one object of JSON at the end; or printed at once.
class Results {
 public:
  explicit Results(const GradcheckOptions& options) : options_(options) {}

  bool as_json() const { return options_.json; }
  bool right() const { return right_; }

  // `example`: from 1; 0 for what is no example.
  void add(const GradientReport& report, const std::string& target, size_t example) {
    right_ = right_ && report.right();
    if (!as_json()) return;
    Json check = Json::object();
    check.add("target", target).add("example", example > 0 ? Json(example) : Json(nullptr));
    check.add("report", report_json(report));
    checks_.append(std::move(check));
  }
  void add_without_example(const std::string& type) {
    right_ = false;
    without_example_.append(type);
  }
  void set_on_casts(const std::vector<std::string>& types) {
    for (const std::string& type : types) on_casts_.append(type);
  }

  // Ends the command.
  void finish() {
    if (as_json()) {
      Json options = options_json(options_.check);
      options.add("device", options_.device).add("precision", options_.precision);
      Json json = Json::object();
      json.add("right", right_).add("options", std::move(options)).add("checks", std::move(checks_));
      json.add("without_example", std::move(without_example_)).add("on_casts", std::move(on_casts_));
      print_text("{}", json.pretty());
    }
    if (!right_) throw CLI::RuntimeError(kWrong);
  }

 private:
  const GradcheckOptions& options_;
  bool right_ = true;
  Json checks_ = Json::list(), without_example_ = Json::list(), on_casts_ = Json::list();
};

// Throws Error where there is none.
Device device_of(const GradcheckOptions& options) {
  const Device device{options.device == "cuda" ? DeviceKind::cuda : DeviceKind::cpu, 0};
  allocator(device);
  return device;
}

void print_report(const GradientReport& report) {
  print_text("{:<29} {:>5} {:>8} {:>12}  {:<14} {:>16} {:>16}  {}\n", "input", "order", "tried", "error", "at",
             "derivative", "differences", "verdict");
  for (const GradientRow& row : report.rows) print_text("{}", row_text(row));
  for (const auto& [what, why] : report.refused) print_text("not checked: {} ({})\n", what, why);
  for (const std::string& sentence : report.broken) print_text("{}\n", sentence);
  print_text("{}", report.blamed_text());
}

void check_one(const GradcheckOptions& options) {
  const bool is_file = std::filesystem::exists(options.target);
  GradientSubject subject = is_file ? net_subject(options) : named_operator(options);
  subject.device = device_of(options);
  const GradientReport report = check_gradients(subject, options.check);
  Results results(options);
  results.add(report, options.target, 0);
  if (!options.json) print_report(report);
  results.finish();
}

// Why there is no derivative, without the operator and the input, which are named before.
std::string reason_alone(const std::string& fact) {
  const size_t colon = fact.rfind(": ");
  return colon == std::string::npos ? fact : fact.substr(colon + 2);
}

// What has no derivative of a higher order, each reason once: ", not twice by A, B (why)".
std::string refused_text(const GradientReport& report, bool is_forward) {
  std::map<std::string, std::vector<std::string>> inputs;
  for (const auto& [input, why] : report.refused) inputs[reason_alone(why)].push_back(input);
  std::string text;
  for (const auto& [why, names] : inputs)
    text += fmt::format(", {} by {} ({})", is_forward ? "not forward" : "not twice", fmt::join(names, ", "), why);
  return text;
}

// At least the first two.
GradientCheckOptions higher_orders(GradientCheckOptions check) {
  if (!check.forward) check.order = std::max(check.order, 2);
  check.where_possible = true;
  return check;
}

// One example's line; a wrong one is followed by what is wrong.
void check_example_of(const OpSpec& spec, size_t number, const GradcheckOptions& options, Device device,
                      std::set<std::string>& covered, Results& results) {
  GradientReport report;
  try {
    report = options.precision == "double"
                 ? check_example(spec, spec.examples[number], higher_orders(options.check), device)
                 : check_in_half(spec, spec.examples[number], dtype_from_name(options.precision), options.check.seed,
                                 device);
  } catch (const Error& e) {
    report.broken.emplace_back(e.what());
  }
  covered.insert(report.operators.begin(), report.operators.end());
  results.add(report, spec.type, number + 1);
  if (options.json) return;
  double error = 0;
  int order = 0;
  for (const GradientRow& row : report.rows) error = std::max(error, row.error), order = std::max(order, row.order);
  print_text("{:<32} {:>7} {:>5} {:>12} {}{}\n", spec.type, number + 1, order > 0 ? std::to_string(order) : "-",
             order > 0 ? fmt::format("{:.2e}", error) : "-", report.right() ? "right" : "WRONG",
             refused_text(report, options.check.forward));
  print_text("{}", report.str());
}

void print_example_head(const GradcheckOptions& options) {
  if (options.json) return;
  print_text("{:<32} {:>7} {:>5} {:>12} {}\n", "operator", "example", "order", "error", "verdict");
}

// Of one operator.
void check_examples(const GradcheckOptions& options) {
  const OpSpec& spec = op_spec(options.target);
  const Device device = device_of(options);
  std::set<std::string> covered;
  Results results(options);
  print_example_head(options);
  for (size_t i = 0; i < spec.examples.size(); ++i) check_example_of(spec, i, options, device, covered, results);
  results.finish();
}

bool is_checked_on(DeviceKind device, const OpSpec& spec) {
  return device == DeviceKind::cpu || has_kernel(spec, device);
}

// What was run without kernels for its type.
std::vector<std::string> on_casts(const std::set<std::string>& types, DType half, DeviceKind device) {
  std::vector<std::string> without;
  for (const std::string& type : types)
    if (!op_spec(type).kernels.empty() && !has_kernel(op_spec(type), device, half)) without.push_back(type);
  return without;
}

void check_all(const GradcheckOptions& options) {
  const Device device = device_of(options);
  Results results(options);
  std::set<std::string> covered;
  print_example_head(options);
  for (const std::string& type : op_types())
    for (size_t i = 0; i < op_spec(type).examples.size() && is_checked_on(device.kind, op_spec(type)); ++i)
      check_example_of(op_spec(type), i, options, device, covered, results);
  for (const std::string& type : op_types())
    if (options.precision == "double" && !options.check.forward && covered.count(type) == 0 &&
        is_checked_on(device.kind, op_spec(type))) {
      if (!options.json) print_text("{:<32} has no example, and no gradient of one runs it\n", type);
      results.add_without_example(type);
    }
  if (options.precision != "double") {
    const std::vector<std::string> types = on_casts(covered, dtype_from_name(options.precision), device.kind);
    results.set_on_casts(types);
    if (!options.json)
      print_text("in float32 on casts ({} of {}): {}\n", types.size(), covered.size(), fmt::join(types, ", "));
  }
  results.finish();
}

// Options that would change nothing.
void refuse_unused(const CLI::App& command, const GradcheckOptions& options, bool given) {
  const auto refuse = [&](std::initializer_list<const char*> names, bool unused, const char* what) {
    for (const char* name : names)
      require(!unused || command.count(name) == 0, "{} would change nothing: it is for {}", name, what);
  };
  const bool is_operator = find_op(options.target) != nullptr, is_file = std::filesystem::exists(options.target);
  refuse({"--input", "--feed", "--arg"}, options.all, "one operator or net");
  refuse({"--outputs"}, options.all || is_file || !given, "one operator on inputs of yours");
  refuse({"--loss", "--root"}, options.all || (is_operator && !is_file), "a net");
  refuse({"--order", "--forward", "--hessian", "--directions", "--tolerance", "--step"}, options.precision != "double",
         "differences, which are in double");
}

void check(const CLI::App& command, GradcheckOptions options) {
  constexpr double kTf32Error = 1e-2;
  if (options.tf32) {
    allow_tf32(options.device == "cuda" && device_offered(DeviceKind::cuda));
    options.check.device_float_error = kTf32Error;
  }
  require(options.all == options.target.empty(), "what is checked is an operator, a file with a net, or --all");
  const bool given = !options.inputs.empty() || !options.feeds.empty() || !options.args.empty();
  refuse_unused(command, options, given);
  const OpSpec* spec = find_op(options.target);
  require(options.precision == "double" || options.all || (spec && !given),
          "--precision {} is for operators, by their own examples", options.precision);
  if (options.all)
    check_all(options);
  else if (spec && !given && !spec->examples.empty())
    check_examples(options);
  else
    check_one(options);
}

std::string directions_help() {
  return fmt::format("{} of inputs of more than {} elements", kManyDirections, GradientCheckOptions().many_elements);
}

}  // namespace

void add_gradcheck_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("gradcheck", "Check gradients against differences; exits 1 if one is wrong");
  auto o = std::make_shared<GradcheckOptions>();  // shared with the callback, which runs after this returns
  command
      ->add_option("TARGET", o->target, "An operator, by its own examples if no --input is given, or a file with a net")
      ->type_name("");
  command->add_flag("--all", o->all, "Check all operators, by their own examples, up to second order, or --order 3");
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
  add_root_option(*command, o->root);
  command->add_option("--loss", o->loss, "The blob of a net to differentiate; a model's loss if not given")
      ->type_name("BLOB");
  command
      ->add_option("--device", o->device, "Where to run, cpu or cuda; --all is then of operators with a kernel there")
      ->check(CLI::IsMember({"cpu", "cuda"}).description(""))
      ->type_name("DEVICE");
  command
      ->add_option("--precision", o->precision,
                   "float16 or bfloat16: outputs and gradients of operators' examples are those of double, but for "
                   "roundings; differences are not tried")
      ->check(CLI::IsMember({"double", "float16", "bfloat16"}).description(""))
      ->type_name("TYPE");
  command->add_flag("--tf32", o->tf32, std::string(kTf32Help) + "; outputs of float then may differ by so much");
  command->add_option("--order", o->check.order, "2: gradients of gradients too; 3: and the gradients of these")
      ->check(CLI::Range(1, 3));
  command->add_flag("--forward", o->check.forward,
                    "Check forward mode, along random directions, against differences and reverse mode; with --order 2 "
                    "also the gradients of what it gives");
  command->add_flag("--hessian", o->check.hessian,
                    "Check the Hessian too: that it is symmetric, and times a vector the same in all ways to it");
  command
      ->add_option(
          "--directions", o->check.directions,
          "Try so many random directions of each input instead of its elements; 0: all elements. Without it, " +
              directions_help())
      ->check(CLI::Range(0, 1'000'000))
      ->type_name("N");
  command->add_option("--tolerance", o->check.tolerance, "Largest relative error")->check(number_above(0));
  command->add_option("--step", o->check.step, "Step of the differences")->check(number_above(0));
  command->add_option("--seed", o->check.seed, "Of all random numbers");
  command->add_flag("--json", o->json, "Print everything as one object of JSON");
  command->callback([o, command] { check(*command, *o); });
}

}  // namespace stepnet::tools
