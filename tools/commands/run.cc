// `stepnet run`: runs a net or a plan.
#include <CLI/CLI.hpp>
#include <memory>

#include "core/autograd/saved/offload_packer.h"
#include "core/compute/threads.h"
#include "core/io/npy.h"
#include "core/nearest.h"
#include "core/net/dataflow.h"
#include "core/operator/anomaly.h"
#include "core/operator/nets_inside.h"
#include "core/passes/defined_operators.h"
#include "recurrent/form/attention_chunks.h"
#include "recurrent/form/short_form.h"
#include "stepnet/plan.h"
#include "stepnet/tensor.h"
#include "tools/commands/cli/blob_text.h"
#include "tools/commands/cli/command_session.h"
#include "tools/commands/cli/device_choice.h"
#include "tools/commands/cli/feeds.h"
#include "tools/commands/cli/net_file.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/cli/profile_table.h"
#include "tools/commands/cli/signals.h"
#include "tools/commands/cli/usage.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

struct RunOptions {
  std::string file, init, root, offload;
  ReadAs as = ReadAs::automatic;
  DeviceChoice device = DeviceChoice::automatic;
  std::vector<std::string> feeds, fetches, watches;
  int64_t every = 1;
  std::optional<int64_t> iterations;
  int threads = 0;
  uint64_t seed = 1;
  bool strict = false;
  bool profile = false, tf32 = false, detect_anomaly = false;
  bool keep_all = false;
};

// "BLOB=FILE" in two; the file is empty if there is no '='.
std::pair<std::string, std::string> split(const std::string& text) {
  const size_t at = text.find('=');
  if (at == std::string::npos) return {text, ""};
  return {text.substr(0, at), text.substr(at + 1)};
}

class RunCommand {
 public:
  explicit RunCommand(const RunOptions& options) : options_(options) {}

  void run() {
    set_threads(options_.threads);
    workspace_.confine(root_of(options_.root));
    file_ = load_net_or_plan(options_.file, options_.as);
    if (!file_.is_plan()) written_ = file_.net();
    std::vector<NetDef*> nets = nets_of(file_);
    for (NetDef* net : nets) expand_recurrent(*net);
    NetDef init;
    if (!options_.init.empty()) {
      init = load_expanded_net(options_.init);
      nets.push_back(&init);
    }
    require_watched();
    feeds_ = read_feeds(options_.feeds);
    require_fed();
    check_structure(file_, warnings_);
    if (!options_.init.empty()) check_net(init, nullptr, &warnings_.list);
    warnings_.report(options_.strict);
    for (const NetDef* net : nets)
      if (!file_.is_plan() || net == &init) preflight_net(*net, workspace_);  // a plan does so itself
    net_options_.force_cpu = choose_device(options_.device, nets);
    if (options_.tf32) allow_tf32(!net_options_.force_cpu);
    net_options_.warnings = &warnings_.list;
    context_.seed = options_.seed;
    context_.warn = &warn_;
    require(options_.offload.empty() || device().kind == DeviceKind::cpu, "offloading is for networks on the CPU");
    if (!options_.offload.empty())
      context_.packer = &packer_.emplace(autograd::OffloadOptions{.folder = options_.offload});
    if (!options_.init.empty()) run_net_once(init, workspace_, context_, net_options_);
    feed();
    attend();
    share_memory();
    const auto run = [&] {
      move_feeds();
      run_main();
    };
    with_estimate(run, device(), [&] { return session(); });
    warnings_.print();
    fetch();
  }

 private:
  Device device() {
    return net_options_.force_cpu || file_.is_plan() ? Device{} : device_of(OperatorDef(), file_.net());
  }

  // Of the net, with what is fed and what the init net made.
  std::unique_ptr<NetSession> session() {
    require(!file_.is_plan(), "a plan has several nets");
    ForwardOptions forward{.feeds = {}};
    for (const std::string& name : workspace_.names()) {
      const Blob& blob = workspace_.at(name);
      if (blob.is_tensor() && blob.tensor().defined() && read(file_.net(), name))
        forward.feeds[name] = TensorType::of(blob.tensor().dtype(), blob.tensor().shape());
    }
    forward.keep_all = options_.keep_all;
    forward.keep = net_options_.keep;
    forward.device = device();
    forward.files = workspace_.file_root();
    return forward_session(file_.net(), forward);
  }

