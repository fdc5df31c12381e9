// `stepnet train`: trains a net on a text or on samples.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <optional>

#include "core/compute/threads.h"
#include "core/data/sample_batches.h"
#include "core/operator/nets_inside.h"
#include "recurrent/distributed/join_ranks.h"
#include "recurrent/distributed/rank_threads.h"
#include "recurrent/report/metrics.h"
#include "recurrent/train/privacy.h"
#include "stepnet/text.h"
#include "stepnet/trainer.h"
#include "tools/commands/cli/command_session.h"
#include "tools/commands/cli/device_choice.h"
#include "tools/commands/cli/net_file.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/cli/profile_table.h"
#include "tools/commands/cli/progress.h"
#include "tools/commands/cli/signals.h"
#include "tools/commands/cli/usage.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

struct TrainCommand {
  std::string file, root;
  TrainOptions options;
  int threads = 0;
  double timeout = 0;
  DeviceChoice device = DeviceChoice::automatic;
  bool quiet = false, profile = false, tf32 = false, strict = false;

  void run();
  bool of_text() const { return options.data.empty(); }
  std::string loss_text(double loss) const;
  std::string source_text() const;
  void print_end(const TrainResult& result, const TrainOptions& used) const;
};

std::string TrainCommand::loss_text(double loss) const {
  return of_text() ? fmt::format("{:.4f} bits/char", bits_per_char(loss)) : fmt::format("loss {:.6g}", loss);
}

std::string scores_text(const std::vector<std::pair<std::string, double>>& scores) {
  std::string text;
  for (const auto& [name, value] : scores) text += fmt::format(", {} {:.6g}", name, value);
  return text;
}

// The options that say what it is trained on.
std::string TrainCommand::source_text() const {
  if (of_text()) return " --text " + options.text;
  std::string text;
  for (const std::string& data : options.data) text += " --data " + data;
  for (const std::string& data : options.held_out_data) text += " --held-out-data " + data;
  return text;
}

void TrainCommand::run() {
  set_threads(threads);
  std::optional<ProfileTable> table;
  if (profile) options.profiler = &table.emplace().profiler();
  options.stop = &stop_on_signals();
  options.save = &saves_on_signals();
  options.files = root_of(root);
  options.ranks = join_ranks(timeout);
  if (options.ranks && threads == 0) set_threads(threads_of(*options.ranks));
  const bool is_first = !options.ranks || options.ranks->is_first();
  ProgressDisplay display(quiet || !is_first, options.seconds);
  TrainEvents events;
  events.iteration = [&](const TrainProgress& p) { display.show(p); };
  events.validation = [&](const ValidationResult& v) {
    display.line(fmt::format("iteration {}: {} on the held-out part{}", v.iteration,
                             loss_text(v.loss) + scores_text(v.metrics), v.best ? ", the best so far" : ""));
  };
  events.note = [&](const std::string& text) { display.line("note: " + text); };
  events.warn = [&](const std::string& text) {
    Warnings one;
    one.list = {text};
    if (strict) one.refuse();
    display.line("warning: " + text);
  };
  if (const std::string text = options.ranks ? crowding(*options.ranks, stepnet::threads()) : ""; !text.empty())
    display.line("warning: " + text);
  NetDef net = load_short_net(file);
  report_unknown_args({&net}, strict);
  const bool on_cpu = choose_device(device, {&net});
  if (on_cpu) use_cpu(net);
  if (tf32) allow_tf32(!on_cpu);
  if (options.ranks && !on_cpu) use_gpu(net, gpu_of(*options.ranks).index);
  const Device place = device_of(OperatorDef(), net);
  options.ranks = ranks_on(options.ranks, place);
  std::optional<Trainer> made;
  const auto session = [&] {
    TrainingEstimate training{.model = *model_in(net, options.batch, options.timesteps)};
    training.model.device = training.device = place;
    training.model.files = options.files;
    training.optimizer = options.optimizer;
    return training_net_session(training);
  };
  with_estimate([&] { made.emplace(net, options, events); }, place, session);
  Trainer& trainer = *made;
  if (!trainer.of_text())
    display.line(fmt::format("{} parameters, {} samples to train on, {} held out, batch {}", trainer.parameter_count(),
                             trainer.training_samples(), trainer.validation_samples(), trainer.options().batch));
  else
    display.line(
        fmt::format("{} parameters, {} different bytes, {} bytes to train on, {} held out, batch {}, {} timesteps",
                    trainer.parameter_count(), trainer.vocabulary_size(), trainer.training_bytes(),
                    trainer.validation_bytes(), trainer.options().batch, trainer.options().timesteps));
  if (options.resume) display.line(fmt::format("going on after iteration {}", trainer.iteration()));
  if (options.out.empty() && !options.resume)
    display.line("the result will not be kept: --out FOLDER keeps checkpoints, metrics and parameters");
  TrainResult result;
  with_estimate([&] { result = trainer.run(); }, place, session);
  display.line("");
  if (is_first) print_end(result, trainer.options());
  if (table) print_text("{}", table->text());
  if (result.finished || !options.out.empty()) interrupt_was_handled();
}

