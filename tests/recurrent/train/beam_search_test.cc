// Beam search over a small model with a state, against enumeration of all sequences and against a search that has no
// states to mix up: it runs the model over every hypothesis from the start.
#include "recurrent/train/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/core/errors.h"

namespace stepnet::beam_search_test {
namespace {

using testing::error_text;
using Tokens = std::vector<int>;

// A model whose state depends on every token so far, and whose log-probabilities depend on the state.
struct Chain {
  int vocabulary = 3;

  double next_state(double state, int token) const { return std::sin(3.7 * state + 1.3 * token + 0.4); }
  std::vector<double> log_p(double state) const {
    std::vector<double> row(vocabulary);
    for (int i = 0; i < vocabulary; ++i) row[i] = 2 * std::cos(5 * state + 2.1 * i);
    log_softmax(row, row.size());
    return row;
  }
  std::vector<double> log_p_after(const Tokens& tokens) const {
    double state = 0;
    for (const int t : tokens) state = next_state(state, t);
    return log_p(state);
  }
};

// The chain over a batch, with states that are gathered by parent.
std::vector<Hypothesis> search(const Chain& chain, const BeamOptions& options, int* steps = nullptr) {
  std::vector<double> states = {0}, rows;
  const BeamStep step = [&](std::span<const int> parents, std::span<const int> tokens) {
    std::vector<double> next;
    rows.clear();
    for (size_t i = 0; i < tokens.size(); ++i) {
      next.push_back(chain.next_state(states.at(parents[i]), tokens[i]));
      const std::vector<double> row = chain.log_p(next.back());
      rows.insert(rows.end(), row.begin(), row.end());
    }
    states = std::move(next);
    if (steps) ++*steps;
    return std::span<const double>(rows);
  };
  return beam_search(chain.log_p(0), step, options);
}

bool ends_with(const Tokens& tokens, const Tokens& stop) {
  return !stop.empty() && tokens.size() >= stop.size() && std::equal(stop.rbegin(), stop.rend(), tokens.rbegin());
}

Hypothesis made(Tokens tokens, double log_probability, const BeamOptions& o) {
  Hypothesis h{std::move(tokens), log_probability, 0, false};
  h.score = log_probability / std::pow((5.0 + static_cast<double>(h.tokens.size())) / 6.0, o.length_penalty);
  h.stopped = ends_with(h.tokens, o.stop);
  return h;
}

// Every sequence that ends with the stop sequence or at the length.
void enumerate(const Chain& chain, const BeamOptions& o, const Tokens& tokens, double sum,
               std::vector<Hypothesis>& all) {
  if (static_cast<int64_t>(tokens.size()) == o.length || ends_with(tokens, o.stop))
    return all.push_back(made(tokens, sum, o));
  const std::vector<double> log_p = chain.log_p_after(tokens);
  for (int t = 0; t < chain.vocabulary; ++t) {
    Tokens longer = tokens;
    longer.push_back(t);
    enumerate(chain, o, longer, sum + log_p[t], all);
  }
}

std::vector<Hypothesis> best_of(std::vector<Hypothesis> all, int count) {
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  all.resize(std::min<size_t>(all.size(), count));
  return all;
}

// The rule of the header in its plainest form: no early end, no states, no gathering.
std::vector<Hypothesis> plain_search(const Chain& chain, const BeamOptions& o) {
  std::vector<Hypothesis> live = {made({}, 0, o)}, done;
  for (int64_t n = 0; n < o.length; ++n) {
    std::vector<Hypothesis> longer, next;
    for (const Hypothesis& h : live) {
      const std::vector<double> log_p = chain.log_p_after(h.tokens);
      for (int t = 0; t < chain.vocabulary; ++t) {
        Tokens tokens = h.tokens;
        tokens.push_back(t);
        longer.push_back(made(tokens, h.log_probability + log_p[t], o));
      }
    }
    std::stable_sort(longer.begin(), longer.end(),
                     [](const auto& a, const auto& b) { return a.log_probability > b.log_probability; });
    for (const Hypothesis& h : longer) {
      if (next.size() == static_cast<size_t>(o.beams)) break;
      (h.stopped ? done : next).push_back(h);
    }
    live = next;
  }
  done.insert(done.end(), live.begin(), live.end());
  return best_of(done, o.beams);
}

void expect_same(const std::vector<Hypothesis>& found, const std::vector<Hypothesis>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].tokens, expected[i].tokens) << i;
    EXPECT_NEAR(found[i].log_probability, expected[i].log_probability, 1e-12) << i;
    EXPECT_NEAR(found[i].score, expected[i].score, 1e-12) << i;
    EXPECT_EQ(found[i].stopped, expected[i].stopped) << i;
  }
}

