// Text for training: in its two parts for a run, with the facts that a checkpoint keeps of them, and as a database of
// batches for plans that read TensorProtos.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "core/io/text_stream.h"
#include "recurrent/train/model.h"
#include "recurrent/train/run_folder.h"
#include "stepnet/op_spec.h"
#include "stepnet/train_options.h"

namespace stepnet {

struct TrainingText {
  Vocabulary vocabulary;
  std::string training, validation;            // tokens; validation is empty if nothing is held out
  std::string training_name, validation_name;  // for messages
  std::string fingerprint;                     // of the whole text
};

// Reads the text, holds out its end, and takes the vocabulary from the rest, or from the checkpoint of the run that is
// resumed (null: none). Throws Error: unreadable or empty text, a byte that is not in the vocabulary, another text than
// the run's.
TrainingText load_training_text(const TrainOptions& options, const Checkpoint* resumed);

// Adds to a checkpoint what a later session and sampling need to know; and reads it again.
void add_facts(const Model& model, const TrainOptions& options, Checkpoint& checkpoint);
void add_text(const TrainingText& text, Checkpoint& checkpoint);
std::map<std::string, std::string> saved_settings(const Checkpoint& checkpoint);
void check_same_model(const Model& model, const Checkpoint& checkpoint);  // throws Error if the net is another
// The model that was trained. Throws Error if its init net does more than fill tensors, because a checkpoint need not
// be trusted.
Model saved_model(const Checkpoint& checkpoint);
// Whether an operator of this type makes tensors of its arguments, of the shape that an input says, and by chance, and
// does nothing else: its kernels are on tensors, every input may be left out, and it has no side effects.
bool only_fills(const OpSpec& spec);
Vocabulary saved_vocabulary(const Checkpoint& checkpoint);

// A database of training batches. The text is cut into B streams of equal length; record k holds the timesteps k*T ...
// k*T + T - 1 of all streams, so a state that is carried from one record to the next is always the right one. A record
// is a TensorProtos of
//   data    float [T, B, V], one-hot
//   target  int32 [T * B], the bytes that follow
// Bytes are numbered in the order of their values, among those that occur.
struct TextDbOptions {
  std::string db_type = "lmdb";
  int64_t timesteps = 25;
  int64_t batch = 10;
  int64_t width = 0;        // V; 0: as many as different bytes occur
  int64_t max_records = 0;  // 0: all
};

// Returns the number of records. Throws Error: a text that is empty or too short for one record, more different bytes
// than `width`, a database that is already there.
int64_t write_text_db(const std::string& text, const std::string& path, const TextDbOptions& options);

}  // namespace stepnet