  static bool read(const NetDef& net, const std::string& blob) {
    for (const OperatorDef& op : net.op()) {
      if (std::count(op.input().begin(), op.input().end(), blob) > 0) return true;
      if (std::count(op.output().begin(), op.output().end(), blob) > 0) return false;
    }
    return false;
  }

  // Values that nobody asks for share memory.
  void share_memory() {
    net_options_.plan_memory = !options_.keep_all;
    for (const std::string& text : options_.fetches) net_options_.keep.insert(split(text).first);
    net_options_.keep.insert(options_.watches.begin(), options_.watches.end());
  }

  void feed() {
    for (const auto& [blob, type] : feeds_.types) {
      const auto given = feeds_.values.find(blob);
      if (given != feeds_.values.end()) warn_of_values(blob, given->second);
      workspace_.tensor(blob) = given != feeds_.values.end() ? given->second : drawn(blob, type, options_.seed);
    }
  }

  // Now that types are known. Whoever looks into the net sees the one that the file has.
  void attend() {
    const bool looks = options_.keep_all || options_.detect_anomaly || !options_.watches.empty();
    if (file_.is_plan() || looks || device().kind != DeviceKind::cpu) return;
    std::map<std::string, TensorType> types;
    for (const std::string& name : workspace_.names())
      if (const Blob& blob = workspace_.at(name); blob.is_tensor() && blob.tensor().defined())
        types[name] = TensorType::of(blob.tensor().dtype(), blob.tensor().shape());
    NetDef net = written_;
    expand_defined_operators(net);
    if (attend_in_chunks(net, types) == 0) return;
    expand_recurrent(net);
    const std::set<std::string> written = written_names(net);
    const bool fetches = std::ranges::all_of(options_.fetches, [&](const std::string& text) {
      const std::string blob = split(text).first;
      return written.count(blob) > 0 || workspace_.find(blob);
    });
    if (fetches) file_.net() = std::move(net);
  }

  void move_feeds() {
    for (const auto& [blob, type] : feeds_.types) {
      Tensor& value = workspace_.tensor(blob);
      value = on_device(value, device());
    }
  }

  void run_main() {
    std::optional<ProfileTable> table;
    if (options_.profile) context_.profiler = &table.emplace().profiler();
    std::optional<AnomalyWatch> anomalies;
    if (options_.detect_anomaly) context_.anomalies = &anomalies.emplace();
    const std::atomic<bool>& stop = stop_on_signals();
    if (file_.is_plan()) {
      PlanOptions plan;
      plan.net = net_options_;
      plan.iterations = options_.iterations;
      plan.stop = &stop;
      plan.after_net = [&](const Net& net, int64_t iteration, bool in_loop) {
        saved_ = saved_ || (stop && !in_loop && saves(net.def()));
        watch(net, iteration);
      };
      run_plan(file_.plan(), workspace_, context_, plan);
    } else {
      run_net(stop);
    }
    if (stop) tell_of_stop();
    if (table) print_text("{}", table->text());
  }

  void tell_of_stop() const {
    print_note("note: stopped by a signal after the running iteration{}\n",
               saved_            ? "; steps after it have saved"
               : file_.is_plan() ? "; no step after it is known to have saved"
                                 : "");
    if (saved_) interrupt_was_handled();
  }

  // Whether the net saves whenever it runs, as far as its own operators say. A Checkpoint does so every so often.
  static bool saves(const NetDef& net) {
    const auto is_often = [](const Argument& a) { return a.name() == "every" && a.i() != 1; };
    return std::ranges::any_of(net.op(), [&](const OperatorDef& op) {
      if (op.type() == "Save" || op.type() == "SaveNpy") return true;
      return (op.type() == "Checkpoint" || op.type() == "Snapshot") && std::ranges::none_of(op.arg(), is_often);
    });
  }

