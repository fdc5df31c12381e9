// Sampler: text from a trained model, drawn one byte at a time or searched for.
//
// The forward net, pruned to what the scores need, runs on the CPU with T = 1, and its states are carried on. Draws are
// counter-based: the same checkpoint, prompt and seed give the same text. A search runs its beams as the net's batch.
// Threads: one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stepnet/checkpoint.h"
#include "stepnet/file_place.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

struct SampleOptions {
  int64_t length = 300;      // bytes to draw
  double temperature = 0.8;  // 0: always the byte with the highest score
  std::string prompt;        // what the text starts with; "": nothing
  std::string stop;          // the text ends where it has drawn this; "": at its length
  uint64_t seed = 1;
};

struct SearchOptions {
  int beams = 1;
  int64_t length = 300;       // bytes of a text, at most
  double length_penalty = 0;  // see beam_search.h
  std::string prompt, stop;   // as in SampleOptions
};

struct FoundText {
  std::string text;            // without the prompt
  double log_probability = 0;  // of the text behind the prompt
  double score = 0;            // what texts are ranked by: log_probability over the length normalisation
  bool stopped = false;        // ends with the stop text
};

// Throws Error on a number out of range.
void check_options(const SampleOptions& options);

class Sampler {
 public:
  // Model and vocabulary from the checkpoint of a training run. Throws Error if it is not one. A checkpoint may come
  // from anybody: its init net may only fill tensors, and its nets open files below `files` alone, none if that is
  // null.
  explicit Sampler(const Checkpoint& checkpoint, FileRootPtr files = {});
  // The checkpoint's parameters and vocabulary in another net, whose parameters must have the same names and shapes.
  // It opens files as above, and its init net may do anything else.
  Sampler(const NetDef& net, const Checkpoint& checkpoint, FileRootPtr files = {});
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Throws Error: a byte of the prompt or of the stop text that is not in the vocabulary.
  void check_texts(const std::string& prompt, const std::string& stop) const;
  // Gives the drawn bytes, without the prompt, to `emit` one by one, until it returns false. Every call starts with
  // fresh states. Throws Error as check_texts does.
  void sample(const SampleOptions& options, const std::function<bool(char)>& emit);
  // The most probable texts, at most `beams`, best first; what there is of them once `go_on`, where given, says false.
  // Of equal texts the one with the smaller bytes in the vocabulary's order comes first. Throws Error as check_texts.
  std::vector<FoundText> search(const SearchOptions& options, const std::function<bool()>& go_on = {});

 private:
  struct Scorer;
  std::unique_ptr<Scorer> scorer_;
};

// Draws an index with the probability of softmax(scores / temperature), `uniform` in [0, 1) deciding; the highest score
// for temperature 0. Throws Error if a score is not a number.
int draw(std::span<const double> scores, double temperature, double uniform);

}  // namespace stepnet
