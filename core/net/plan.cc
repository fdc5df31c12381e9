// Runs plans: builds the nets of each top-level step, then executes its tree of steps.
//
// A step is compiled into the nets and substeps that it refers to. A step with a workspace of its own is compiled anew
// at each execution. Reports (`run_every_ms`, `report_net`) run in threads beside their step, in turns with the nets.
#include "stepnet/plan.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/compute/threads.h"
#include "core/net/dataflow.h"
#include "core/net/mentions.h"
#include "core/net/plan_threads.h"
#include "stepnet/random.h"

namespace stepnet {
namespace {

using std::chrono::milliseconds;

constexpr int kMaxThreads = 1024;  // of one plan, at a time
constexpr milliseconds kReportPatience{1000};

// A net of the plan in one workspace. Concurrent instances of a step share it and take turns.
struct PlanNet {
  PlanNet(const NetDef& def, Workspace& workspace, const NetOptions& options) : net(def, workspace, options) {}
  Net net;
  std::mutex running;
};
using PlanNets = std::map<std::string, std::unique_ptr<PlanNet>>;

struct CompiledStep {
  const ExecutionStep& def;
  std::string path;  // names of the steps around it, for messages
  Workspace& workspace;
  bool needs_workspace = false;  // then nothing below is filled
  std::vector<PlanNet*> nets = {};
  std::vector<std::unique_ptr<CompiledStep>> substeps = {};
  std::vector<std::unique_ptr<CompiledStep>> reporters = {};
  PlanNet* report_net = nullptr;
  const Blob* should_stop = nullptr;
};

// On whose behalf a step runs.
struct Runner {
  RunContext run;
  bool main_thread = true;
  bool reporting = false;                           // it has the gate to itself
  const Runner* outer = nullptr;                    // the one that started this thread
  const std::atomic<bool>* group_failed = nullptr;  // a step beside this one has failed
  int loops = 0;                                    // steps that run more than once and are running

  bool cancelled() const { return (group_failed && *group_failed) || (outer && outer->cancelled()); }
};

// The stop blob's value; a blob that holds nothing yet says no.
bool asked_to_stop(const CompiledStep& step) {
  if (!step.should_stop || step.should_stop->empty()) return false;
  const Tensor& t = step.should_stop->tensor();
  require(t.dtype() == DType::boolean && t.size() == 1, "should_stop_blob \"{}\" must be one bool, but is {}",
          step.def.should_stop_blob(), t);
  return t.data<bool>()[0];
}

// -1: until it is stopped.
int64_t iteration_limit(const ExecutionStep& def) {
  if (!def.should_stop_blob().empty()) return def.only_once() ? 1 : -1;
  return def.has_num_iter() ? def.num_iter() : 1;
}

bool runs_parallel(const CompiledStep& step) {
  return (step.def.concurrent_substeps() && step.substeps.size() > 1) || step.def.num_concurrent_instances() > 1;
}

class PlanRun {
 public:
  PlanRun(const PlanDef& plan, const PlanOptions& options) : plan_(plan), options_(options) {
    for (const NetDef& net : plan.network()) defs_[net.name()] = &net;
  }

  void run(Workspace& workspace, const RunContext& run) {
    PlanNets nets;
    Runner runner{.run = run};
    std::exception_ptr first;
    for (const ExecutionStep& def : plan_.execution_step()) {
      if (halted(runner, false)) break;
      const bool stopped = options_.stop && *options_.stop;
      try {
        execute(*compile(def, def.name(), workspace, nets), runner);
      } catch (const Error&) {
        if (!stopped) throw;
        if (!first) first = std::current_exception();  // it may miss what a loop that was left out would have made
      }
    }
    if (first) std::rethrow_exception(first);
  }

 private:
  using StepPtr = std::unique_ptr<CompiledStep>;

  // --- Compiling: every net of the step's tree is built, in order of reference ---

  StepPtr compile(const ExecutionStep& def, const std::string& path, Workspace& workspace, PlanNets& nets) {
    if (!def.create_workspace()) return compile_here(def, path, workspace, nets);
    return StepPtr(new CompiledStep{.def = def, .path = path, .workspace = workspace, .needs_workspace = true});
  }

  StepPtr compile_here(const ExecutionStep& def, const std::string& path, Workspace& workspace, PlanNets& nets) {
    StepPtr step(new CompiledStep{.def = def, .path = path, .workspace = workspace});
    try {
      for (const ExecutionStep& substep : def.substep()) {
        auto& list = substep.has_run_every_ms() ? step->reporters : step->substeps;
        list.push_back(compile(substep, path + "/" + substep.name(), workspace, nets));
      }
      for (const std::string& name : def.network()) step->nets.push_back(&net(name, workspace, nets));
      if (!def.report_net().empty()) step->report_net = &net(def.report_net(), workspace, nets);
      if (!def.should_stop_blob().empty()) step->should_stop = &workspace.at(def.should_stop_blob());
    } catch (Error& e) {
      add_place(e, *step);
      throw;
    }
    return step;
  }

