// The beam search of tools/examples/tasks/reversal_beam.pbtxt, a net, against what reversal.pbtxt says of sequences
// that are read with a teacher: greedy with one beam, and exact with beams for all sequences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "recurrent/train/beam_search.h"
#include "recurrent/train/model.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "tests/core/temp_folder.h"
#include "tools/source_path.h"

namespace stepnet::testing::beam_net_test {
namespace {

constexpr int kClasses = 13, kStart = 1, kEnd = 2;
using Tokens = std::vector<int>;

std::string example(const std::string& name) { return read_all(source_path("tools/examples/tasks/" + name)); }

std::string with_beams(int beams) {
  const std::string five = "beams\" i: 5 } arg { name: \"states\" ints: 1 ints: -1 ints: 5";
  std::string text = example("reversal_beam.pbtxt");
  const size_t at = text.find(five);
  EXPECT_NE(at, text.npos);
  return text.replace(at, five.size(),
                      fmt::format("beams\" i: {0} }} arg {{ name: \"states\" ints: 1 ints: -1 ints: {0}", beams));
}

// Sequences as columns, [longest, samples].
Tensor columns_of(const std::vector<Tokens>& sequences) {
  size_t longest = 0;
  for (const Tokens& tokens : sequences) longest = std::max(longest, tokens.size());
  const auto samples = static_cast<int64_t>(sequences.size());
  Tensor columns = Tensor::zeros(DType::int32, {static_cast<int64_t>(longest), samples});
  for (size_t s = 0; s < sequences.size(); ++s)
    for (size_t t = 0; t < sequences[s].size(); ++t)
      columns.data<int32_t>()[t * sequences.size() + s] = sequences[s][t];
  return columns;
}

class BeamNet : public ::testing::TestWithParam<uint64_t> {
 protected:
  BeamNet() {
    RunContext run;
    run.seed = GetParam();
    run_net_once(teacher_.init, parameters_, run);
    for (const char* name : {"numbers", "W_x", "W_h", "W"}) {  // so that some sequences are far more probable
      Tensor& tensor = parameters_.tensor(name);
      for (float& value : tensor.span<float>()) value *= 3;
    }
  }

  static void feed(Workspace& blobs, const std::vector<Tokens>& from) {
    blobs.create_local("number").tensor() = columns_of(from);
    Tensor lengths = Tensor::empty(DType::int32, {static_cast<int64_t>(from.size())});
    for (size_t s = 0; s < from.size(); ++s) lengths.data<int32_t>()[s] = static_cast<int32_t>(from[s].size());
    blobs.create_local("lengths").tensor() = lengths;
  }

  // The logarithms of the probabilities of each sample's next token after each of those that it has read, [T, B, 13].
  std::vector<double> read(const std::vector<Tokens>& from, const std::vector<Tokens>& tokens) {
    Workspace blobs(&parameters_);
    feed(blobs, from);
    blobs.create_local("read").tensor() = columns_of(tokens);
    RunContext run;
    run_net_once(needed_for(expanded_forward(teacher_, Mode::evaluate), "logits", {}), blobs, run);
    const Tensor& logits = blobs.fetch("logits");
    std::vector<double> scores(logits.span<float>().begin(), logits.span<float>().end());
    log_softmax(scores, kClasses);
    return scores;
  }

  struct Said {
    std::vector<Tokens> best;    // up to the end
    std::vector<double> scores;  // [samples, beams]
  };
  Said say(const std::vector<Tokens>& from, int beams) {
    const Model model = read_model(parse_net_text(with_beams(beams), "beam"));
    Workspace blobs(&parameters_);
    feed(blobs, from);
    RunContext run;
    run_net_once(needed_for(expanded_forward(model, Mode::evaluate), "best", {"scores"}), blobs, run);
    const Tensor &best = blobs.fetch("best"), &scores = blobs.fetch("scores");
    const auto samples = static_cast<int64_t>(from.size());
    EXPECT_EQ(best.dim(1), samples);
    EXPECT_EQ(scores.shape(), Shape({1, samples, beams}));
    Said said{{}, {scores.span<float>().begin(), scores.span<float>().end()}};
    for (int64_t s = 0; s < samples; ++s) {
      Tokens& tokens = said.best.emplace_back();
      for (int64_t t = 0; t < best.dim(0); ++t) {
        const int64_t token = best.data<int64_t>()[t * samples + s];
        EXPECT_EQ(token == -1, !tokens.empty() && tokens.back() == kEnd);
        if (token < 0) break;
        tokens.push_back(static_cast<int>(token));
      }
    }
    return said;
  }

