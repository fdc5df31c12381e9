// Sampler: text from a trained model, one byte at a time.
//
// The forward net, pruned to what the scores need, runs with T = 1 and B = 1, and its states are carried on. Draws are
// counter-based: the same checkpoint, prompt and seed give the same text.
// Threads: one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/io/checkpoint.h"
#include "core/io/text_stream.h"
#include "core/net.h"
#include "recurrent/carried_states.h"
#include "recurrent/model.h"

namespace stepnet {

struct SampleOptions {
  int64_t length = 300;      // bytes to draw
  double temperature = 0.8;  // 0: always the byte with the highest score
  std::string prompt;        // what the text starts with; "": nothing
  uint64_t seed = 1;
};

// Throws Error on a number out of range.
void check_options(const SampleOptions& options);

class Sampler {
 public:
  // Model and vocabulary from the checkpoint of a training run. Throws Error if it is not one.
  explicit Sampler(const Checkpoint& checkpoint);
  // The checkpoint's parameters and vocabulary in another net, whose parameters must have the same names and shapes.
  Sampler(const NetDef& net, const Checkpoint& checkpoint);

  // Throws Error: a byte of the prompt that is not in the vocabulary.
  void check_prompt(const std::string& prompt) const { vocabulary_.encode(prompt, "the prompt"); }
  // Gives the drawn bytes, without the prompt, to `emit` one by one, until it returns false. Every call starts with
  // fresh states. Throws Error as check_prompt does.
  void sample(const SampleOptions& options, const std::function<bool(char)>& emit);

 private:
  Sampler(Model model, const Checkpoint& checkpoint);
  void load_parameters(const Checkpoint& checkpoint);
  std::span<const double> scores_after(int token);  // of the next byte, one per byte of the vocabulary

  Model model_;
  Vocabulary vocabulary_;
  Workspace workspace_;
  std::unique_ptr<CarriedStates> states_;
  std::unique_ptr<Net> net_;
  std::vector<double> scores_;
};

// Draws an index with the probability of softmax(scores / temperature), `uniform` in [0, 1) deciding; the highest score
// for temperature 0. Throws Error if a score is not a number.
int draw(std::span<const double> scores, double temperature, double uniform);

}  // namespace stepnet
