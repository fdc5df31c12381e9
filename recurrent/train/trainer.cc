#include "stepnet/trainer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/autograd/saved/offload_packer.h"
#include "core/compute/threads.h"
#include "core/data/read_ahead.h"
#include "core/estimate/report.h"
#include "recurrent/report/event_graph.h"
#include "recurrent/report/event_log.h"
#include "recurrent/report/metrics.h"
#include "recurrent/train/evaluator.h"
#include "recurrent/train/memory_budget.h"
#include "recurrent/train/model.h"
#include "recurrent/train/ranks.h"
#include "recurrent/train/run_folder.h"
#include "recurrent/train/sample_data.h"
#include "recurrent/train/sample_evaluator.h"
#include "recurrent/train/stepper.h"
#include "recurrent/train/text_batches.h"
#include "recurrent/train/text_corpus.h"
#include "recurrent/train/wavefront.h"
#include "stepnet/profiler.h"

namespace stepnet {
namespace {

// A run for a given time trains this long before it fixes its number of iterations.
constexpr double kCalibrationSeconds = 2;
constexpr int64_t kCalibrationIterations = 4;
// The end of the schedule until then: far away, so that no policy has moved yet.
constexpr int64_t kNoEnd = int64_t{1} << 40;
constexpr int64_t kValidations = 5;                    // in a run, unless the options say otherwise
constexpr const char* kData = "data";                  // what a checkpoint calls the fingerprint of samples
constexpr const char* kBestScore = "best-score";       // what a checkpoint calls the best metric
constexpr const char* kUnsynced = "unsynced-metrics";  // what a checkpoint calls them

// As the net's argument says it; 0 if there is none.
int64_t budget_of(const NetDef& net) {
  for (const Argument& arg : net.arg()) {
    if (arg.name() != "memory_budget_bytes") continue;
    require(arg.has_i() && arg.i() > 0, "\"memory_budget_bytes\" of the net \"{}\" must be a whole number above 0",
            net.name());
    return arg.i();
  }
  return 0;
}

// Nothing where it is not finite, or of a text less than 0, as older checkpoints have it.
std::optional<double> saved_loss(const Checkpoint& saved, const char* name, bool of_text) {
  const double loss = checkpoint_real(saved, name);
  if (!std::isfinite(loss) || (of_text && loss < 0)) return std::nullopt;
  return loss;
}

// Seconds per step: the mean of the first hundred, then a mean over about as many. A session's first step also
// prepares, and says nothing about the others.
class Pace {
 public:
  void add(double seconds) {
    if (steps_++ < 2) {
      seconds_ = seconds;
    } else {
      seconds_ += (seconds - seconds_) / static_cast<double>(std::min<int64_t>(steps_ - 1, 100));
    }
  }
  double seconds() const { return seconds_; }
  int64_t steps() const { return steps_; }

 private:
  int64_t steps_ = 0;
  double seconds_ = 0;
};

}  // namespace

struct Trainer::State {
  State(const NetDef& net, TrainOptions o, TrainEvents e);

  TrainResult run();
  void step();
  std::unique_ptr<BatchSource> open_text(const Model& model, const Checkpoint* saved);
  std::unique_ptr<BatchSource> open_samples(Model& model, const Checkpoint* saved);
  void make_held_out();
  const MetricLink* best_metric() const;
  void require_best() const;
  bool is_best();
  void agree_on_validation();
  bool holds_out() const { return text ? !text->validation.empty() : samples->predicted.size() > 0; }
  void keep_to_budget(Model& model) const;
  void fix_iterations();
  void set_total(int64_t iterations);
  double run_step();
  void validate();
  std::string not_finite() const;
  void require_finite() const;
  void say_last_checkpoint(Error& e) const;
  void save();
  void require_log() const;
  const std::optional<Error>& log_failure() const {
    return board && board->failure() ? board->failure() : metrics->failure();
  }
  void show_on_board();
  GradientFunction shown_gradients();
  Checkpoint checkpoint() const;
  void resume(const Checkpoint& saved);
  void note(const std::string& text) const {
    if (events.note) events.note(text);
  }
  double seconds() const { return seconds_before + now_seconds() - start; }
  bool due(int64_t every) const { return every > 0 && session->iteration() % every == 0; }
  bool gave_up() const { return options.patience > 0 && worse >= options.patience; }
  bool is_first() const { return !options.ranks || options.ranks->is_first(); }
  bool has_stages() const { return options.pipeline > 0; }
  Shard shard() const {
    return options.ranks && !has_stages() ? Shard{options.ranks->rank(), options.ranks->size()} : Shard{};
  }
  std::vector<double> asked_here();
  void look_at_signals();
  void save_as_asked();
  void check_ranks(const Model& model) const;
  void share_batch(Model& model) const;
  void check_stages() const;
  void share_layers(Model& model) const;
  void save_parameters();
  void count_parameters();
  bool finished() const { return (total > 0 && session->iteration() >= total) || gave_up(); }