  Model teacher_ = read_model(parse_net_text(example("reversal.pbtxt"), "reversal"));
  Workspace parameters_;
};

TEST_P(BeamNet, OneBeamIsGreedy) {
  const std::vector<Tokens> from = {{7, 3, 12, 5}, {4}, {9, 9, 10}, {6, 11, 3, 8}};
  std::vector<Tokens> tokens(from.size());
  std::vector<double> sums(from.size(), 0);
  for (int t = 0; t < 5; ++t) {
    std::vector<Tokens> seen = tokens;
    for (Tokens& one : seen) {
      one.insert(one.begin(), kStart);
      one.resize(static_cast<size_t>(t) + 1);
    }
    const std::vector<double> scores = read(from, seen);
    for (size_t s = 0; s < from.size(); ++s) {
      if (!tokens[s].empty() && tokens[s].back() == kEnd) continue;
      const auto row = scores.begin() + static_cast<ptrdiff_t>((t * from.size() + s) * kClasses);
      const auto best = std::max_element(row, row + kClasses);
      tokens[s].push_back(static_cast<int>(best - row));
      sums[s] += *best;
    }
  }
  const Said said = say(from, 1);
  EXPECT_EQ(said.best, tokens);
  for (size_t s = 0; s < from.size(); ++s) EXPECT_NEAR(said.scores[s], sums[s], 1e-4);
}

// All sequences of at most three tokens that are whole: with the end, or three of them.
std::vector<Tokens> all_sequences() {
  std::vector<Tokens> all = {{kEnd}};
  for (int a = 0; a < kClasses; ++a) {
    if (a == kEnd) continue;
    all.push_back({a, kEnd});
    for (int b = 0; b < kClasses; ++b)
      for (int c = 0; c < kClasses && b != kEnd; ++c) all.push_back({a, b, c});
  }
  return all;
}

TEST_P(BeamNet, WithBeamsForAllSequencesItIsExact) {
  const Tokens from = {5, 9};
  const std::vector<Tokens> all = all_sequences();
  std::vector<Tokens> seen = all;
  for (Tokens& one : seen) {
    one.insert(one.begin(), kStart);
    one.resize(3);
  }
  const std::vector<double> scores = read(std::vector<Tokens>(all.size(), from), seen);
  std::vector<double> sums(all.size(), 0);
  for (size_t s = 0; s < all.size(); ++s)
    for (size_t t = 0; t < all[s].size(); ++t)
      sums[s] += scores[(t * all.size() + s) * kClasses + static_cast<size_t>(all[s][t])];
  double total = 0;
  for (const double sum : sums) total += std::exp(sum);
  EXPECT_NEAR(total, 1, 1e-4);  // no sequence is missing
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, std::greater<>(), [&](size_t i) { return sums[i]; });
  constexpr int kBeams = 1 + 12 + 12 * 12;  // whole sequences and beginnings of two tokens
  const Said said = say({from, {8, 3}}, kBeams);
  EXPECT_EQ(said.best.front(), all[order.front()]);
  for (size_t k = 0; k < kBeams; ++k) EXPECT_NEAR(said.scores[k], sums[order[k]], 1e-3) << k;
}

TEST_P(BeamNet, MoreBeamsFindNothingLessProbable) {
  const std::vector<Tokens> from = {{7, 3, 12, 5}, {4}, {9, 9, 10}};
  const Said few = say(from, 1), some = say(from, 40);
  for (size_t s = 0; s < from.size(); ++s) EXPECT_GE(some.scores[s * 40], few.scores[s] - 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Seeds, BeamNet, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace stepnet::testing::beam_net_test
