#include "tools/commands/cli/dry_net.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/compute/threads.h"
#include "core/nearest.h"
#include "recurrent/distributed/join_ranks.h"
#include "recurrent/form/short_form.h"
#include "tools/commands/cli/blob_text.h"
#include "tools/commands/cli/command_session.h"
#include "tools/commands/cli/device_choice.h"
#include "tools/commands/cli/net_file.h"
#include "tools/commands/cli/usage.h"

namespace stepnet::tools {
namespace {

// A bound of a blob that no operator makes would be of no use.
void require_outputs(const NetDef& net, const DryScope& scope) {
  std::vector<std::string> made;
  for (const OperatorDef& op : net.op()) made.insert(made.end(), op.output().begin(), op.output().end());
  for (const auto& [name, bound] : scope.bounds)
    require(std::ranges::find(made, name) != made.end(), "--bound names \"{}\", which no operator makes.{}", name,
            Nearest{name, made});
}

}  // namespace

DryNet::DryNet(const DryNetOptions& options) : options_(options) {
  set_threads(options_.threads);
  files_ = root_of(options_.root);
  net_ = load_short_net(options_.file);
  if (!options_.init.empty()) init_ = load_short_net(options_.init);
  report_unknown_args({&net_, &init_}, options_.strict);
  if (device().kind != DeviceKind::cpu) use_gpu(net_);
  model_ = model_in(net_, options_.batch, options_.timesteps);
  share_batch();
}

// Of several ranks each has its part of the batch; the figures are those of the first, which has no fewer samples than
// any other.
void DryNet::share_batch() {
  ranks_ = claim_ranks(options_.ranks);
  if (!ranks_ || !model_ || !options_.train || options_.pipeline > 0) return;
  require(model_->batch >= options_.ranks, "a batch of {} has nothing for some of {} ranks", model_->batch,
          options_.ranks);
  model_->batch = (model_->batch + options_.ranks - 1) / options_.ranks;
}

void DryNet::share_layers() {
  require(model_.has_value(),
          "layers are shared out to the ranks of a net that says how it is trained (stepnet.model)");
  plan_ = plan_wavefront(training_.model, options_.ranks);
  training_.model = wavefront_stage(training_.model, plan_, options_.stage, options_.pipeline);
}

Device DryNet::device() const { return {options_.device == "cuda" ? DeviceKind::cuda : DeviceKind::cpu, 0}; }

std::unique_ptr<NetSession> DryNet::session(DryScope& scope) {
  for (const auto& [name, type] : parse_types("--bound", options_.bounds))
    scope.bounds[name] = {type.dtype, type.shape};
  auto session = real_session();
  require_outputs(session->net->def(), scope);
  return session;
}

std::unique_ptr<NetSession> DryNet::real_session() {
  feeds_ = parse_types("--feed", options_.feeds);
  return options_.train ? training() : forward();
}

std::unique_ptr<NetSession> DryNet::training() {
  training_.model = model_ ? *model_ : model_of(net_, init_, options_.loss);
  training_.model.ranks = ranks_;
  training_.model.device = training_.device = device();
  training_.model.files = files_;
  training_.optimizer = options_.optimizer;
  training_.feeds = feeds_;
  training_.parameters = parse_types("--parameter", options_.parameters);
  const DType type = precision_type(options_.precision);
  std::map<std::string, TensorType> more = training_.feeds;
  more.insert(training_.parameters.begin(), training_.parameters.end());
  use_precision(training_.model, type, more);
  if (type == DType::float16) training_.optimizer.loss_scale = 1;
  if (options_.pipeline > 0) share_layers();
  if (options_.memory_budget > 0) training_.model = fit_training(training_, options_.memory_budget).model;
  return training_net_session(training_);
}

std::unique_ptr<NetSession> DryNet::forward() {
  ForwardOptions forward{.feeds = feeds_, .init = model_ ? model_->init : init_};
  forward.device = device();
  forward.files = files_;
  forward.keep_all = options_.keep_all;
  for (auto& [name, type] : parse_types("--parameter", options_.parameters)) forward.parameters[name] = type;
  return net_session(net_, model_, std::move(forward));
}

void add_dry_net_options(CLI::App& command, DryNetOptions& options) {
  const auto list = [&](const char* name, std::vector<std::string>& values, const char* help) {
    command.add_option(name, values, help)->allow_extra_args(false)->type_name("BLOB=TYPE[SIZE,...]");
  };
  command.add_option("FILE", options.file, "The net, as protobuf text or in binary form")->required()->type_name("");
  list("--feed", options.feeds, "The type of a blob that is fed; may be repeated");
  list("--parameter", options.parameters, "The type of a parameter that no init net makes; may be repeated");
  list("--bound", options.bounds, "The largest type of a blob whose shape depends on data; may be repeated");
  command.add_option("--init", options.init, "A net that makes parameters; of a model, its own")->type_name("NET");
  command.add_option("--device", options.device, "Where it would run, cpu or cuda; the device need not be there")
      ->check(CLI::IsMember({"cpu", "cuda"}).description(""))
      ->type_name("DEVICE");
  command.add_flag("--train", options.train, "A training step: with gradients, and the update of parameters");
  add_root_option(command, options.root);
  add_strict_option(command, options.strict);
  command.add_option("--loss", options.loss, "What is differentiated; of a model, its loss")->type_name("BLOB");
  command.add_option("--optimizer", options.optimizer.optimizer, "Which optimizer")
      ->check(CLI::IsMember(optimizer_names()).description(""))
      ->type_name("NAME");
  command
      .add_option("--precision", options.precision,
                  "With --train: what the net computes in: float32, bfloat16 or float16")
      ->check(CLI::IsMember(precision_names()).description(""))
      ->type_name("TYPE");
  command.add_option("--clip", options.optimizer.clip, "Largest norm of all gradients together; 0: off");
  command
      .add_option("--accumulate", options.optimizer.accumulate,
                  "With --train: batches whose gradients' mean an iteration uses")
      ->check(whole_number(1))
      ->type_name("N");
  command.add_option("--batch", options.batch, "Of a model; else as it says")->check(whole_number(1));
  command.add_option("--timesteps", options.timesteps, "Of a model; else as it says")->check(whole_number(1));
  command.add_option("--threads", options.threads, "Threads that it would use; 0: one per core")
      ->check(whole_number(0, 1024))
      ->type_name("N");
  command
      .add_option("--ranks", options.ranks,
                  "Processes that run it together: the figures are those of one, with its part of a model's batch")
      ->check(whole_number(1, 1 << 20))
      ->type_name("N");
  command
      .add_option("--reduce", options.optimizer.reduce,
                  "With --ranks: the type in which gradients are added up, float32 for their own, or bfloat16")
      ->check(CLI::IsMember(reduction_names()).description(""))
      ->type_name("TYPE");
  command
      .add_option("--batch-norm", options.optimizer.batch_norm,
                  "With --ranks: whether batch norm measures each rank's part of a batch (by-rank) or all of it "
                  "(synchronized)")
      ->check(CLI::IsMember(batch_norm_names()).description(""))
      ->type_name("NAME");
  command.add_flag("--shard-optimizer", options.optimizer.shard,
                   "With --ranks: each keeps the optimizer's state of its part of the parameters only");
  command.add_option("--memory-budget", options.memory_budget, "With --train: the most memory that the step may take")
      ->transform(byte_count())
      ->type_name("BYTES")
      ->default_str("");
  command.add_flag("--keep-all", options.keep_all, "Intermediates stay until the next run");
}

}  // namespace stepnet::tools
