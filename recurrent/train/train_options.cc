#include "stepnet/train_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/data/sample_batches.h"
#include "recurrent/form/sensitivities.h"
#include "recurrent/train/sample_data.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

// Settings that checkpoints of older versions do not have; what they stand for did not exist then.
const std::set<std::string> kAddedLater = {
    "weight-decay", "precision", "loss-scale",  "dp-clip", "dp-noise",   "dp-delta", "mean-decay", "learning",  "order",
    "patience",     "best",      "lr-patience", "average", "accumulate", "fold",     "reduce",     "batch-norm"};

// One list for reading and writing: calls f(name, member) for each setting.
template <class Options, class F>
void each_setting(Options& o, F f) {
  f("holdout", o.holdout);
  f("fold", o.fold);
  f("optimizer", o.optimizer.optimizer);
  f("lr", o.optimizer.lr);
  f("lr-policy", o.optimizer.lr_policy);
  f("lr-gamma", o.optimizer.lr_gamma);
  f("lr-power", o.optimizer.lr_power);
  f("lr-stepsize", o.optimizer.lr_stepsize);
  f("lr-warmup", o.optimizer.lr_warmup);
  f("lr-patience", o.optimizer.lr_patience);
  f("average", o.optimizer.average);
  f("accumulate", o.optimizer.accumulate);
  f("momentum", o.optimizer.momentum);
  f("beta1", o.optimizer.beta1);
  f("beta2", o.optimizer.beta2);
  f("epsilon", o.optimizer.epsilon);
  f("mean-decay", o.optimizer.mean_decay);
  f("weight-decay", o.optimizer.weight_decay);
  f("clip", o.optimizer.clip);
  f("dp-clip", o.optimizer.dp_clip);
  f("dp-noise", o.optimizer.dp_noise);
  f("dp-delta", o.dp_delta);
  f("reduce", o.optimizer.reduce);
  f("batch-norm", o.optimizer.batch_norm);
  f("batch", o.batch);
  f("timesteps", o.timesteps);
  f("validate-every", o.validate_every);
  f("checkpoint-every", o.checkpoint_every);
  f("seed", o.seed);
  f("precision", o.precision);
  f("loss-scale", o.loss_scale);
  f("learning", o.learning);
  f("order", o.order);
  f("best", o.best);
  f("patience", o.patience);
}

std::string to_setting(const std::string& value) { return value; }
template <class T>
std::string to_setting(T value) {
  return fmt::format("{}", value);  // the shortest text that reads back to the same bits
}

void from_setting(const std::string&, const std::string& text, std::string& value) { value = text; }
template <class T>
void from_setting(const std::string& name, const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error == std::errc() && end == text.data() + text.size(), "the run's {} is \"{}\", which is no number", name,
          text);
}

constexpr const char* kTruncated = "bptt";
constexpr double kFirstScale = 65536;  // of a dynamic one

}  // namespace

std::vector<std::string> learning_names() {
  std::vector<std::string> names = learning_rule_names();
  names.insert(names.begin(), kTruncated);
  return names;
}

std::vector<std::string> precision_names() { return {"float32", "bfloat16", "float16"}; }

DType precision_type(const std::string& name) {
  const std::vector<std::string> known = precision_names();
  require(std::ranges::count(known, name) > 0, "there is no precision \"{}\"; there are {}.{}", name,
          fmt::join(known, ", "), suggest(name, known));
  return name == "float16" ? DType::float16 : name == "bfloat16" ? DType::bfloat16 : DType::float32;
}

void choose_loss_scale(TrainOptions& o) {
  const bool dynamic = o.loss_scale == "dynamic" || (o.loss_scale.empty() && o.precision == "float16");
  o.optimizer.dynamic_scale = dynamic;
  o.optimizer.loss_scale = dynamic ? kFirstScale : 0;
  if (dynamic || o.loss_scale.empty() || o.loss_scale == "none") return;
  double& scale = o.optimizer.loss_scale;
  const char* end = o.loss_scale.data() + o.loss_scale.size();
  const auto [rest, error] = std::from_chars(o.loss_scale.data(), end, scale);
  require(error == std::errc() && rest == end && std::isfinite(scale) && scale > 0 && scale < 3e38,
          "the scale of the loss must be dynamic, none or a number above 0, but is \"{}\"", o.loss_scale);
}

std::map<std::string, std::string> settings_of(const TrainOptions& options) {
  std::map<std::string, std::string> settings;
  each_setting(options, [&](const char* name, const auto& value) { settings[name] = to_setting(value); });
  return settings;
}