  TrainOptions options;
  TrainEvents events;
  std::optional<RunFolder> folder;
  std::optional<TrainingText> text;  // or samples
  std::optional<SampleData> samples;
  std::optional<autograd::OffloadPacker> packer;
  std::unique_ptr<TrainingSession> session;
  std::unique_ptr<HeldOut> held_out;  // null: nothing is
  std::unique_ptr<MetricsLog> metrics;
  std::unique_ptr<EventLog> board;  // null: none was asked for

  int64_t total = 0, parameter_count = 0;
  double start = 0, seconds_before = 0;
  Pace pace;
  double loss = 0;
  std::optional<double> validation_loss, best_loss, best_score;
  std::vector<std::pair<std::string, double>> scores;  // of the latest validation
  int64_t worse = 0;                                   // validations since the best one
  int64_t saved_at = -1;
  // What signals have asked for, of any rank.
  bool stopped = false, save_asked = false;
  int64_t saves_seen = 0;
};

Trainer::State::State(const NetDef& net, TrainOptions o, TrainEvents e) : options(std::move(o)), events(std::move(e)) {
  check_options(options);
  Model model = read_model(net);
  require(model.device.kind == DeviceKind::cpu || (options.memory_budget == 0 && options.offload.empty()),
          "budgets and offloading are for training on the CPU");
  Checkpoint saved;
  if (!options.out.empty() && is_first())
    folder.emplace(options.out, options.resume ? RunFolder::Open::existing : RunFolder::Open::fresh);
  if (folder && !folder->note().empty()) note(folder->note());
  if (options.resume) {
    if (folder) {
      LoadedCheckpoint loaded = folder->latest();
      for (const std::string& n : loaded.notes) note(n);
      saved = std::move(loaded.contents);
    }
    if (options.ranks) options.ranks->broadcast(saved);
    check_same_model(model, saved);
    take_settings(saved_settings(saved), options);
  }
  if (options.batch == 0) options.batch = model.batch;
  if (options.timesteps == 0) options.timesteps = model.timesteps;
  model.batch = options.batch;
  share_batch(model);
  model.timesteps = options.timesteps;
  model.files = options.files;
  choose_loss_scale(options);
  total = options.resume && options.iterations == 0 ? checkpoint_int(saved, "total") : options.iterations;
  require(total >= 0, "the checkpoint says that the run has {} iterations", total);
  const Checkpoint* before = options.resume ? &saved : nullptr;
  std::unique_ptr<BatchSource> source = model.data.empty() ? open_text(model, before) : open_samples(model, before);
  use_precision(model, precision_type(options.precision));
  if (!options.offload.empty()) packer.emplace(autograd::OffloadOptions{.folder = options.offload});
  if (options.memory_budget == 0) options.memory_budget = budget_of(model.source);
  check_options(options);  // with what the run and the net say
  check_ranks(model);
  if (has_stages()) share_layers(model);
  if (options.learning != "bptt") model.learning = learning_rule(options.learning);
  if (options.memory_budget > 0) keep_to_budget(model);
  if (model.device.kind == DeviceKind::cpu && !model.ranks) require_training_fits(model, options.optimizer);
  session = std::make_unique<TrainingSession>(model, options.optimizer, std::move(source), options.seed,
                                              total > 0 ? total : kNoEnd, !options.keep_all);
  session->warn_by(events.warn);
  if (options.ranks) session->sum_with_loss([this] { return asked_here(); });
  check_by_running(model, session->parameters(), session->dtype(), text ? text->vocabulary.size() : 0);
  make_held_out();
  if (options.resume) resume(saved);
  count_parameters();
  if (total > 0) set_total(total);
  if (!options.tensorboard.empty() && is_first())
    board = std::make_unique<EventLog>(options.tensorboard, session->iteration(), text ? Unit::byte : Unit::sample);
  if (board && session->iteration() == 0)  // later files of the run leave it as it is
    board->graph(graph_def_of(expanded_forward(session->model(), Mode::evaluate), session->parameter_names()));
  const bool in_folder = options.metrics.empty() && folder;
  const FilePlace lines = in_folder    ? folder->file("metrics.jsonl")
                          : is_first() ? FilePlace(options.metrics)
                                       : FilePlace("");
  const auto unsynced = saved.texts.find(kUnsynced);
  metrics =
      std::make_unique<MetricsLog>(lines, session->iteration(), unsynced == saved.texts.end() ? "" : unsynced->second,
                                   text ? Unit::byte : Unit::sample);
}

std::unique_ptr<BatchSource> Trainer::State::open_text(const Model& model, const Checkpoint* saved) {
  if (options.text.empty())
    throw Error(fmt::format("the net \"{}\" is trained on a text, but data are given", model.source.name()),
                "give a text with --text, or name data in the model");
  text.emplace(load_training_text(options, saved));
  return text_batches(model, TextStreams(text->training, options.batch, options.timesteps, text->training_name),
                      shard());
}

std::unique_ptr<BatchSource> Trainer::State::open_samples(Model& model, const Checkpoint* saved) {
  if (!has_samples(options))
    throw Error(fmt::format("the net \"{}\" is trained on data, but a text is given", model.source.name()),
                "give data with --data");
  samples.emplace(load_samples(model, options));
  if (saved && checkpoint_text(*saved, kData) != samples->fingerprint)
    throw Error(fmt::format("the data ({}) are not those that the run was started with ({})", samples->fingerprint,
                            checkpoint_text(*saved, kData)),
                "give the same data, or start another run");
  // A budget is kept by all batches if they are of one size, and has no room for a second one.
  const bool has_budget = options.memory_budget > 0 || budget_of(model.source) > 0;
  for (std::vector<FedColumn>* columns : {&samples->training, &samples->held_out})
    for (FedColumn& fed : *columns) fed.to_longest = has_budget;
  model.fed = fed_types(samples->training, model.batch);
  if (options.order.empty()) options.order = model.carry.empty() ? "shuffled" : "streams";
  if (!model.carry.empty() && options.order != "streams")
    throw Error(fmt::format("the model carries states from batch to batch, but samples come {}", options.order),
                "leave out --order, which is streams then");
  auto batches = std::make_unique<SampleBatches>(samples->training, samples->trained, options.batch,
                                                 sample_order(options.order), options.seed, shard());
  if (options.epochs > 0 && total == 0) {
    require(!__builtin_mul_overflow(options.epochs, batches->batches(), &total), "{} epochs are too many",
            options.epochs);
    const int64_t together = options.optimizer.accumulate;
    total = total / together + (total % together > 0 ? 1 : 0);
  }
  if (has_budget) return batches;
  return std::make_unique<ReadAhead>(std::move(batches));
}

void Trainer::State::make_held_out() {
  require_best();
  if (!holds_out()) return;
  if (samples)
    held_out = std::make_unique<SampleEvaluator>(session->model(), session->parameters_to_use(), samples->held_out,
                                                 samples->predicted, !options.keep_all);
  else
    held_out =
        std::make_unique<Evaluator>(session->model(), session->parameters_to_use(), session->dtype(), text->validation,
                                    options.batch, options.timesteps, text->validation_name, !options.keep_all);
}

// The metric that tells which validation is best; null: the loss does.
const MetricLink* Trainer::State::best_metric() const {
  if (options.best == "loss") return nullptr;
  const std::vector<MetricLink>& all = session->model().metrics;
  const auto found = std::ranges::find(all, options.best, shown_name);
  return found == all.end() ? nullptr : &*found;
}

void Trainer::State::require_best() const {
  if (options.best == "loss" || (best_metric() && holds_out())) return;
  std::vector<std::string> names = {"loss"};
  for (const MetricLink& metric : session->model().metrics) names.push_back(shown_name(metric));
  throw Error(fmt::format("the best checkpoint is to be the one with the best \"{}\", but {}", options.best,
                          best_metric() ? "nothing is held out" : "the model has no such metric"),
              fmt::format("there are {}", fmt::join(names, ", ")));
}

// What follows from a validation is to be the same on all ranks, also where the net keeps something that each rank has
// of its own, such as a mean over its part of the batches: it follows from what the first one has found.
void Trainer::State::agree_on_validation() {
  if (!options.ranks) return;
  std::vector<double> values = {*validation_loss};
  for (const auto& [name, value] : scores) values.push_back(value);
  if (has_stages() ? !has_loss(session->model()) : !is_first()) std::ranges::fill(values, 0);
  values = options.ranks->sum(values);
  validation_loss = values[0];
  for (size_t i = 0; i < scores.size(); ++i) scores[i].second = values[i + 1];
}

// Whether the validation is better than all before; takes it over if so.
bool Trainer::State::is_best() {
  const MetricLink* metric = best_metric();
  double value = *validation_loss;
  for (const auto& [name, score] : scores)
    if (metric && name == shown_name(*metric)) value = score;
  const bool more = metric && more_is_better(metric->name());
  std::optional<double>& before = metric ? best_score : best_loss;
  if (!std::isfinite(value) || (before && (more ? value <= *before : value >= *before))) return false;
  before = value;
  best_loss = validation_loss;
  return true;
}

void Trainer::State::keep_to_budget(Model& model) const {
  FittedTraining fitted =
      fit_training({.model = model, .optimizer = options.optimizer}, options.memory_budget, holds_out());
  model = std::move(fitted.model);
  give_back_free_memory();  // what the plans took
  if (model.segments.steps == 0 && model.again.segments.empty()) return;
  note(fmt::format("to keep to {}, a step takes {} instead of {}, for {:.1f}% more arithmetic",
                   bytes_text(options.memory_budget), bytes_text(fitted.figures.peak), bytes_text(fitted.in_one.peak),
                   100 * (fitted.figures.flops / fitted.in_one.flops - 1)));
}

void Trainer::State::resume(const Checkpoint& saved) {
  session->restore(saved.tensors);
  if (const std::string found = not_finite(); !found.empty())
    throw Error(fmt::format("{} in the last checkpoint in \"{}\", so the run cannot go on from it", found, options.out),
                "remove that checkpoint, to go on from the one before");
  seconds_before = checkpoint_real(saved, "seconds");
  best_loss = saved_loss(saved, "best-loss", text.has_value());
  validation_loss = saved_loss(saved, "validation-loss", text.has_value());
  loss = checkpoint_real(saved, "loss");
  if (saved.texts.count(kBestScore) > 0) best_score = saved_loss(saved, kBestScore, false);
  if (saved.texts.count("worse") > 0) worse = checkpoint_int(saved, "worse");
  saved_at = session->iteration();
  if (const int64_t before = checkpoint_int(saved, "threads"); before != threads())
    note(fmt::format("the run used {} threads before, now {}: rounding will differ", before, threads()));
}

void Trainer::State::set_total(int64_t iterations) {
  total = iterations;
  if (options.validate_every == 0) options.validate_every = total / kValidations + (total % kValidations != 0 ? 1 : 0);
  if (options.checkpoint_every == 0) options.checkpoint_every = options.validate_every;
}

// So many iterations that the run, its validations included, ends near the given time. At least one is left.
void Trainer::State::fix_iterations() {
  session->let_go_of_memory();
  const double validation = held_out ? held_out->estimate_seconds() : 0;
  const double left = options.seconds - seconds();
  const bool rhythm = options.validate_every > 0;
  const double per_step = pace.seconds() + (rhythm ? validation / static_cast<double>(options.validate_every) : 0);
  const double fixed = rhythm ? validation : validation * kValidations;
  const auto more = static_cast<int64_t>(std::max(1.0, (left - fixed) / per_step));
  set_total(session->iteration() + more);
  session->set_schedule_end(total);
  note(fmt::format("{} iterations will take about {:.0f} s", total, options.seconds));
}

double Trainer::State::run_step() {
  try {
    return session->step(options.profiler, packer ? &*packer : nullptr, options.detect_anomaly, shown_gradients());
  } catch (Error& e) {
    if (e.has("op")) e.add("in", fmt::format("iteration {}", session->iteration() + 1));
    say_last_checkpoint(e);
    throw;
  }
}

void Trainer::State::say_last_checkpoint(Error& e) const {
  if (!folder) return;
  e.add("in", saved_at < 0 ? fmt::format("a run without a checkpoint so far, in \"{}\"", options.out)
                           : fmt::format("a run whose last checkpoint is that of iteration {}, in \"{}\"", saved_at,
                                         options.out));
}

// A line that cannot be written ends the run, at the end of its iteration and with its work saved.
void Trainer::State::require_log() const {
  if (!log_failure()) return;
  Error e = *log_failure();
  say_last_checkpoint(e);
  throw e;
}

// What one rank alone has may be a part of the optimizer's state, so all hear of it.
std::string Trainer::State::not_finite() const {
  std::string found = session->not_finite();
  if (!options.ranks) return found;
  const bool any = options.ranks->sum({found.empty() ? 0.0 : 1.0})[0] > 0;
  return any && found.empty() ? "what another rank has is not finite" : found;
}

// Such a value would stay in all later checkpoints, so the run ends with the last one without it.
void Trainer::State::require_finite() const {
  const std::string found = not_finite();
  if (found.empty()) return;
  Error e(fmt::format("{} after iteration {}; nothing of that is saved", found, session->iteration()), kFiniteFix);
  say_last_checkpoint(e);
  throw e;
}

void Trainer::State::step() {
  const double before = now_seconds();
  loss = run_step();
  const double took = std::max(now_seconds() - before, 1e-9);
  if (session->skipped())
    note(fmt::format("iteration {}: gradients overflowed, so nothing was updated; the loss scale is {:g} now",
                     session->iteration(), session->loss_scale()));
  pace.add(took);
  const auto many =
      static_cast<double>((text ? options.batch * options.timesteps : options.batch) * options.optimizer.accumulate);
  metrics->training(session->iteration(), loss, many / took, session->learning_rate(), seconds());
  if (board) board->training(session->iteration(), loss, many / took, session->learning_rate());
  if (!events.iteration) return;
  TrainProgress p{.iteration = session->iteration(),
                  .total = total,
                  .loss = loss,
                  .learning_rate = session->learning_rate(),
                  .chars_per_second = text ? many / pace.seconds() : 0,
                  .samples_per_second = text ? 0 : many / pace.seconds(),
                  .seconds = seconds(),
                  .seconds_left = -1};
  if (total > 0)
    p.seconds_left = static_cast<double>(total - p.iteration) * pace.seconds();
  else
    p.seconds_left = options.seconds - p.seconds;
  events.iteration(p);
}

void Trainer::State::validate() {
  if (!held_out) return;
  session->let_go_of_memory();
  session->parameters_to_use();
  validation_loss = held_out->loss();
  scores = held_out->scores();
  agree_on_validation();
  metrics->validation(session->iteration(), *validation_loss, scores);
  if (board) show_on_board();
  require_finite();
  const bool best = is_best();
  worse = best ? 0 : worse + 1;
  if (options.optimizer.lr_policy == "plateau" && worse > 0 && worse % options.optimizer.lr_patience == 0) {
    session->multiply_rate(options.optimizer.lr_gamma);
    note(fmt::format("{} validations were no better than the best one, so the rate is multiplied by {:g}", worse,
                     options.optimizer.lr_gamma));
  }
  // Before the next checkpoint names this loss as the best.
  if (best && !options.out.empty()) {
    const Checkpoint contents = checkpoint();
    if (folder) folder->save_best(contents);
  }
  if (events.validation) events.validation({session->iteration(), *validation_loss, best, scores});
  if (gave_up())
    note(fmt::format("{} validations were no better than the best one, so the run ends after iteration {}", worse,
                     session->iteration()));
}

// What takes the next iteration's gradients to the board, if a validation follows it; else nothing.
GradientFunction Trainer::State::shown_gradients() {
  const int64_t next = session->iteration() + 1;
  const bool validates =
      total > 0 && (next >= total || (options.validate_every > 0 && next % options.validate_every == 0));
  if (!board || !held_out || !validates) return {};
  return [this, next](const std::string& name, const Tensor& gradient) { board->gradient(next, name, gradient); };
}

void Trainer::State::show_on_board() {
  board->validation(session->iteration(), *validation_loss, scores);
  for (const std::string& name : session->parameter_names())
    board->parameter(session->iteration(), name, session->parameters().fetch(name));
}

Checkpoint Trainer::State::checkpoint() const {
  Checkpoint s;
  s.tensors = session->save();
  add_facts(session->model(), options, s);
  if (text) add_text(*text, s);
  if (samples) s.texts[kData] = samples->fingerprint;
  if (samples) save_normalization(samples->training, s.tensors);
  s.texts["iteration"] = fmt::format("{}", session->iteration());
  s.texts["total"] = fmt::format("{}", total);
  s.texts["threads"] = fmt::format("{}", threads());
  s.texts["seconds"] = fmt::format("{}", seconds());
  s.texts["loss"] = fmt::format("{}", loss);
  s.texts["validation-loss"] = fmt::format("{}", validation_loss.value_or(NAN));
  s.texts["worse"] = fmt::format("{}", worse);
  s.texts["best-loss"] = fmt::format("{}", best_loss.value_or(NAN));
  if (best_score) s.texts[kBestScore] = fmt::format("{}", *best_score);
  return s;
}

// The lines of the iterations before must outlive whatever the checkpoint outlives.
void Trainer::State::save() {
  if (saved_at == session->iteration()) return;
  require_finite();
  metrics->sync();
  if (options.out.empty()) return;
  Checkpoint contents = checkpoint();
  if (!folder) {
    saved_at = session->iteration();
    return;
  }
  if (!metrics->unsynced().empty()) contents.texts[kUnsynced] = metrics->unsynced();
  folder->save(contents, session->iteration());
  saved_at = session->iteration();
}

// Whether this process is to stop, and whether to save.
std::vector<double> Trainer::State::asked_here() {
  const int64_t before = std::exchange(saves_seen, options.save ? options.save->load() : 0);
  return {(options.stop && *options.stop) || log_failure() ? 1.0 : 0.0, saves_seen > before ? 1.0 : 0.0};
}

// Of several ranks all stop, or save, if one of them has to. They have said so with the loss of their last step, which
// saves a wait in each iteration; so what has come since then is seen an iteration later.
void Trainer::State::look_at_signals() {
  const std::vector<double> asked = options.ranks ? session->summed_with_loss() : asked_here();
  stopped = asked[0] > 0;
  save_asked = save_asked || asked[1] > 0;
}

// A checkpoint between those of the run's own rhythm, in a signal's name.
void Trainer::State::save_as_asked() {
  save_asked = false;
  save();
  note(options.out.empty() ? "a checkpoint was asked for, but no folder was given to keep it in"
                           : fmt::format("the checkpoint of iteration {} was asked for, and is saved", saved_at));
}

// What is not done by several ranks is refused.
void Trainer::State::check_ranks(const Model& model) const {
  if (!options.ranks) return;
  const auto refuse = [&](bool is_asked, const char* what) {
    require(!is_asked, "{} ranks train together, which does not go together with {}", options.ranks->size(), what);
  };
  if (model.device.kind != DeviceKind::cpu) {
    if (!options.ranks->moves(model.device))
      throw Error(fmt::format("{} ranks train together, but tensors of {} cannot be added up over them",
                              options.ranks->size(), model.device),
                  "make their common world for that GPU, as ranks_on does (recurrent/distributed/join_ranks.h)");
    refuse(options.optimizer.shard, "parts of the optimizer's state (--shard-optimizer) on GPUs");
    refuse(options.optimizer.reduce != "float32", "gradients that are added up in another type (--reduce) on GPUs");
    refuse(options.optimizer.batch_norm != "by-rank", "batch norm of all of them (--batch-norm synchronized) on GPUs");
  }
  refuse(options.seconds > 0, "a run for a given time; give it a number of iterations");
  refuse(options.optimizer.dp_clip > 0, "clipping by streams");
  refuse(options.learning != "bptt", "learning rules other than bptt");
  refuse(options.optimizer.shard && !options.tensorboard.empty(),
         "an event file of gradients where each has a part of them (--shard-optimizer)");
}

// What ranks do not do that share layers, or one process that runs them by blocks.
void Trainer::State::check_stages() const {
  const auto refuse = [&](bool is_asked, const char* what) {
    if (is_asked)
      throw Error(fmt::format("layers that run by blocks of timesteps (--pipeline) do not go together with {}", what),
                  "leave out one of the two");
  };
  refuse(options.precision != "float32", "a precision other than float32");
  refuse(options.optimizer.loss_scale > 0, "a scale of the loss");
  refuse(options.optimizer.shard, "an optimizer's state that ranks share (--shard-optimizer)");
  refuse(options.optimizer.reduce != "float32", "gradients that move in another type (--reduce)");
  refuse(options.optimizer.batch_norm != "by-rank",
         "batch norm of several parts of a batch (--batch-norm synchronized)");
  refuse(options.optimizer.dp_clip > 0, "clipping by streams");
  refuse(options.learning != "bptt", "learning rules other than bptt");
  refuse(options.memory_budget > 0, "a memory budget");
  refuse(!options.offload.empty(), "offloading");
  refuse(!options.tensorboard.empty(), "an event file");
}

// Each rank becomes a stage of one pipeline.
void Trainer::State::share_layers(Model& model) const {
  check_stages();
  require(model.device.kind == DeviceKind::cpu, "layers are shared out to ranks on the CPU, not on a GPU");
  const WavefrontPlan plan = plan_wavefront(model, options.ranks ? options.ranks->size() : 1);
  model = wavefront_stage(model, plan, options.ranks ? options.ranks->rank() : 0, options.pipeline);
}

// Each rank has its part of the batch; of states that are carried on all have equally many. Stages have all of it.
void Trainer::State::share_batch(Model& model) const {
  model.ranks = options.ranks;
  if (!options.ranks || has_stages()) return;
  const int64_t ranks = options.ranks->size();
  require(options.batch >= ranks, "a batch of {} has nothing for some of {} ranks", options.batch, ranks);
  if (model.data.empty() || !model.carry.empty())
    if (options.batch % ranks != 0)
      throw Error(fmt::format("{} ranks cannot share a batch of {} streams equally", ranks, options.batch),
                  "make the batch a multiple of the number of processes");
  model.batch = (options.batch + ranks - 1) / ranks;
}

// Of stages those of all, which the first rank writes.
void Trainer::State::save_parameters() {
  Workspace& own = session->parameters_to_use();
  if (!has_stages() || !options.ranks) {
    if (folder) folder->save_parameters(own, session->parameter_names());
    return;
  }
  if (options.out.empty()) return;
  std::map<std::string, Tensor> all;
  for (const std::string& name : session->parameter_names()) all[name] = own.fetch(name);
  options.ranks->collect(all);
  if (!folder) return;
  Workspace whole;
  std::vector<std::string> names;
  for (const auto& [name, value] : all) {
    whole.create_local(name).tensor() = value;
    names.push_back(name);
  }
  folder->save_parameters(whole, names);
}

void Trainer::State::count_parameters() {
  double count = 0;
  for (const std::string& name : session->parameter_names())
    count += static_cast<double>(session->parameters().fetch(name).size());
  if (has_stages() && options.ranks) count = options.ranks->sum({count})[0];
  parameter_count = static_cast<int64_t>(count);
}

TrainResult Trainer::State::run() {
  start = now_seconds();
  while (!finished() && !stopped) {
    step();
    look_at_signals();
    const bool calibrated = pace.steps() >= kCalibrationIterations && seconds() >= kCalibrationSeconds;
    if (total == 0 && (calibrated || stopped)) fix_iterations();
    if (total == 0) continue;
    if (due(options.validate_every) || finished()) validate();
    if (due(options.checkpoint_every) || finished() || stopped || (log_failure() && !options.ranks)) save();
    if (save_asked) save_as_asked();
    if (!options.ranks || stopped || finished()) require_log();
  }
  save_parameters();
  TrainResult result{.iteration = session->iteration(),
                     .total = total,
                     .finished = finished(),
                     .loss = loss,
                     .validation_loss = validation_loss,
                     .best_loss = best_loss,
                     .best_metric = best_score,
                     .metrics = {},
                     .seconds = seconds()};
  result.metrics = scores;
  return result;
}

Trainer::Trainer(const NetDef& net, TrainOptions options, TrainEvents events)
    : state_(std::make_unique<State>(net, std::move(options), std::move(events))) {}
Trainer::~Trainer() = default;

TrainResult Trainer::run() { return state_->run(); }
const TrainOptions& Trainer::options() const { return state_->options; }
bool Trainer::of_text() const { return state_->text.has_value(); }
int64_t Trainer::vocabulary_size() const { return of_text() ? state_->text->vocabulary.size() : 0; }
int64_t Trainer::training_bytes() const { return of_text() ? static_cast<int64_t>(state_->text->training.size()) : 0; }
int64_t Trainer::validation_bytes() const {
  return of_text() ? static_cast<int64_t>(state_->text->validation.size()) : 0;
}
int64_t Trainer::training_samples() const { return of_text() ? 0 : state_->samples->trained.size(); }
int64_t Trainer::validation_samples() const { return of_text() ? 0 : state_->samples->predicted.size(); }
int64_t Trainer::iteration() const { return state_->session->iteration(); }

int64_t Trainer::parameter_count() const { return state_->parameter_count; }

}  // namespace stepnet