  void run_net(const std::atomic<bool>& stop) {
    require_inputs();
    Net net(file_.net(), workspace_, net_options_);
    const int64_t iterations = options_.iterations.value_or(1);
    for (int64_t i = 0; i < iterations && !stop; ++i) {
      net.run(context_);
      watch(net, i);
    }
  }

  // What the net reads before it writes it must be there. A name that a net with a list of inputs does not list is left
  // to the net's own check.
  void require_inputs() {
    const NetDef& net = file_.net();
    const std::set<std::string> listed(net.external_input().begin(), net.external_input().end());
    for (const std::string& name : read_from_outside(net))
      if ((listed.empty() || listed.count(name) > 0) && !workspace_.find(name)) refuse_input(name);
  }

  [[noreturn]] void refuse_input(const std::string& name) {
    std::vector<std::string> names = workspace_.names();
    for (const OperatorDef& other : file_.net().op())
      names.insert(names.end(), other.output().begin(), other.output().end());
    const bool written_later = writes(file_.net(), name);
    Error error(written_later ? fmt::format("the net reads \"{}\" before it writes it, when it holds nothing", name)
                              : fmt::format("the net reads \"{}\", which holds nothing.{}", name, suggest(name, names)),
                fmt::format("{}give it {}with --feed {}=FILE.npy, or name a net that fills it with --init",
                            written_later ? "put the operator that writes it in front, or " : "",
                            written_later ? "a first value " : "", name));
    const auto reader = std::ranges::find_if(
        file_.net().op(), [&](const OperatorDef& op) { return std::ranges::count(op.input(), name) > 0; });
    if (const std::string place = source_text(*reader); !place.empty()) error.add("in", place);
    throw error;
  }

  void watch(const Net& net, int64_t iteration) {
    if ((iteration + 1) % options_.every != 0) return;
    for (const std::string& name : options_.watches) {
      if (!writes(net.def(), name)) continue;
      print_text("iteration {}  {}\n", iteration + 1, blob_summary(name, net.workspace().at(name)));
      std::fflush(stdout);
    }
  }

  static bool writes(const NetDef& net, const std::string& blob) {
    for (const OperatorDef& op : net.op())
      if (std::count(op.output().begin(), op.output().end(), blob) > 0) return true;
    return false;
  }

  // All that can be fetched is, before a mistake in one of them is said.
  void fetch() {
    std::optional<Error> first;
    for (const std::string& text : options_.fetches) {
      try {
        fetch(split(text));
      } catch (const Error& e) {
        if (!first) first = e;
      }
    }
    if (first) throw Error(*first);
  }

  void fetch(const std::pair<std::string, std::string>& what) {
    const auto& [name, path] = what;
    if (!workspace_.find(name)) {
      const std::vector<std::string> names = workspace_.names();
      const size_t shown = std::min<size_t>(names.size(), 20);
      throw Error(
          fmt::format("--fetch \"{}\": there is no such blob.{}", name, suggest(name, names)),
          fmt::format("there are {}{}", fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "),
                      shown < names.size() ? ", ..." : ""));
    }
    if (path.empty())
      print_text("{}\n", blob_text(name, workspace_.at(name)));
    else
      write_npy(path, workspace_.fetch(name));
  }

  static void warn_of_values(const std::string& blob, const Tensor& value) {
    const ValueRange range = range_of(value);
    if (!range.finite())
      print_note("warning: what is fed to \"{}\" is {} at {}\n", blob, range.first_value,
                 index_text(value.shape(), range.first));
  }