void TrainCommand::print_end(const TrainResult& r, const TrainOptions& used) const {
  if (!r.finished) {
    print_text("stopped after iteration {} of {}\n", r.iteration, r.total);
    if (options.out.empty())
      print_text("nothing was saved, because no folder was given by --out\n");
    else
      print_text("to go on: stepnet train {}{} --out {} --resume\n", file, source_text(), options.out);
    return;
  }
  print_text("trained {} iterations in {:.1f} s, last loss {:.3f}", r.iteration, r.seconds, r.loss);
  if (!r.best_loss && r.validation_loss && std::isnan(*r.validation_loss))
    print_text(", held-out part: {}", loss_text(*r.validation_loss));
  if (r.best_loss) {
    print_text(", held-out part: {}", loss_text(r.validation_loss.value_or(NAN)) + scores_text(r.metrics));
    print_text(", best {}", of_text()       ? fmt::format("{:.4f}", bits_per_char(*r.best_loss))
                            : r.best_metric ? fmt::format("{} {:.6g}", used.best, *r.best_metric)
                                            : loss_text(*r.best_loss));
  }
  print_text("\n");
  if (used.optimizer.dp_clip > 0)
    print_text("private: epsilon {:.4g} for delta {:g}, for each of the {} streams\n",
               gaussian_epsilon(used.optimizer.dp_noise, r.iteration, used.dp_delta), used.dp_delta, used.batch);
  if (!options.out.empty() && of_text()) print_text("to see text from it: stepnet sample --out {}\n", options.out);
}

// Options that a resumed run takes from its checkpoint unless they are given. Where 0 stands for something else, that
// is not shown as the default.
template <class T>
CLI::Option* setting(CLI::App& command, TrainCommand& o, const std::string& name, T& value, const std::string& help) {
  CLI::Option* option = command.add_option("--" + name, value, help);
  if (value == T{}) option->default_str("");
  return option->each([&o, name](const std::string&) { o.options.given.insert(name); });
}

