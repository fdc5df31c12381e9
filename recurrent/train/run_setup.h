// What a training run is made of before it starts: the text in its two parts, and the facts that a checkpoint keeps.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "core/io/text_stream.h"
#include "core/operator/op_spec.h"
#include "recurrent/train/model.h"
#include "recurrent/train/run_folder.h"
#include "recurrent/train/train_options.h"

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
void add_facts(const Model& model, const TrainOptions& options, const TrainingText& text, Checkpoint& checkpoint);
std::map<std::string, std::string> saved_settings(const Checkpoint& checkpoint);
void check_same_model(const Model& model, const Checkpoint& checkpoint);  // throws Error if the net is another
// The model that was trained. Throws Error if its init net does more than fill tensors, because a checkpoint need not
// be trusted.
Model saved_model(const Checkpoint& checkpoint);
// Whether an operator of this type makes tensors of its arguments, of the shape that an input says, and by chance, and
// does nothing else: its kernels are on tensors, every input may be left out, and it has no side effects.
bool only_fills(const OpSpec& spec);
Vocabulary saved_vocabulary(const Checkpoint& checkpoint);

}  // namespace stepnet
