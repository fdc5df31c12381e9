// Trainer: a whole training run of a model on a text, as `stepnet train` does it.
//
// It splits the text, takes the vocabulary from the training part, trains, validates, writes metrics and checkpoints,
// and can go on from a checkpoint: a resumed run ends in the same bits as one that was never stopped, on the same
// number of threads. Threads: one thread at a time; options.stop may be set from anywhere, a signal handler too.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "stepnet/proto/net.pb.h"
#include "stepnet/train_options.h"

namespace stepnet {

struct TrainProgress {
  int64_t iteration = 0;  // finished
  int64_t total = 0;      // 0 while the number of iterations is not fixed yet
  double loss = 0;        // of the iteration, in nats per byte
  double learning_rate = 0;
  double chars_per_second = 0;  // of the last iterations
  double seconds = 0;           // of the run so far, earlier sessions included
  double seconds_left = 0;      // an estimate; less than 0 if there is none
};

struct ValidationResult {
  int64_t iteration = 0;
  double loss = 0;  // nats per byte of the held-out part
  bool best = false;
};

// Called in the training thread; any may be empty.
struct TrainEvents {
  std::function<void(const TrainProgress&)> iteration;
  std::function<void(const ValidationResult&)> validation;
  std::function<void(const std::string&)> note;  // a sentence for people
};

struct TrainResult {
  int64_t iteration = 0, total = 0;
  bool finished = false;                        // false: stopped before the last iteration
  double loss = 0;                              // of the last iteration
  double validation_loss = -1, best_loss = -1;  // nats per byte; less than 0 if there was no validation
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
  int64_t vocabulary_size() const;
  int64_t training_bytes() const;
  int64_t validation_bytes() const;
  int64_t iteration() const;  // finished

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stepnet
