#include "recurrent/train/beam_search.h"

#include <algorithm>
#include <cmath>

#include "stepnet/error.h"

namespace stepnet {
namespace {

// A live hypothesis and one more token.
struct Continuation {
  double sum;  // log P of all its tokens
  double own;  // of the last one
  int parent;  // the live hypothesis
  int token;
};

// Adding rounds, so that two tokens of one hypothesis may get equal sums; their own values then decide.
bool better(const Continuation& a, const Continuation& b) {
  if (a.sum != b.sum) return a.sum > b.sum;
  if (a.parent != b.parent) return a.parent < b.parent;
  return a.own != b.own ? a.own > b.own : a.token < b.token;
}

class Search {
 public:
  Search(const BeamOptions& options, size_t vocabulary) : options_(options), vocabulary_(vocabulary) {}

  // Continues the live hypotheses by what the step function said of them.
  void extend(std::span<const double> log_p);
  bool over() const;
  std::span<const int> parents() const { return steps_.back().parents; }
  std::span<const int> tokens() const { return steps_.back().tokens; }
  std::vector<Hypothesis> take();

 private:
  // The last tokens of the live hypotheses, and their rows in the step before.
  struct Step {
    std::vector<int> parents, tokens;
  };

  void rank_continuations(std::span<const double> log_p);
  bool stops(const Continuation& c) const;
  std::vector<int> tokens_of(int row) const;
  double score(double sum, size_t tokens) const {
    return sum == 0 ? 0 : sum / std::pow((5.0 + static_cast<double>(tokens)) / 6.0, options_.length_penalty);
  }
  void add_done(int row, double sum, const int* last_token);

  const BeamOptions& options_;
  size_t vocabulary_;
  std::vector<Step> steps_;
  std::vector<double> live_ = {0};  // log P of the live hypotheses, best first
  std::vector<Continuation> continuations_;
  std::vector<Hypothesis> done_;  // best first
};

void Search::rank_continuations(std::span<const double> log_p) {
  if (log_p.size() != live_.size() * vocabulary_)
    fail("the step gave {} log-probabilities for {} hypotheses and {} tokens", log_p.size(), live_.size(), vocabulary_);
  continuations_.clear();
  for (size_t row = 0; row < live_.size(); ++row)
    for (size_t token = 0; token < vocabulary_; ++token) {
      const double own = log_p[row * vocabulary_ + token];
      if (!(own <= 0)) fail("the step gave the log-probability {}", own);
      if (!std::isinf(own))
        continuations_.push_back({live_[row] + own, own, static_cast<int>(row), static_cast<int>(token)});
    }
  // Only one continuation of each hypothesis can stop, so no more than these are looked at.
  const size_t needed = static_cast<size_t>(options_.beams) + (options_.stop.empty() ? 0 : live_.size());
  const auto middle = continuations_.begin() + static_cast<int64_t>(std::min(needed, continuations_.size()));
  std::partial_sort(continuations_.begin(), middle, continuations_.end(), better);
  continuations_.erase(middle, continuations_.end());
}

void Search::extend(std::span<const double> log_p) {
  rank_continuations(log_p);
  Step next;
  std::vector<double> live;
  for (const Continuation& c : continuations_) {
    if (live.size() == static_cast<size_t>(options_.beams)) break;
    if (stops(c)) {
      add_done(c.parent, c.sum, &c.token);
      continue;
    }
    live.push_back(c.sum);
    next.parents.push_back(c.parent);
    next.tokens.push_back(c.token);
  }
  steps_.push_back(std::move(next));
  live_ = std::move(live);
}

bool Search::stops(const Continuation& c) const {
  const std::vector<int>& stop = options_.stop;
  if (stop.empty() || c.token != stop.back() || steps_.size() + 1 < stop.size()) return false;
  int row = c.parent;
  for (size_t i = 1; i < stop.size(); ++i) {
    const Step& step = steps_[steps_.size() - i];
    if (step.tokens[row] != stop[stop.size() - 1 - i]) return false;
    row = step.parents[row];
  }
  return true;
}

std::vector<int> Search::tokens_of(int row) const {
  std::vector<int> tokens(steps_.size());
  for (size_t i = steps_.size(); i-- > 0; row = steps_[i].parents[row]) tokens[i] = steps_[i].tokens[row];
  return tokens;
}

// Live hypothesis `row`, with one more token if it stops with that.
void Search::add_done(int row, double sum, const int* last_token) {
  const double s = score(sum, steps_.size() + (last_token ? 1 : 0));
  const auto place = std::ranges::upper_bound(done_, s, std::greater(), &Hypothesis::score);
  const auto beams = static_cast<size_t>(options_.beams);
  if (place == done_.end() && done_.size() == beams) return;
  Hypothesis h{tokens_of(row), sum, s, last_token != nullptr};
  if (last_token) h.tokens.push_back(*last_token);
  done_.insert(place, std::move(h));
  if (done_.size() > beams) done_.pop_back();
}

bool Search::over() const {
  if (live_.empty() || static_cast<int64_t>(steps_.size()) >= options_.length) return true;
  const auto beams = static_cast<size_t>(options_.beams);
  if (done_.size() < beams) return false;
  // More tokens only lower the sum, and the longest sequence is divided by most.
  return done_[beams - 1].score >= score(live_[0], static_cast<size_t>(options_.length));
}

std::vector<Hypothesis> Search::take() {
  for (size_t row = 0; row < live_.size(); ++row) add_done(static_cast<int>(row), live_[row], nullptr);
  return std::move(done_);
}

void check_options(const BeamOptions& o, size_t vocabulary) {
  require(o.beams >= 1, "a beam search needs at least 1 beam, but has {}", o.beams);
  require(o.length >= 0, "the length must be at least 0, but is {}", o.length);
  require(std::isfinite(o.length_penalty) && o.length_penalty >= 0, "the length penalty must be at least 0, but is {}",
          o.length_penalty);
  require(vocabulary >= 1, "a beam search needs at least 1 token, but has {}", vocabulary);
  for (const int token : o.stop)
    require(token >= 0 && static_cast<size_t>(token) < vocabulary, "the stop sequence has token {}, but there are {}",
            token, vocabulary);
}

}  // namespace

std::vector<Hypothesis> beam_search(std::span<const double> first, const BeamStep& step, const BeamOptions& options) {
  check_options(options, first.size());
  Search search(options, first.size());
  const auto ends = [&] { return search.over() || (options.go_on && !options.go_on()); };
  if (ends()) return search.take();
  for (search.extend(first); !ends();) search.extend(step(search.parents(), search.tokens()));
  return search.take();
}

void log_softmax(std::span<double> scores, size_t row) {
  for (size_t begin = 0; begin < scores.size(); begin += row) {
    const std::span<double> s = scores.subspan(begin, row);
    const double highest = *std::ranges::max_element(s);
    double sum = 0;
    for (const double x : s) sum += std::exp(x - highest);
    const double total = highest + std::log(sum);
    for (double& x : s) x -= total;
  }
}

}  // namespace stepnet
