// `stepnet explain`: how the step nets of a net run, and why: what once per block of timesteps, and what in each of
// them; and on a GPU, whether all timesteps of a loop are one kernel.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>

#include "core/operator/nets_inside.h"
#include "core/operator/observer.h"
#include "recurrent/form/attention_chunks.h"
#include "recurrent/step/passes.h"
#include "tools/commands/cli/dry_net.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

struct ExplainOptions {
  DryNetOptions net;
  std::string pass;
  bool code = false;
};

// Prints each step net as all passes have left it, what one pass made of it, or its code.
class Explainer : public NetObserver {
 public:
  explicit Explainer(const ExplainOptions& options) : pass_(options.pass), code_(options.code) {}
  void before(const BoundOp&) override {}
  void after(const BoundOp&) override {}
  void compiled(std::string_view, std::string_view pass, const std::function<std::string()>& text) override {
    if (code_ || pass == kStepCode) {
      if (code_ && pass == kStepCode && shown_.insert(text()).second) print_text("{}\n", text());
      return;
    }
    if (pass.empty() && pass_.empty()) flush();
    const std::string now = text();
    if (!pass_.empty() && pass == pass_) print_text("before {}:\n{}after {}:\n{}\n", pass_, last_, pass_, now);
    last_ = now;
  }
  void flush() {
    if (!last_.empty() && shown_.insert(last_).second) print_text("{}\n", last_);
    last_.clear();
  }

 private:
  std::string pass_, last_;
  bool code_;
  std::set<std::string> shown_;  // a net may be compiled several times
};

// What stands for loops over timesteps, which are no step nets any more.
void print_attentions(const NetDef& net) {
  for (const OperatorDef& op : net.op())
    if (op.name() == kAttentionName)
      print_text("attention: {} = {}({}), in the place of a loop over timesteps\n\n", fmt::join(op.output(), ", "),
                 op.type(), fmt::join(op.input(), ", "));
}

// Prints how loops have run, each once.
class LoopObserver : public NetObserver {
 public:
  void before(const BoundOp&) override {}
  void after(const BoundOp&) override {}
  void looped(std::string_view loop, const std::string& how) override {
    if (const std::string line = fmt::format("{}: {}\n", loop, how); shown_.insert(line).second) print_text("{}", line);
  }

 private:
  std::set<std::string> shown_;
};

// An operator of the net that would be seen outside of it; "" if there is none.
std::string effect_of(NetDef net) {
  std::string found;
  for_each_net(net, [&](NetDef& inner) {
    for (const OperatorDef& op : inner.op())
      if (const OpSpec* spec = find_op(op.type()); spec && spec->side_effect) found = op.type();
  });
  return found;
}

// Why loops cannot be run here; "" if they can.
std::string why_not_run(const ExplainOptions& options, const NetDef& net) {
  if (!device_offered(DeviceKind::cuda)) return "this program was built without CUDA, or the machine has none";
  if (options.net.ranks > 1) return "other ranks are not there";
  if (const std::string effect = effect_of(net); !effect.empty()) return effect + " has effects outside of the net";
  return "";
}

void run_once(DryNet& net) {
  const std::unique_ptr<NetSession> session = net.real_session();
  LoopObserver loops;
  RunContext run;
  run.observer = &loops;
  session->net->run(run);
  allocator(net.device()).synchronize();
}

// Whether timesteps are one kernel depends on what they queue and where their tensors lie, which only a run tells.
void print_loops(const ExplainOptions& options, DryNet& net, const NetDef& def) {
  std::string why = why_not_run(options, def);
  try {
    if (why.empty()) run_once(net);
  } catch (const Error& e) {
    why = e.fact();
  }
  if (!why.empty()) print_note("note: how loops run is told by one run on a GPU, and there is none here: {}\n", why);
}

void explain(const ExplainOptions& options) {
  DryNet net(options.net);
  NetDef def;
  const bool whole = options.pass.empty() && !options.code;
  {
    DryScope scope(net.device().kind);
    const std::unique_ptr<NetSession> session = net.session(scope);
    def = session->net->def();
    if (whole) print_attentions(def);
    Explainer explainer(options);
    RunContext run;
    run.observer = &explainer;
    session->net->run(run);
    if (options.pass.empty()) explainer.flush();
  }
  if (whole && net.device().kind == DeviceKind::cuda) print_loops(options, net, def);
}

std::vector<std::string> passes_that_run() {
  std::vector<std::string> names;
  for (const StepPass& pass : step_passes())
    if (pass.run) names.emplace_back(pass.name);
  return names;
}

}  // namespace

void add_explain_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "Tell how step nets run: which operators once per block, and why");
  auto o = std::make_shared<ExplainOptions>();  // shared with the callback, which runs after this returns
  add_dry_net_options(*command, o->net);
  command->add_option("--pass", o->pass, "Print step nets before and after this pass alone")
      ->check(CLI::IsMember(passes_that_run()).description(""))
      ->type_name("PASS");
  command
      ->add_flag(
          "--code", o->code,
          "Print step nets as instructions: products, reductions, elementwise loops; fused operators taken apart")
      ->excludes("--pass");
  command->callback([o] { explain(*o); });
}

}  // namespace stepnet::tools
