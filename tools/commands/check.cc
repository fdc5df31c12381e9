// `stepnet check`: everything that can be known about a net or plan without running it.
#include <CLI/CLI.hpp>
#include <memory>

#include "core/gradcheck/input_text.h"
#include "core/net/dataflow.h"
#include "recurrent/train/model.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "tools/commands/cli/net_file.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/cli/usage.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

using Types = std::map<std::string, TensorType>;

struct CheckOptions {
  std::string file, loss, root;
  ReadAs as = ReadAs::automatic;
  std::vector<std::string> shapes;
  bool strict = false;
};

std::string typed(const std::string& name, const Types& types) {
  const auto it = types.find(name);
  return it != types.end() && it->second.known ? name + " " + it->second.str() : name;
}

std::string list_text(const std::vector<std::string>& items) {
  constexpr size_t kMost = 12;
  const size_t shown = std::min(items.size(), kMost);
  std::string text = fmt::format("{}", fmt::join(items.begin(), items.begin() + static_cast<long>(shown), ", "));
  return items.size() > shown ? text + fmt::format(" and {} more", items.size() - shown) : text;
}

void print_line(std::string_view label, const std::vector<std::string>& items) {
  if (!items.empty()) print_text("  {:<11} {}\n", label, list_text(items));
}

std::string counted(int count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

bool is_tensor(const OperatorDef& op, int output) {
  return !op.output(output).empty() && !op_spec(op.type()).output_spec(output)->object;
}

class Check {
 public:
  explicit Check(const CheckOptions& options) : options_(options), files_(root_of(options.root)) {
    for (const std::string& text : options.shapes) {
      const InputText input = parse_input("--shape", text, DType::float32);
      require(!input.range && input.values.empty(), "--shape takes no values, but is \"{}\"", text);
      known_.emplace(input.name, input.type);
    }
  }

  void run() {
    LoadedFile file = load_expanded(options_.file, options_.as);
    check_structure(file, warnings_);
    if (options_.strict) warnings_.refuse();
    if (file.is_plan())
      check_plan_nets(file.plan());
    else
      check_one(file.net());
    if (options_.strict) warnings_.refuse();
    const bool warned = !warnings_.list.empty();
    warnings_.print();
    print_text("no mistakes found{}\n", warned ? ", but see the warnings" : "");
  }

 private:
  void check_plan_nets(const PlanDef& plan) {
    require(options_.loss.empty(), "--loss takes a net, but the file holds a plan");
    std::map<std::string, const NetDef*> nets;
    for (const NetDef& net : plan.network()) nets[net.name()] = &net;
    print_text("plan \"{}\": {}\n", plan.name(), counted(plan.network_size(), "network"));
    for (const ExecutionStep& step : plan.execution_step()) check_step(step, nets);
    std::vector<std::string> unused;
    for (const NetDef& net : plan.network())
      if (checked_.count(net.name()) == 0) unused.push_back(net.name());
    print_line("in no step", unused);
    for (const std::string& name : unused) check_one(*nets.at(name));
  }

  // Nets in the order in which they run the first time, so that each knows what the earlier ones leave.
  void check_step(const ExecutionStep& step, const std::map<std::string, const NetDef*>& nets) {
    for (const ExecutionStep& substep : step.substep()) check_step(substep, nets);
    for (const std::string& name : step.network())
      if (checked_.insert(name).second) check_one(*nets.at(name));
  }

  void check_one(const NetDef& net) {
    if (net.HasExtension(model)) {
      read_model(net);  // what `train` would refuse
      take_types(net.GetExtension(model));
    }
    Workspace workspace;
    workspace.confine(files_);
    preflight_net(net, workspace);
    known_ = infer_net(net, std::move(known_));
    print_text("net \"{}\": {}\n", net.name(), counted(net.op_size(), "operator"));
    std::vector<std::string> inputs, parameters, unknown;
    for (const std::string& name : read_from_outside(net))
      (parameters_.count(name) > 0 ? parameters : inputs).push_back(typed(name, known_));
    for (const OperatorDef& op : net.op())
      for (int i = 0; i < op.output_size(); ++i)
        if (is_tensor(op, i) && !known_[op.output(i)].known) unknown.push_back(op.output(i));
    std::vector<std::string> outputs;
    for (const std::string& name : net.external_output()) outputs.push_back(typed(name, known_));
    print_line("inputs", inputs);
    print_line("parameters", parameters);
    print_line("outputs", outputs);
    print_line("no shape", unknown);
    check_gradients(net);
  }

  // Parameters from the initialisers, inputs from the sizes that training uses.
  void take_types(const ModelDef& def) {
    for (const OperatorDef& op : def.init().op()) {
      parameters_.insert(op.output().begin(), op.output().end());
      if (op.type() == "ConstantFill" || op.type() == "GivenTensorFill")
        constants_.insert(op.output().begin(), op.output().end());
    }
    known_ = infer_net(def.init(), std::move(known_));
    const int64_t steps = def.timesteps();
    const int64_t batch = def.batch();
    if (def.has_input()) known_.emplace(def.input(), TensorType::of(DType::int32, Shape{steps, batch}));
    if (def.has_target()) known_.emplace(def.target(), TensorType::of(DType::int32, Shape{steps * batch}));
    for (const CarryLink& carry : def.carry())
      known_.emplace(carry.to(), TensorType::of(DType::float32, Shape{1, batch, carry.size()}));
  }

  void check_gradients(const NetDef& net) {
    const std::string loss = options_.loss.empty() ? net.GetExtension(model).loss() : options_.loss;
    if (loss.empty()) return;
    NetDef both = net;
    GradientRequest request;
    request.targets = {{loss, ""}};
    request.wanted = parameters_;
    const GradientResult result = add_gradient_operators(both, request);
    infer_net(both, known_);
    if (const TensorType& type = known_[loss]; options_.loss.empty() && type.known && type.shape.size() != 1)
      throw Error(fmt::format("the model's loss \"{}\" is {}, but must be one number", loss, type.str()),
                  "end the net with an operator that makes one of it, such as AveragedLoss");
    std::vector<std::string> names;
    std::set<std::string> unread = parameters_;
    for (const std::string& name : read_from_outside(net)) {
      const auto it = result.gradients.find(name);
      const bool has_gradient = it != result.gradients.end() && it->second.defined();
      if (has_gradient) names.push_back(name);
      if (unread.erase(name) > 0 && !has_gradient && is_floating(known_[name].dtype))
        warnings_.list.push_back(fmt::format(
            "the gradient of \"{}\" does not reach the parameter \"{}\": it will not be trained", loss, name));
    }
    for (const std::string& name : unread)
      warnings_.list.push_back(
          fmt::format("no operator of the net \"{}\" reads the parameter \"{}\"", net.name(), name));
    print_text("  {:<11} of {}, by {} more, for {}\n", "gradients", loss,
               counted(both.op_size() - result.first_gradient_op, "operator"), list_text(names));
    std::erase_if(names, [&](const std::string& name) { return constants_.count(name) == 0; });
    if (names.empty()) return;
    print_text(
        "  {:<11} {}: init gives fixed values, which training changes; what is to keep them must be read through "
        "a StopGradient\n",
        "constants", list_text(names));
  }

  CheckOptions options_;
  FileRootPtr files_;
  Warnings warnings_;
  Types known_;
  std::set<std::string> parameters_, checked_;
  std::set<std::string> constants_;  // of the parameters: begin with values that are not drawn
};

}  // namespace

void add_check_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("check", "Check a net or plan without running it");
  auto o = std::make_shared<CheckOptions>();  // shared with the callback, which runs after this returns
  command->add_option("FILE", o->file, "The net or plan")->required()->type_name("");
  command->add_option("--as", o->as, "What FILE holds: auto, net or plan")
      ->transform(CLI::CheckedTransformer(read_as_names()).description(""))
      ->type_name("KIND");
  command->add_option("--shape", o->shapes, "The type and shape of an input; may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME=[TYPE,]SIZE,SIZE,...");
  command->add_option("--loss", o->loss, "Also check the gradients of this blob; a model's loss if not given")
      ->type_name("BLOB");
  add_root_option(*command, o->root);
  add_strict_option(*command, o->strict);
  command->callback([o] { Check(*o).run(); });
}

}  // namespace stepnet::tools