void take_settings(const std::map<std::string, std::string>& settings, TrainOptions& options) {
  static const std::map<std::string, std::string> first = settings_of(TrainOptions());
  each_setting(options, [&](const std::string& name, auto& value) {
    const auto found = settings.find(name);
    require(found != settings.end() || kAddedLater.count(name) > 0, "the checkpoint does not say the run's {}", name);
    const std::string& saved = found == settings.end() ? first.at(name) : found->second;
    if (const std::string now = to_setting(value); options.given.count(name) > 0 && now != saved)
      throw Error(fmt::format("the run has {} {}, but now {} is asked for", name, saved.empty() ? "none" : saved,
                              now.empty() ? "none" : now),
                  fmt::format("leave out --{}, or start another run", name));
    from_setting(name, saved, value);
  });
}

namespace {

// What a run that carries sensitivities cannot have.
void check_learning(const TrainOptions& o) {
  const std::vector<std::string> known = learning_names();
  require(std::ranges::count(known, o.learning) > 0, "there is no way of learning \"{}\"; there are {}.{}", o.learning,
          fmt::join(known, ", "), suggest(o.learning, known));
  if (o.learning == kTruncated) return;
  const auto refuse = [&](bool given, const char* option) {
    if (given)
      throw Error(fmt::format("learning by {} does not go together with {}", o.learning, option),
                  fmt::format("leave out {}, or learn by {}", option, kTruncated));
  };
  refuse(o.precision != "float32", "a precision other than float32");
  refuse(o.memory_budget > 0, "a memory budget");
  refuse(!o.offload.empty(), "offloading");
  refuse(o.optimizer.accumulate > 1, "gradients of several batches");
  refuse(o.optimizer.dp_clip > 0, "clipping by streams");  // what is carried is of all steps before
}

}  // namespace

bool has_samples(const TrainOptions& o) { return !o.data.empty() || !o.arrays.empty(); }

void check_options(const TrainOptions& o) {
  check_optimizer(o.optimizer);
  precision_type(o.precision);
  require(o.optimizer.dp_clip == 0 || o.precision == "float32", "gradients are told by streams in float32, not in {}",
          o.precision);
  require(o.dp_delta > 0 && o.dp_delta < 1, "delta must be between 0 and 1, but is {}", o.dp_delta);
  check_learning(o);
  require(o.text.empty() == has_samples(o), "{} to train on",
          o.text.empty() ? "no text or data are given" : "a text and data are both given");
  if (!o.order.empty()) sample_order(o.order);
  require(has_samples(o) || (o.held_out_data.empty() && o.epochs == 0 && o.fold.empty()),
          "a text has neither held-out data nor folds nor epochs");
  if (!o.fold.empty()) check_fold(o.fold);
  require(o.arrays.empty() || o.held_out_data.empty(),
          "of arrays in memory a share or a fold is held out, no other data");
  if (!o.fold.empty() && (!o.held_out_data.empty() || o.given.contains("holdout")))
    throw Error("what is held out is given in more than one way", "give a fold, a share or held-out data");
  require(o.epochs >= 0, "the number of epochs must be at least 0, but is {}", o.epochs);
  require((o.iterations > 0) + (o.seconds > 0) + (o.epochs > 0) <= 1, "of iterations, seconds and epochs one is given");
  require(o.holdout >= 0 && o.holdout < 1, "the held-out share must be from 0 to less than 1, but is {}", o.holdout);
  require(o.iterations >= 0, "the number of iterations must be at least 0, but is {}", o.iterations);
  require(std::isfinite(o.seconds) && o.seconds >= 0, "the seconds must be at least 0, but are {}", o.seconds);
  if (o.iterations == 0 && o.seconds == 0 && o.epochs == 0 && !o.resume)
    throw Error("nothing says how long to train",
                !has_samples(o) ? "give --iterations or --seconds" : "give --epochs, --iterations or --seconds");
  require(o.memory_budget >= 0, "the memory budget must be more than 0 bytes, but is {}", o.memory_budget);
  require(o.batch >= 0, "the batch must be at least 1, but is {}", o.batch);
  require(o.timesteps >= 0, "the number of timesteps must be at least 1, but is {}", o.timesteps);
  require(o.validate_every >= 0, "the iterations between validations must be at least 1, but are {}", o.validate_every);
  require(o.checkpoint_every >= 0, "the iterations between checkpoints must be at least 1, but are {}",
          o.checkpoint_every);
  require(o.pipeline >= 0, "the blocks of timesteps that layers run by must be at least 1, but are {}", o.pipeline);
  require(o.patience >= 0, "the patience must be at least 0 validations, but is {}", o.patience);
  require(!o.resume || !o.out.empty(), "resuming needs the folder of the run");
}

}  // namespace stepnet
