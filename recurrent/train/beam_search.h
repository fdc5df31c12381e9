// Beam search: the most probable sequences of tokens under a model that gives the next token's log-probabilities.
//
// A hypothesis is a sequence with the sum of its tokens' log-probabilities. At every step each live hypothesis is
// continued by every token, and the `beams` most probable continuations live on. One that ends with the stop sequence
// takes no place among them: it is done if it comes before the last that lives on. Hypotheses that are done, and those
// that reach the length, are ranked by
//
//   score = log P / lp,   lp = ((5 + tokens) / 6) ^ length_penalty,
//
// the length normalisation of Wu et al., "Google's Neural Machine Translation System" (2016), equation 14, without its
// coverage term: with a penalty of 0 the score is log P, and a higher penalty favours longer sequences. The search goes
// on until no live hypothesis can score better than the worst of the `beams` best. With as many beams as there are
// sequences it is exact; with one beam and no penalty it is greedy: always the most probable token.
//
// Ties: of continuations with equal sums, the one of the better hypothesis before, then the smaller token; of equal
// scores, the hypothesis that was done first. A token of probability 0 continues nothing.
// Threads: a pure function beside the step function it is given.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace stepnet {

struct BeamOptions {
  int beams = 1;
  int64_t length = 1;             // tokens of a hypothesis, at most
  std::vector<int> stop = {};     // tokens that end a hypothesis; none: only the length does
  double length_penalty = 0;      // at least 0
  std::function<bool()> go_on{};  // asked before every step; false ends the search as the length does
};

struct Hypothesis {
  std::vector<int> tokens;     // with those of the stop sequence
  double log_probability = 0;  // of all tokens
  double score = 0;
  bool stopped = false;  // ends with the stop sequence
};

// One step of the model over a batch of hypotheses: row i goes on from the states of row parents[i] of the batch before
// it with the token tokens[i]. Gives rows of log-probabilities, [tokens.size(), vocabulary], which must stay until the
// next call. Batches grow and shrink; the first call's parents are all row 0.
using BeamStep = std::function<std::span<const double>(std::span<const int> parents, std::span<const int> tokens)>;

// The best hypotheses, at most `beams`, best first. `first`: the log-probabilities of the first token, one per token of
// the vocabulary; read before the first step. Throws Error on options out of range, and on what is no log-probability.
std::vector<Hypothesis> beam_search(std::span<const double> first, const BeamStep& step, const BeamOptions& options);

// log(softmax(scores)) of finite scores, in place, for each `row` elements, at least one.
void log_softmax(std::span<double> scores, size_t row);

}  // namespace stepnet