const Tokens kStops[] = {{}, {1}, {2, 0}, {1, 1}};
const double kPenalties[] = {0, 0.6, 2};

TEST(BeamSearch, WideEnoughIsExact) {
  const Chain chain;
  for (const Tokens& stop : kStops)
    for (const double penalty : kPenalties)
      for (const int64_t length : {1, 2, 5}) {
        SCOPED_TRACE(fmt::format("length {}, stop of {}, penalty {}", length, stop.size(), penalty));
        const BeamOptions o{243, length, stop, penalty};
        std::vector<Hypothesis> all;
        enumerate(chain, o, {}, 0, all);
        expect_same(search(chain, o), best_of(all, o.beams));
        double total = 0;
        for (const Hypothesis& h : search(chain, o)) total += std::exp(h.log_probability);
        EXPECT_NEAR(total, 1, 1e-12);
      }
}

TEST(BeamSearch, StatesFollowTheirParents) {
  const Chain chain{5};
  for (const Tokens& stop : kStops)
    for (const double penalty : kPenalties)
      for (const int beams : {1, 2, 3, 7, 20}) {
        SCOPED_TRACE(fmt::format("{} beams, stop of {}, penalty {}", beams, stop.size(), penalty));
        const BeamOptions o{beams, 9, stop, penalty};
        expect_same(search(chain, o), plain_search(chain, o));
      }
}

TEST(BeamSearch, OneBeamIsGreedy) {
  for (const int vocabulary : {1, 2, 7}) {
    const Chain chain{vocabulary};
    Tokens greedy;
    for (int i = 0; i < 12; ++i) {
      const std::vector<double> log_p = chain.log_p_after(greedy);
      greedy.push_back(static_cast<int>(std::ranges::max_element(log_p) - log_p.begin()));
    }
    const std::vector<Hypothesis> found = search(chain, {1, 12});
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].tokens, greedy) << vocabulary;
  }
}

TEST(BeamSearch, MoreBeamsThanTokens) {
  const std::vector<Hypothesis> one = search(Chain{3}, {8, 1});
  EXPECT_EQ(one.size(), 3u);
  EXPECT_EQ(search(Chain{3}, {8, 2}).size(), 8u);
  EXPECT_EQ(search(Chain{1}, {8, 4}).size(), 1u);
}

// All tokens equally probable: the smaller ones win.
std::vector<Tokens> of_equals(const BeamOptions& options, int vocabulary) {
  std::vector<double> rows;
  const BeamStep step = [&](std::span<const int> parents, std::span<const int>) {
    rows.assign(parents.size() * vocabulary, -1.0);
    return std::span<const double>(rows);
  };
  std::vector<Tokens> tokens;
  for (const Hypothesis& h : beam_search(std::vector<double>(vocabulary, -1.0), step, options))
    tokens.push_back(h.tokens);
  return tokens;
}

TEST(BeamSearch, TiesGoToTheFirst) {
  EXPECT_EQ(of_equals({1, 3}, 4), (std::vector<Tokens>{{0, 0, 0}}));
  EXPECT_EQ(of_equals({3, 2}, 2), (std::vector<Tokens>{{0, 0}, {0, 1}, {1, 0}}));
  EXPECT_EQ(of_equals({2, 3}, 2), (std::vector<Tokens>{{0, 0, 0}, {0, 0, 1}}));
  // Done in one step or in two, with a penalty that makes both score alike: 1 = 2 / (7 / 6) ^ penalty.
  const double penalty = std::log(2.0) / std::log(7.0 / 6.0);
  EXPECT_EQ(of_equals({2, 2, {0}, penalty + 1e-9}, 2), (std::vector<Tokens>{{1, 0}, {1, 1}}));
  EXPECT_EQ(of_equals({2, 2, {0}, penalty - 1e-9}, 2), (std::vector<Tokens>{{0}, {1, 0}}));
}