void add_settings(CLI::App& c, TrainCommand& o) {
  OptimizerOptions& p = o.options.optimizer;
  setting(c, o, "holdout", o.options.holdout, "Share of the text or the samples, at its end, that is only predicted");
  setting(c, o, "fold", o.options.fold,
          "In place of --holdout: the samples are parted into N folds, one after another, of which number I, counted "
          "from 1, is only predicted")
      ->type_name("I/N");
  setting(c, o, "order", o.options.order,
          "Of the samples of an epoch: shuffled, anew for each; given, as in the files; bucketed, shuffled but with "
          "those of like length together; streams, each batch going on where the one before ended")
      ->check(CLI::IsMember(sample_order_names()));
  setting(c, o, "best", o.options.best, "What tells which checkpoint is the best one: loss, or a metric of the model");
  setting(c, o, "optimizer", p.optimizer, "Which optimizer")->check(CLI::IsMember(optimizer_names()));
  setting(c, o, "lr", p.lr, "Learning rate");
  const std::vector<std::string> policies = {"fixed",        "poly",           "exp",    "step",         "inv",
                                             "linearWarmup", "constantWarmup", "cosine", "warmupCosine", "oneCycle",
                                             "plateau"};
  setting(c, o, "lr-policy", p.lr_policy, fmt::format("How it changes: {}", fmt::join(policies, ", ")))
      ->check(CLI::IsMember(policies));
  setting(c, o, "lr-gamma", p.lr_gamma, "Factor of the policies step, exp, inv and plateau");
  setting(c, o, "lr-power", p.lr_power, "Exponent of the policies poly and inv");
  setting(c, o, "lr-stepsize", p.lr_stepsize, "Iterations between two changes of the policy step")
      ->check(whole_number(1));
  setting(c, o, "lr-patience", p.lr_patience, "Validations that are no better, after which the policy plateau acts")
      ->check(whole_number(1));
  setting(
      c, o, "average", p.average,
      "Keep a running average of the parameters, of which this share remains in each iteration, and use it in their "
      "place; 0: off");
  setting(c, o, "accumulate", p.accumulate, "Batches whose gradients' mean an iteration uses")->check(whole_number(1));
  setting(c, o, "lr-warmup", p.lr_warmup, "Iterations of warm-up")->check(whole_number(1));
  setting(c, o, "momentum", p.momentum, "Of the optimizers momentum and nesterov");
  const auto own = [&](const std::string& name, double& value, const std::string& help) {
    setting(c, o, name, value, help)->default_str("")->check(CLI::NonNegativeNumber);
  };
  own("beta1", p.beta1,
      "Of adam, adamw, nadam, lamb and lion: what remains of the first mean; else the optimizer's own, 0.9");
  own("beta2", p.beta2, "What remains of the second mean; else the optimizer's own, 0.999 or of lion 0.99");
  own("epsilon", p.epsilon, "Added to a root; else the optimizer's own, 1e-8, of adagrad 1e-10, of lamb 1e-6");
  own("mean-decay", p.mean_decay, "Of rmsprop: what remains of the mean square; else 0.99, of caffe2-rmsprop 0.9");
  setting(c, o, "weight-decay", p.weight_decay,
          "Of the optimizers adamw, lion and lamb: times the rate, the share that weights lose");
  setting(c, o, "clip", p.clip, "Largest norm of all gradients together; 0: off");
  setting(c, o, "dp-clip", p.dp_clip, "Private training: the largest norm of the gradient of one stream of the batch");
  setting(c, o, "dp-noise", p.dp_noise, "Deviation of the noise that their sum gets, as a multiple of --dp-clip");
  setting(c, o, "dp-delta", o.options.dp_delta, "The probability for which the epsilon that is printed may not hold");
  setting(c, o, "reduce", p.reduce,
          "Of several ranks: the type in which gradients are added up over them, float32 for their own, or bfloat16")
      ->check(CLI::IsMember(reduction_names()));
  setting(
      c, o, "batch-norm", p.batch_norm,
      "Of several ranks: whether BatchNorm and SpatialBN measure each rank's part of a batch (by-rank) or all of it "
      "(synchronized)")
      ->check(CLI::IsMember(batch_norm_names()));
  setting(c, o, "learning", o.options.learning,
          "How gradients reach over the batches of a stream: bptt (not at all), rtrl (exact), snap1 or eprop")
      ->check(CLI::IsMember(learning_names()));
  setting(c, o, "precision", o.options.precision,
          "What the net computes in: float32, bfloat16 or float16; parameters stay float32")
      ->check(CLI::IsMember(precision_names()));
  setting(c, o, "loss-scale", o.options.loss_scale,
          "What the loss is multiplied by for its gradients: a number, dynamic or none; else dynamic for float16");
  setting(c, o, "batch", o.options.batch,
          "Streams that are read side by side, or samples at a time; else as the net says")
      ->check(whole_number(1));
  setting(c, o, "timesteps", o.options.timesteps, "Length of a batch; else as the net says")->check(whole_number(1));
  setting(c, o, "validate-every", o.options.validate_every, "Iterations; else five times in the run")
      ->check(whole_number(1));
  setting(c, o, "checkpoint-every", o.options.checkpoint_every, "Iterations; else with each validation")
      ->check(whole_number(1));
  setting(c, o, "patience", o.options.patience,
          "Validations without a better one after which the run ends; else it goes on")
      ->check(whole_number(1));
  setting(c, o, "seed", o.options.seed, "Seed of all random draws");
}

}  // namespace