  // What is fed must be read by some net or step of a plan, or be fetched.
  void require_fed() {
    std::set<std::string> read;
    for (NetDef* net : nets_of(file_))
      for_each_net(*net, [&](const NetDef& inner) {
        read.insert(inner.external_input().begin(), inner.external_input().end());
        for (const OperatorDef& op : inner.op()) {
          read.insert(op.input().begin(), op.input().end());
          read.insert(op.control_input().begin(), op.control_input().end());
        }
      });
    if (file_.is_plan()) add_stops(file_.plan().execution_step(), read);
    for (const std::string& text : options_.fetches) read.insert(split(text).first);
    for (const auto& [blob, type] : feeds_.types)
      require(read.count(blob) > 0, "--feed \"{}\": no net reads this blob.{}", blob, Nearest{blob, read});
  }

  template <class Steps>
  static void add_stops(const Steps& steps, std::set<std::string>& names) {
    for (const ExecutionStep& step : steps) {
      names.insert(step.should_stop_blob());
      add_stops(step.substep(), names);
    }
  }

  void require_watched() {
    std::vector<std::string> names;
    for (const NetDef* net : nets_of(file_))
      for (const OperatorDef& op : net->op()) names.insert(names.end(), op.output().begin(), op.output().end());
    for (const std::string& name : options_.watches)
      require(std::count(names.begin(), names.end(), name) > 0, "--watch \"{}\": no net writes this blob.{}", name,
              Nearest{name, names});
  }

  RunOptions options_;
  Feeds feeds_;
  NetDef written_;  // the net as the file has it
  LoadedFile file_;
  Workspace workspace_;
  Warnings warnings_;
  NetOptions net_options_;
  std::optional<autograd::OffloadPacker> packer_;
  const std::function<void(const std::string&)> warn_ = warn_of_runs(options_.strict);
  RunContext context_;
  bool saved_ = false;  // by a step of the plan, after a signal
};

}  // namespace

void add_run_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Run a net or a plan");
  auto o = std::make_shared<RunOptions>();  // shared with the callback, which runs after this returns
  const auto list = [&](const char* name, std::vector<std::string>& values, const char* type, const char* help) {
    command->add_option(name, values, help)->allow_extra_args(false)->type_name(type);
  };
  command->add_option("FILE", o->file, "The net or plan, as protobuf text or in binary form")
      ->required()
      ->type_name("");
  command->add_option("--as", o->as, "What FILE holds: auto, net or plan")
      ->transform(CLI::CheckedTransformer(read_as_names()).description(""))
      ->type_name("KIND");
  command->add_option("--device", o->device, "Where to run: auto, cpu or cuda")
      ->transform(CLI::CheckedTransformer(device_names()).description(""))
      ->type_name("DEVICE");
  list("--feed", o->feeds, "BLOB=FILE.npy|TYPE[SIZE,...]",
       "Give a blob its value, or draw values of a type; may be repeated");
  list("--fetch", o->fetches, "BLOB[=FILE.npy]", "Print a blob at the end, or write it; may be repeated");
  command->add_option("--init", o->init, "A net to run once before, for parameters")->type_name("NET");
  add_root_option(*command, o->root);
  add_offload_option(*command, o->offload);
  command->add_option("--iterations", o->iterations, "Replaces a plan's largest num_iter; how often to run a net")
      ->check(whole_number(0))
      ->type_name("N");
  list("--watch", o->watches, "BLOB", "Print a blob while running; may be repeated");
  command->add_option("--every", o->every, "Print watched blobs every N iterations")
      ->check(whole_number(1))
      ->type_name("N");
  command->add_option("--threads", o->threads, "Threads to use; 0: one per core")
      ->check(whole_number(0, 1024))
      ->type_name("N");
  command->add_option("--seed", o->seed, "Seed of all random draws")->type_name("N");
  command->add_flag("--keep-all", o->keep_all, "Let no intermediates share memory");
  command->add_flag("--tf32", o->tf32, kTf32Help);
  add_strict_option(*command, o->strict);
  command->add_flag("--detect-anomaly", o->detect_anomaly, kDetectAnomalyHelp);
  command->add_flag("--profile", o->profile, "Print a table of time, bytes and memory per operator at the end");
  command->callback([o] { RunCommand(*o).run(); });
}

}  // namespace stepnet::tools
