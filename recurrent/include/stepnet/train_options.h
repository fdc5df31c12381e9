// Options of a training run, and those of them that a run keeps for its whole life.
//
// Threads: value types.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "stepnet/file_place.h"
#include "stepnet/tensor.h"

namespace stepnet {

class Profiler;

struct OptimizerOptions {
  std::string optimizer = "adam";  // one of optimizer_names()
  double lr = 0.003;               // always positive, whatever sign the operator wants
  // Of the operator LearningRate; or
  //   cosine        half a cosine from the rate to 0 at the end of the run
  //   warmupCosine  the same after a warm-up that begins at 0
  //   oneCycle      in a line from a 25th of the rate to all of it in the first 30% of the run, then half a cosine to a
  //                 10,000th of where it began. Source: L. N. Smith and N. Topin, Super-convergence, 2018
  //   plateau       it is multiplied by lr_gamma after each lr_patience validations in a row that are not the best one
  std::string lr_policy = "fixed";
  double lr_gamma = 0.5;       // step, exp, inv
  double lr_power = 1;         // inv, poly
  int64_t lr_stepsize = 1000;  // step
  int64_t lr_warmup = 100;     // linearWarmup, warmupCosine: iterations
  int64_t lr_patience = 2;     // plateau: validations
  double momentum = 0.9;       // momentum, nesterov
  // Below 0: the optimizer's own, see own_numbers.
  double beta1 = -1, beta2 = -1;  // adam, adamw, lion, nadam, lamb
  double epsilon = -1;            // adam, adamw, adagrad, rmsprop, nadam, lamb
  double mean_decay = -1;         // rmsprop: how much of the mean square remains
  double weight_decay = 0.01;     // adamw, lion, lamb
  // What remains in each step of the parameters' running average, which is validated, sampled and exported in their
  // place; 0: there is none.
  double average = 0;
  int64_t accumulate = 1;  // batches whose gradients' mean an iteration uses
  double clip = 5;         // of the norm of all gradients together; 0: off
  // Private training: the norm that the gradient of each stream of the batch is clipped at, and how much noise the
  // clipped gradients' sum gets, as a multiple of that; 0: off. The loss is the mean of the streams' losses.
  double dp_clip = 0, dp_noise = 0;
  double loss_scale = 0;      // gradients are those of the loss times this, and divided by it; 0: they are the loss's
  bool dynamic_scale = true;  // the scale is halved by a step whose gradients overflow, doubled by 2000 that do not
  // Of several ranks: the type in which gradients are added up over them, float32 for their own or bfloat16, and
  // whether each rank keeps the optimizer's state of its part of the parameters only. And whether BatchNorm and
  // SpatialBN measure the part of the batch that their rank has (by-rank), or all of it (synchronized).
  std::string reduce = "float32";
  bool shard = false;
  std::string batch_norm = "by-rank";
};

std::vector<std::string> optimizer_names();
std::vector<std::string> reduction_names();   // of OptimizerOptions::reduce
std::vector<std::string> batch_norm_names();  // of OptimizerOptions::batch_norm

// The same with numbers in place of those that are the optimizer's own: PyTorch's defaults, and of those whose names
// begin with caffe2- an epsilon of 1e-8 and a mean that keeps 0.9.
OptimizerOptions own_numbers(OptimizerOptions options);

// Throws Error on an unknown optimizer or a number out of range. Policies are checked by their operator.
void check_optimizer(const OptimizerOptions& options);

class Ranks;

struct TrainOptions {
  std::string text;  // path of the training text
  // In place of a text, for models with data: where their columns are (core/data/column.h), and those of samples that
  // are only predicted.
  std::vector<std::string> data, held_out_data;
  // Columns in memory, by name, beside those of `data`: their first dimensions count samples. They are not to change
  // during the run. What is held out of them is a share or a fold.
  std::map<std::string, Tensor> arrays;
  // Of the samples of an epoch: shuffled, given, bucketed or streams (core/data/sample_batches.h); "": streams for a
  // model that carries states from batch to batch, which takes no other, else shuffled.
  std::string order;
  // What tells which validation is the best one: loss, or one of the model's metrics.
  std::string best = "loss";
  double holdout = 0.05;   // share of the text or the samples, at its end, that is only predicted; 0: none
  std::string fold;        // of samples, in place of that share: "I/N", the I-th of N parts; "": the share
  int64_t iterations = 0;  // of the whole run; 0: as `seconds` or `epochs` say
  int64_t epochs = 0;      // of samples: a run that has each of them so often
  double seconds = 0;      // a run that ends near this time; the number of iterations is fixed after 2 s
  OptimizerOptions optimizer;
  double dp_delta = 1e-5;  // of private training: the probability for which its epsilon may be exceeded
  // How gradients reach over the windows of timesteps that a stream is read in: bptt (truncated backpropagation: not at
  // all), rtrl, snap1 or eprop.
  std::string learning = "bptt";
  std::string precision = "float32";  // that the forward net computes in: float32, bfloat16, float16
  std::string loss_scale;             // "dynamic", "none" or a number; "": dynamic for float16, else none
  int64_t batch = 0, timesteps = 0;   // 0: the model's
  int64_t validate_every = 0;         // iterations; 0: five times in the run
  int64_t checkpoint_every = 0;       // 0: with each validation
  int64_t patience = 0;               // validations without a better one after which the run ends; 0: it goes on
  std::string out;                    // folder of the run; "": nothing is written
  bool resume = false;                // go on from the folder's last checkpoint
  uint64_t seed = 1;
  bool keep_all = false;    // intermediates stay until the next step, each in memory of its own
  std::string metrics;      // path of a file of JSON lines; "": metrics.jsonl in the folder
  std::string tensorboard;  // folder for event files; empty: none

  // When resuming, settings come from the run; those named here (as by settings_of) must agree with it.
  std::set<std::string> given;
  int64_t memory_budget = 0;  // the most bytes that tensors may take in a training step; 0: what the machine has
  std::string offload;  // folder for what recurrent networks keep for their backward passes; "": it stays in memory
  const std::atomic<bool>* stop = nullptr;     // set by a signal: the running iteration is the last
  const std::atomic<int64_t>* save = nullptr;  // how often a signal asked for a checkpoint, behind the iteration
  Profiler* profiler = nullptr;
  bool detect_anomaly = false;  // name the operator that makes the first value that is not finite; slow
  FileRootPtr files;            // below which the nets may open files; null: anywhere
  // The processes that train together (recurrent/train/ranks.h), each on its part of every batch; the first one writes
  // what is written. Null: this process alone.
  std::shared_ptr<const Ranks> ranks;
  // In so many blocks of timesteps a stack of recurrent layers runs, of which each process has some, and all of every
  // batch (recurrent/train/wavefront.h); 0: processes have parts of the batch.
  int64_t pipeline = 0;
};

std::vector<std::string> learning_names();
// The names of precisions, and which type one is; throws Error.
std::vector<std::string> precision_names();
DType precision_type(const std::string& name);
// Sets the optimizer's loss scale as the other options say; throws Error.
void choose_loss_scale(TrainOptions& options);

// The options that the arithmetic and the rhythm of a run depend on, as text.
std::map<std::string, std::string> settings_of(const TrainOptions& options);
// Takes the settings over; throws Error if one that is given differs, or one is missing or no number.
void take_settings(const std::map<std::string, std::string>& settings, TrainOptions& options);

// Whether it is trained on samples, not on a text.
bool has_samples(const TrainOptions& options);

// Throws Error on a number out of range, before any work is done.
void check_options(const TrainOptions& options);

}  // namespace stepnet
