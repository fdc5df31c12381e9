// Greedy decoding and beam search with a real net, whose batch the beams are. What a text's probability is says the
// Evaluator, which reads one text as one sequence: no batch, no states to gather.
#include <gtest/gtest.h>

#include <cmath>

#include "recurrent/train/evaluator.h"
#include "recurrent/train/run_folder.h"
#include "recurrent/train/text_corpus.h"
#include "stepnet/sampler.h"
#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"

namespace stepnet::sampler_search_test {
namespace {

using testing::error_text;
using testing::TempFolder;

constexpr int kBytes = 18;  // different ones in the tiny text

class SamplerSearch : public ::testing::Test {
 protected:
  SamplerSearch() {
    testing::write_all(folder_.file("text"), testing::tiny_text());
    TrainOptions o = testing::tiny_options(folder_.file("text"), 60);
    o.out = folder_.file("run");
    Trainer(testing::tiny_net(kBytes), o).run();
    checkpoint_ = load_best(o.out);
    for (const auto& [name, tensor] : checkpoint_.tensors)
      if (name.starts_with("parameter/")) parameters_.tensor(name.substr(10)) = tensor;
  }

  std::vector<FoundText> search(const SearchOptions& options) { return Sampler(checkpoint_).search(options); }
  std::string sample(const SampleOptions& options) {
    std::string text;
    Sampler(checkpoint_).sample(options, [&](char byte) {
      text.push_back(byte);
      return true;
    });
    return text;
  }

  double log_probability(const std::string& text) {
    const std::string tokens = saved_vocabulary(checkpoint_).encode("\n" + text, "it");
    if (tokens.size() < 2) return 0;
    Evaluator evaluator(read_model(testing::tiny_net(kBytes)), parameters_, DType::float32, tokens, 1, 50, "it");
    return -evaluator.loss() * static_cast<double>(evaluator.predicted());
  }
  void expect_probabilities(const std::vector<FoundText>& found, const std::string& prompt) {
    const double before = log_probability(prompt);
    for (const FoundText& f : found)
      EXPECT_NEAR(f.log_probability, log_probability(prompt + f.text) - before, 1e-4) << f.text;
  }

  TempFolder folder_;
  Checkpoint checkpoint_;
  Workspace parameters_;
};

TEST_F(SamplerSearch, ProbabilitiesAreThoseOfTheTextsAlone) {
  for (const int beams : {1, 2, 5, 40}) {
    SCOPED_TRACE(beams);
    const std::vector<FoundText> found = search({beams, 12, 0, "the c", ""});
    ASSERT_EQ(found.size(), static_cast<size_t>(beams));
    expect_probabilities(found, "the c");
    for (size_t i = 1; i < found.size(); ++i) EXPECT_GE(found[i - 1].score, found[i].score);
    for (const FoundText& f : found) {
      EXPECT_EQ(f.text.size(), 12u);
      EXPECT_EQ(f.score, f.log_probability);
      EXPECT_FALSE(f.stopped);
    }
  }
}

TEST_F(SamplerSearch, FindsTheBestOfAllTexts) {
  const std::vector<FoundText> all = search({kBytes * kBytes, 2, 0, "", ""});
  ASSERT_EQ(all.size(), static_cast<size_t>(kBytes * kBytes));
  expect_probabilities(all, "");
  double total = 0;
  for (const FoundText& f : all) total += std::exp(f.log_probability);
  EXPECT_NEAR(total, 1, 1e-6);
  EXPECT_GT(all[0].score, all[1].score);
  EXPECT_EQ(search({6, 2, 0, "", ""})[0].text, all[0].text);
}

TEST_F(SamplerSearch, OneBeamIsGreedy) {
  SampleOptions o;
  o.temperature = 0;
  o.length = 80;
  for (const char* prompt : {"", "the d"}) {
    o.prompt = prompt;
    const std::string greedy = sample(o);
    EXPECT_EQ(greedy.size(), 80u);
    EXPECT_EQ(search({1, 80, 0, prompt, ""}).at(0).text, greedy);
    const double more = search({8, 80, 0, prompt, ""}).at(0).log_probability;
    EXPECT_GE(more, search({1, 80, 0, prompt, ""}).at(0).log_probability);
  }
}

TEST_F(SamplerSearch, StopTexts) {
  const std::vector<FoundText> found = search({4, 60, 0.7, "the ", "on"});
  ASSERT_EQ(found.size(), 4u);
  expect_probabilities(found, "the ");
  for (const FoundText& f : found) {
    const size_t place = f.text.find("on");
    EXPECT_EQ(f.stopped, place != std::string::npos) << f.text;
    EXPECT_TRUE(!f.stopped || place == f.text.size() - 2) << f.text;
    const double bytes = static_cast<double>(f.text.size());
    EXPECT_NEAR(f.score, f.log_probability / std::pow((5 + bytes) / 6, 0.7), 1e-12);
  }
  EXPECT_TRUE(found[0].stopped) << found[0].text;
}

TEST_F(SamplerSearch, DrawnTextsStopToo) {
  SampleOptions o;
  o.temperature = 1.5;
  const std::string whole = sample(o);
  o.stop = whole.substr(20, 3);
  const size_t end = whole.find(o.stop) + 3;
  EXPECT_EQ(sample(o), whole.substr(0, end));
  o.stop = whole + whole;
  EXPECT_EQ(sample(o).substr(0, 100), whole.substr(0, 100));
  // What the prompt ends with is not drawn.
  o.prompt = "the cat";
  o.stop = "t";
  EXPECT_EQ(sample(o).back(), 't');
}

TEST_F(SamplerSearch, BadInput) {
  EXPECT_EQ(error_text([&] { search({0, 5, 0, "", ""}); }), "a beam search needs at least 1 beam, but has 0");
  EXPECT_EQ(error_text([&] { search({2, 5, -1, "", "a"}); }), "the length penalty must be at least 0, but is -1");
  testing::expect_contains(error_text([&] {
                             search({2, 5, 0, "the X", ""});
                           }),
                           "the byte 'X' at offset 4 of the prompt");
  testing::expect_contains(error_text([&] {
                             search({2, 5, 0, "", "aZ"});
                           }),
                           "the byte 'Z' at offset 1 of the stop text");
  SampleOptions o;
  o.stop = "Z";
  testing::expect_contains(error_text([&] { sample(o); }), "the byte 'Z' at offset 0 of the stop text");
}

// The logits of one row only, whatever the batch is.
TEST_F(SamplerSearch, ANetWhoseScoresDoNotFollowTheBatch) {
  std::string net = testing::tiny_net_text(kBytes);
  const std::string fc = R"(output: "logits")";
  net.replace(net.find(fc), fc.size(), R"(output: "every")");
  const std::string loss = R"(op { type: "SoftmaxWithLoss" input: "logits")";
  ASSERT_NE(net.find(loss), std::string::npos) << net;
  net.insert(net.find(loss), R"(op { type: "Slice" input: "every" output: "logits"
    arg { name: "starts" ints: 0 ints: 0 ints: 0 } arg { name: "ends" ints: 1 ints: 1 ints: -1 } })");
  testing::expect_contains(error_text([&] {
                             Sampler(parse_net_text(net, "one.pbtxt"), checkpoint_).search({2, 5, 0, "", ""});
                           }),
                           "the net gives the scores float[1, 1, 18] for a batch of 2 and 18 different bytes");
}

}  // namespace
}  // namespace stepnet::sampler_search_test