void add_train_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a net on a text, arrays or tables");
  auto o = std::make_shared<TrainCommand>();  // shared with the callback, which runs after this returns
  command->option_defaults()->always_capture_default();
  command->add_option("FILE", o->file, "The net, with the argument stepnet.model")->required();
  auto* text = command->add_option("--text", o->options.text, "The text to train on")->default_str("");
  auto* data = command
                   ->add_option("--data", o->options.data,
                                "Samples to train on: an array or a table that has columns which the model names; may "
                                "be repeated")
                   ->allow_extra_args(false)
                   ->type_name("NAME=FILE.npy|FILE.csv|NAME=FILE.csv:COLUMN,...|...")
                   ->excludes(text);
  command->add_option("--held-out-data", o->options.held_out_data, "Samples that are only predicted; else by --holdout")
      ->allow_extra_args(false)
      ->type_name("as --data")
      ->needs(data);
  auto* iterations = command->add_option("--iterations", o->options.iterations, "Length of the run in iterations")
                         ->check(whole_number(1))
                         ->default_str("");
  auto* seconds = command->add_option("--seconds", o->options.seconds, "Length of the run in seconds, about")
                      ->check(number_above(0))
                      ->default_str("")
                      ->excludes(iterations);
  command->add_option("--epochs", o->options.epochs, "Length of the run: how often it has every sample")
      ->check(whole_number(1))
      ->default_str("")
      ->excludes(iterations)
      ->excludes(seconds)
      ->needs(data);
  add_settings(*command, *o);
  command->add_option("--out", o->options.out, "Folder for checkpoints and metrics; made if it is not there");
  command->add_flag("--resume", o->options.resume, "Go on from the last checkpoint in --out");
  command
      ->add_option("--memory-budget", o->options.memory_budget,
                   "The most memory that a training step may take, such as 200M; what has no room is computed again")
      ->transform(byte_count())
      ->type_name("BYTES")
      ->default_str("");
  add_offload_option(*command, o->options.offload);
  add_root_option(*command, o->root);
  command->add_option("--metrics", o->options.metrics, "File of JSON lines; else metrics.jsonl in --out");
  command->add_option("--tensorboard", o->options.tensorboard,
                      "Folder for an event file, which TensorBoard shows; made if it is not there");
  command
      ->add_option("--threads", o->threads,
                   "Threads to use; 0: one per core, or of several ranks on a machine each its share of the cores")
      ->check(whole_number(0, 1024));
  command
      ->add_option("--timeout", o->timeout,
                   "Seconds that a rank waits for others before it fails; else STEPNET_TIMEOUT_SEC of the environment, "
                   "or 300")
      ->check(number_above(0))
      ->type_name("SECONDS")
      ->default_str("");
  command->add_flag("--shard-optimizer", o->options.optimizer.shard,
                    "Of several ranks: each keeps the optimizer's state of its part of the parameters only");
  command
      ->add_option(
          "--pipeline", o->options.pipeline,
          "Of several ranks: each has some of the recurrent layers, on all of the batch, and runs them in so many "
          "blocks of timesteps, behind the rank before it")
      ->check(whole_number(1))
      ->type_name("BLOCKS")
      ->default_str("");
  command->add_option("--device", o->device, "Where to run: auto, cpu or cuda")
      ->transform(CLI::CheckedTransformer(device_names()).description(""))
      ->default_str("auto");
  command->add_flag("--tf32", o->tf32, kTf32Help);
  command->add_flag("--keep-all", o->options.keep_all, "Let no intermediates share memory");
  add_strict_option(*command, o->strict);
  command->add_flag("--quiet", o->quiet, "Print the last line only");
  command->add_flag("--detect-anomaly", o->options.detect_anomaly, kDetectAnomalyHelp);
  command->add_flag("--profile", o->profile, "Print a table of time, bytes and memory per operator at the end");
  command->callback([o] { o->run(); });
}

}  // namespace stepnet::tools