  PlanNet& net(const std::string& name, Workspace& workspace, PlanNets& nets) {
    auto& made = nets[name];
    if (made) return *made;
    const std::lock_guard lock(building_);  // workspaces and the list of warnings are shared
    made = std::make_unique<PlanNet>(*defs_.at(name), workspace, options_of(*defs_.at(name)));
    return *made;
  }

  // Other nets, and steps, may read what a net writes.
  NetOptions options_of(const NetDef& net) {
    NetOptions options = options_.net;
    if (!options.plan_memory && !options.release_intermediates) return options;
    if (!knows_readers_) find_readers();
    for (const OperatorDef& op : net.op())
      for (const std::string& name : op.output())
        if (const auto reader = readers_.find(name); reader != readers_.end() && reader->second != &net)
          options.keep.insert(name);
    return options;
  }

  void find_readers() {
    Mentions names;
    for (const NetDef& net : plan_.network())
      for (const OperatorDef& op : net.op())
        for (const std::string& name : op.output()) names.add(name);
    for (const NetDef& net : plan_.network())
      for (const std::string& name : names.in(net.SerializeAsString()))
        if (const auto [reader, is_first] = readers_.emplace(name, &net); !is_first) reader->second = nullptr;
    for (const ExecutionStep& step : plan_.execution_step())
      for (const std::string& name : names.in(step.SerializeAsString())) readers_[name] = nullptr;
    knows_readers_ = true;
  }

  // --- Running ---

  // What is asked to stop begins no iteration of a loop any more. The rest of the plan runs, which finishes the
  // iteration and saves; but not before a loop has begun, when there is nothing new to save.
  bool halted(const Runner& runner, bool before_an_iteration) const {
    const bool stopped = options_.stop && *options_.stop && !runner.reporting;
    return (stopped && (before_an_iteration || !looped_)) || runner.cancelled();
  }

  void execute(const CompiledStep& step, Runner& runner) {
    if (step.needs_workspace) return execute_in_workspace(step, runner);
    std::vector<std::unique_ptr<PeriodicThread>> reports = start_reports(step, runner);
    const int64_t limit = iteration_limit(step.def);
    const bool is_loop = limit != 1;
    if (is_loop) ++runner.loops;
    for (int64_t i = 0; (limit < 0 || i < limit) && !halted(runner, is_loop); ++i) {
      // One iteration that a plan or a caller asks for is training, too.
      if ((is_loop || step.def.has_num_iter()) && !runner.reporting) looped_ = true;
      if (run_iteration(step, runner)) break;
    }
    if (is_loop) --runner.loops;
    for (const auto& report : reports) report->finish();
  }

  // The draws of random operators differ from one such workspace to the next by the seed.
  void execute_in_workspace(const CompiledStep& step, const Runner& runner) {
    const int64_t number = workspaces_++;
    Workspace workspace(&step.workspace);
    workspace.root_folder = step.workspace.root_folder;
    if (const Blob* node = step.workspace.find("NODE_ID"); node && !node->empty())
      workspace.create_local("GLOBAL_WORKSPACE_ID").tensor() =
          Tensor::scalar<int32_t>((node->tensor().item<int32_t>() << 16) + static_cast<int32_t>(number));
    PlanNets nets;
    Runner inside = runner;
    if (number > 0) inside.run.seed = random_key(runner.run.seed, plan_.name(), step.path, number, 0);
    execute(*compile_here(step.def, step.path, workspace, nets), inside);
  }

  // True if the step is to end.
  bool run_iteration(const CompiledStep& step, Runner& runner) {
    if (runs_parallel(step)) {
      run_parallel(step, runner);
      if (stop_blob_set(step)) return true;
    } else {
      for (const auto& substep : step.substeps) {
        execute(*substep, runner);
        if (stop_blob_set(step)) return true;
      }
    }
    for (PlanNet* net : step.nets) {
      if (runner.cancelled()) return true;
      run_net(step, *net, runner);
      if (stop_blob_set(step)) return true;
    }
    return false;
  }

  void run_net(const CompiledStep& step, PlanNet& net, Runner& runner) {
    const std::lock_guard one_at_a_time(net.running);
    const NetTurn turn(runner.reporting ? nullptr : &gate_);
    try {
      net.net.run(runner.run);
      if (options_.after_net && runner.main_thread) options_.after_net(net.net, runner.run.iteration, runner.loops > 0);
    } catch (Error& e) {
      add_place(e, step);
      throw;
    }
  }

  // --- Threads ---

  void run_parallel(const CompiledStep& step, const Runner& runner) {
    const int64_t instances = std::max(1, step.def.num_concurrent_instances());
    const int64_t count = static_cast<int64_t>(step.substeps.size()) * instances;
    const int64_t wanted = threads_ += count;
    std::atomic<bool> failed{false};
    std::mutex mutex;
    std::exception_ptr first;
    auto fail_with_current = [&] {
      failed = true;
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    };
    std::vector<std::thread> threads;
    try {
      require(wanted <= kMaxThreads, "the plan asks for {} threads at a time; the limit is {}", wanted, kMaxThreads);
      for (int64_t i = 0; i < count; ++i)
        threads.emplace_back([&, i] {
          try {
            const SerialScope serial;
            Runner inside{runner.run, false, runner.reporting, &runner, &failed};
            execute(*step.substeps[i % step.substeps.size()], inside);
          } catch (...) {
            fail_with_current();
          }
        });
    } catch (...) {
      fail_with_current();
    }
    for (std::thread& t : threads) t.join();
    threads_ -= count;
    rethrow(first, step);
  }