TEST(BeamSearch, RoundingMakesNoTies) {
  // After a first token of -1e9 the sums of the second tokens are equal, their own log-probabilities are not.
  const std::vector<double> second = {-1.0 - 1e-9, -1.0};
  const BeamStep step = [&](std::span<const int>, std::span<const int>) { return std::span<const double>(second); };
  const std::vector<Hypothesis> found = beam_search(std::vector<double>{-1e9, -2e9}, step, {1, 2});
  EXPECT_EQ(found.at(0).tokens, (Tokens{0, 1}));
}

TEST(BeamSearch, EndsAsSoonAsNothingBetterCanCome) {
  // With the stop token almost certain, the first step decides.
  Chain chain{3};
  int steps = 0;
  const std::vector<double> first = {std::log(0.98), std::log(0.01), std::log(0.01)};
  const BeamStep step = [&](std::span<const int> parents, std::span<const int>) {
    ++steps;
    EXPECT_EQ(parents.size(), 1u);
    return std::span<const double>(first);
  };
  EXPECT_EQ(beam_search(first, step, {1, 1000, {0}}).at(0).tokens, (Tokens{0}));
  EXPECT_EQ(steps, 0);
  // With a penalty and room enough a longer one could win, so the search must go on.
  EXPECT_EQ(beam_search(first, step, {1, 4, {0}, 1}).at(0).tokens, (Tokens{0}));
  EXPECT_EQ(steps, 0);
  EXPECT_EQ(beam_search(first, step, {1, 5000, {0}, 1}).at(0).tokens, (Tokens{0}));
  EXPECT_GT(steps, 0);
  steps = 0;
  search(chain, {2, 50, {}, 0}, &steps);
  EXPECT_EQ(steps, 49);
}

TEST(BeamSearch, ImpossibleTokensContinueNothing) {
  const double never = -std::numeric_limits<double>::infinity();
  const std::vector<double> first = {never, 0, never};
  const BeamStep none = [&](std::span<const int>, std::span<const int>) { return std::span<const double>(first); };
  const std::vector<Hypothesis> found = beam_search(first, none, {4, 3});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].tokens, (Tokens{1, 1, 1}));
  const std::vector<double> all_never(3, never);
  EXPECT_TRUE(beam_search(all_never, none, {4, 3}).empty());
}

TEST(BeamSearch, CanBeEndedAtAnyStep) {
  int left = 3;
  BeamOptions o{2, 100};
  o.go_on = [&] { return left-- > 0; };
  const std::vector<Hypothesis> found = search(Chain{}, o);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].tokens.size(), 3u);
  expect_same(found, search(Chain{}, {2, 3}));
  expect_same(search(Chain{}, {2, 0, {}, 9000}), {Hypothesis{}});
}

TEST(BeamSearch, BadInput) {
  const Chain chain;
  EXPECT_EQ(error_text([&] { search(chain, {0, 1}); }), "a beam search needs at least 1 beam, but has 0");
  EXPECT_EQ(error_text([&] { search(chain, {1, -1}); }), "the length must be at least 0, but is -1");
  EXPECT_EQ(error_text([&] { search(chain, {1, 1, {}, -0.5}); }), "the length penalty must be at least 0, but is -0.5");
  EXPECT_EQ(error_text([&] { search(chain, {1, 1, {3}}); }), "the stop sequence has token 3, but there are 3");
  EXPECT_EQ(error_text([&] { search(Chain{0}, {1, 1}); }), "a beam search needs at least 1 token, but has 0");
  const std::vector<double> fine = {-1, -2}, bad = {-1, std::nan("")}, three(3, -1.0);
  const auto gives = [](const std::vector<double>& row) {
    return [&row](std::span<const int>, std::span<const int>) { return std::span<const double>(row); };
  };
  EXPECT_EQ(error_text([&] { beam_search(fine, gives(bad), {1, 2}); }), "the step gave the log-probability nan");
  EXPECT_EQ(error_text([&] {
              beam_search(fine, gives(three), {1, 2});
            }),
            "the step gave 3 log-probabilities for 1 hypotheses and 2 tokens");
}

}  // namespace
}  // namespace stepnet::beam_search_test
