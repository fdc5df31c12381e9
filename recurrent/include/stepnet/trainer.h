// Trainer: a whole training run of a model on a text or on samples, as `stepnet train` does it.
//
// It holds out a part, takes the vocabulary of a text from the rest, trains, validates, writes metrics and checkpoints,
// and can go on from a checkpoint: a resumed run ends in the same bits as one that was never stopped, on the same
// number of threads. Threads: one thread at a time; options.stop may be set from anywhere, a signal handler too.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/proto/net.pb.h"
#include "stepnet/train_options.h"

namespace stepnet {

struct TrainProgress {
  int64_t iteration = 0;  // finished
  int64_t total = 0;      // 0 while the number of iterations is not fixed yet
  double loss = 0;        // of the iteration; of a text, in nats per byte
  double learning_rate = 0;
  double chars_per_second = 0;    // of the last iterations, of a text
  double samples_per_second = 0;  // the same of samples; 0: it is a text
  double seconds = 0;             // of the run so far, earlier sessions included
  double seconds_left = 0;        // an estimate; less than 0 if there is none
};

struct ValidationResult {
  int64_t iteration = 0;
  double loss = 0;  // the mean over the held-out part; of a text, in nats per byte
  bool best = false;
  std::vector<std::pair<std::string, double>> metrics = {};  // of samples, as the model names them
};

// Called in the training thread; any may be empty.
struct TrainEvents {
  std::function<void(const TrainProgress&)> iteration;
  std::function<void(const ValidationResult&)> validation;
  std::function<void(const std::string&)> note;  // a sentence for people
  std::function<void(const std::string&)> warn;  // RunContext::warn of the iterations
};

struct TrainResult {
  int64_t iteration = 0, total = 0;
  bool finished = false;  // false: stopped before the last iteration
  double loss = 0;        // of the last iteration
  // Of the held-out part; of a text, in nats per byte. Nothing if there was no validation.
  std::optional<double> validation_loss, best_loss;
  std::optional<double> best_metric = {};  // the one that tells which validation is best, if not the loss
  std::vector<std::pair<std::string, double>> metrics = {};  // of the last validation
  double seconds = 0;
};

class Trainer {
 public:
  // Checks and prepares everything, so that what a user did wrong is said before training starts. Throws Error.
  Trainer(const NetDef& net, TrainOptions options, TrainEvents events = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  TrainResult run();

  // The options in force, with what the model or a resumed run decides filled in.
  const TrainOptions& options() const;
  int64_t parameter_count() const;
  bool of_text() const;
  int64_t vocabulary_size() const;                               // of a text
  int64_t training_bytes() const, validation_bytes() const;      // of a text
  int64_t training_samples() const, validation_samples() const;  // of samples
  int64_t iteration() const;                                     // finished

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stepnet