  void rethrow(const std::exception_ptr& error, const CompiledStep& step) const {
    if (!error) return;
    try {
      std::rethrow_exception(error);
    } catch (const std::system_error& e) {
      Error no_threads(fmt::format("no more threads can be started: {}", e.what()));
      add_place(no_threads, step);
      throw no_threads;
    }
  }

  std::vector<std::unique_ptr<PeriodicThread>> start_reports(const CompiledStep& step, const Runner& runner) {
    std::vector<std::unique_ptr<PeriodicThread>> reports;
    auto start = [&](milliseconds interval, std::function<void(Runner&)> run) {
      reports.push_back(std::make_unique<PeriodicThread>(
          interval, [this, &step, &runner, run = std::move(run)] { report(step, runner, run); }));
    };
    if (step.report_net)
      start(milliseconds(int64_t{1000} * step.def.report_interval()),
            [this, &step](Runner& r) { run_net(step, *step.report_net, r); });
    for (const auto& reporter : step.reporters)
      start(milliseconds(reporter->def.run_every_ms()), [this, &reporter](Runner& r) { execute(*reporter, r); });
    return reports;
  }

  // A report that fails only warns.
  void report(const CompiledStep& step, const Runner& runner, const std::function<void(Runner&)>& run) {
    if (!gate_.enter_report(kReportPatience))
      return warn(fmt::format("a report of step \"{}\" was left out: nets ran all the time", step.path));
    try {
      const SerialScope serial;
      Runner inside{runner.run, false, true, &runner, nullptr};
      run(inside);
    } catch (const std::exception& e) {
      warn(fmt::format("a report of step \"{}\" failed: {}", step.path, e.what()));
    }
    gate_.leave_report();
  }

  void warn(std::string text) {
    const std::lock_guard lock(building_);
    if (options_.net.warnings) options_.net.warnings->push_back(std::move(text));
  }

  // --- Messages ---

  bool stop_blob_set(const CompiledStep& step) const {
    try {
      return asked_to_stop(step);
    } catch (Error& e) {
      add_place(e, step);
      throw;
    }
  }

  // Only the innermost step is named: its path has the others.
  void add_place(Error& error, const CompiledStep& step) const {
    if (error.has("at")) return;
    error.add("at", fmt::format("step \"{}\" of plan \"{}\"", step.path, plan_.name()));
  }

  const PlanDef& plan_;
  const PlanOptions& options_;
  std::map<std::string, const NetDef*> defs_;
  bool knows_readers_ = false;
  std::map<std::string, const NetDef*> readers_;  // by blob: the only net that may mention it, or null for others too
  NetGate gate_;
  std::mutex building_;
  std::atomic<bool> looped_{false};  // a step that runs more than once has begun
  std::atomic<int64_t> workspaces_{0};
  std::atomic<int64_t> threads_{0};
};

ExecutionStep* largest_loop(google::protobuf::RepeatedPtrField<ExecutionStep>* steps) {
  ExecutionStep* best = nullptr;
  for (ExecutionStep& step : *steps) {
    for (ExecutionStep* s : {step.has_num_iter() ? &step : nullptr, largest_loop(step.mutable_substep())})
      if (s && (!best || s->num_iter() > best->num_iter())) best = s;
  }
  return best;
}

// The nets that the steps run; one that is in no step stays unchecked.
void preflight_step(const PlanDef& plan, const ExecutionStep& step, const Workspace& workspace) {
  for (const ExecutionStep& substep : step.substep()) preflight_step(plan, substep, workspace);
  for (const NetDef& net : plan.network())
    if (std::find(step.network().begin(), step.network().end(), net.name()) != step.network().end())
      preflight_net(net, workspace);
}

}  // namespace

void run_plan(const PlanDef& plan, Workspace& workspace, RunContext& run, const PlanOptions& options) {
  check_plan(plan);
  for (const ExecutionStep& step : plan.execution_step()) preflight_step(plan, step, workspace);
  PlanDef changed;
  if (options.iterations) {
    changed = plan;
    ExecutionStep* loop = largest_loop(changed.mutable_execution_step());
    require(loop, "plan \"{}\" has no step with num_iter, so the number of iterations cannot be given", plan.name());
    loop->set_num_iter(*options.iterations);
  }
  if (plan.execution_step_size() == 0 && options.net.warnings)
    options.net.warnings->push_back(fmt::format("plan \"{}\" has no execution step: nothing is run", plan.name()));
  PlanRun(options.iterations ? changed : plan, options).run(workspace, run);
}

}  // namespace stepnet
