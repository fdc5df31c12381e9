// `stepnet estimate`: memory and arithmetic of a net without running it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "core/compute/parallel.h"
#include "core/compute/profiler.h"
#include "core/estimate/report.h"
#include "core/io/atomic_file.h"
#include "recurrent/form/builder.h"
#include "recurrent/train/model.h"
#include "recurrent/train/train_options.h"
#include "recurrent/train/training_budget.h"
#include "tools/commands/cli/command_session.h"
#include "tools/commands/cli/device_choice.h"
#include "tools/commands/cli/net_file.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/cli/type_text.h"
#include "tools/commands/cli/usage.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

struct EstimateOptions {
  std::string file, init, loss, root, device = "cpu", plot, precision = "float32";
  std::vector<std::string> feeds, parameters, bounds;
  OptimizerOptions optimizer;
  int64_t batch = 0, timesteps = 0;
  int threads = 0;
  int64_t memory_budget = 0;
  bool train = false, why = false, json = false, keep_all = false;
};

class EstimateCommand {
 public:
  explicit EstimateCommand(const EstimateOptions& options) : options_(options) {}

  void run() {
    set_threads(options_.threads);
    files_ = root_of(options_.root);
    net_ = load_net(options_.file);
    if (!options_.init.empty()) init_ = load_net(options_.init);
    if (device().kind != DeviceKind::cpu) use_gpu(net_);
    model_ = model_in(net_, options_.batch, options_.timesteps);
    const double start = now_seconds();
    DryScope scope(device().kind);
    for (const auto& [name, type] : parse_types("--bound", options_.bounds))
      scope.bounds[name] = {type.dtype, type.shape};
    feeds_ = parse_types("--feed", options_.feeds);
    const auto session = options_.train ? training() : forward();
    require_outputs(session->net->def(), scope);
    const Estimate estimate = estimate_session(*session, scope);
    const double seconds = now_seconds() - start;
    if (options_.train && !options_.json) planned_peak_ = training_peak(training_);
    print(*session, estimate);
    if (!options_.json) print_text("estimated in {:.1f} ms\n", seconds * 1e3);
  }

 private:
  Device device() const { return {options_.device == "cuda" ? DeviceKind::cuda : DeviceKind::cpu, 0}; }

  // A bound of a blob that no operator makes would be of no use.
  static void require_outputs(const NetDef& net, const DryScope& scope) {
    std::vector<std::string> made;
    for (const OperatorDef& op : net.op()) made.insert(made.end(), op.output().begin(), op.output().end());
    for (const auto& [name, bound] : scope.bounds)
      require(std::ranges::find(made, name) != made.end(), "--bound names \"{}\", which no operator makes.{}", name,
              suggest(name, made));
  }

  std::unique_ptr<NetSession> training() {
    training_.model = model_ ? *model_ : model_of(net_, init_, options_.loss);
    training_.model.device = training_.device = device();
    training_.model.files = files_;
    training_.optimizer = options_.optimizer;
    training_.feeds = feeds_;
    training_.parameters = parse_types("--parameter", options_.parameters);
    compute_in(precision_type(options_.precision));
    if (options_.memory_budget > 0) training_.model = fit_training(training_, options_.memory_budget).model;
    return training_session(training_);
  }

  void compute_in(DType type) {
    std::map<std::string, TensorType> more = training_.feeds;
    more.insert(training_.parameters.begin(), training_.parameters.end());
    use_precision(training_.model, type, more);
    if (type == DType::float16) training_.optimizer.loss_scale = 1;
  }

  std::unique_ptr<NetSession> forward() {
    ForwardOptions forward{.feeds = feeds_, .init = model_ ? model_->init : init_};
    forward.device = device();
    forward.files = files_;
    forward.keep_all = options_.keep_all;
    for (auto& [name, type] : parse_types("--parameter", options_.parameters)) forward.parameters[name] = type;
    return net_session(net_, model_, std::move(forward));
  }

  void print(const NetSession& session, const Estimate& estimate) const {
    std::vector<KeptValue> kept;
    if (options_.why) kept = kept_values(session);
    if (options_.json)
      print_text("{}", estimate_json(estimate, options_.why ? &kept : nullptr));
    else
      print_text("{}{}", estimate_table(estimate), options_.why ? kept_table(kept) : "");
    if (planned_peak_ > 0)
      print_text("as stepnet train runs it: peak {} ({} bytes)\n", bytes_text(planned_peak_), planned_peak_);
    if (!options_.plot.empty()) write_file(options_.plot, estimate_svg(estimate, session.net->name()));
  }

  const EstimateOptions& options_;
  NetDef net_, init_;
  FileRootPtr files_;
  std::optional<Model> model_;
  Types feeds_;
  TrainingEstimate training_;
  int64_t planned_peak_ = 0;
};

}  // namespace

void add_estimate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("estimate", "Tell a net's memory and arithmetic without running it");
  auto o = std::make_shared<EstimateOptions>();  // shared with the callback, which runs after this returns
  const auto list = [&](const char* name, std::vector<std::string>& values, const char* help) {
    command->add_option(name, values, help)->allow_extra_args(false)->type_name("BLOB=TYPE[SIZE,...]");
  };
  command->add_option("FILE", o->file, "The net, as protobuf text or in binary form")->required()->type_name("");
  list("--feed", o->feeds, "The type of a blob that is fed; may be repeated");
  list("--parameter", o->parameters, "The type of a parameter that no init net makes; may be repeated");
  list("--bound", o->bounds, "The largest type of a blob whose shape depends on data; may be repeated");
  command->add_option("--init", o->init, "A net that makes parameters; of a model, its own")->type_name("NET");
  command->add_option("--device", o->device, "Where it would run, cpu or cuda; the device need not be there")
      ->check(CLI::IsMember({"cpu", "cuda"}).description(""))
      ->type_name("DEVICE");
  command->add_flag("--train", o->train, "A training step: with gradients, and the update of parameters");
  add_root_option(*command, o->root);
  command->add_option("--loss", o->loss, "What is differentiated; of a model, its loss")->type_name("BLOB");
  command->add_option("--optimizer", o->optimizer.optimizer, "Which optimizer")
      ->check(CLI::IsMember(optimizer_names()).description(""))
      ->type_name("NAME");
  command
      ->add_option("--precision", o->precision, "With --train: what the net computes in: float32, bfloat16 or float16")
      ->check(CLI::IsMember(precision_names()).description(""))
      ->type_name("TYPE");
  command->add_option("--clip", o->optimizer.clip, "Largest norm of all gradients together; 0: off");
  command->add_option("--batch", o->batch, "Of a model; else as it says")->check(whole_number(1));
  command->add_option("--timesteps", o->timesteps, "Of a model; else as it says")->check(whole_number(1));
  command->add_option("--threads", o->threads, "Threads that it would use; 0: one per core")
      ->check(whole_number(0, 1024))
      ->type_name("N");
  command->add_option("--memory-budget", o->memory_budget, "With --train: the most memory that the step may take")
      ->transform(byte_count())
      ->type_name("BYTES")
      ->default_str("");
  command->add_flag("--keep-all", o->keep_all, "Intermediates stay until the next run");
  command->add_flag("--why", o->why, "Name for each value that is kept who reads it");
  command->add_flag("--json", o->json, "Print one JSON object");
  command->add_option("--plot", o->plot, "Write the timeline of live bytes as a picture")->type_name("FILE.svg");
  command->callback([o] { EstimateCommand(*o).run(); });
}

}  // namespace stepnet::tools
