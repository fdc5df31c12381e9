// CTCGreedyDecoder and CTCBeamSearchDecoder against all alignments, and their mistakes.
#include <cmath>
#include <map>

#include "tests/operators/op_test.h"

namespace stepnet::testing::ctc_decoders_test {
namespace {

using Labels = std::vector<int32_t>;

OperatorDef greedy(const std::vector<Argument>& args = {}, bool lengths = false) {
  return make_op("CTCGreedyDecoder", lengths ? std::vector<std::string>{"x", "n"} : std::vector<std::string>{"x"},
                 {"lengths", "values"}, args);
}
OperatorDef beam(const std::vector<Argument>& args = {}, bool lengths = false) {
  return make_op("CTCBeamSearchDecoder", lengths ? std::vector<std::string>{"x", "n"} : std::vector<std::string>{"x"},
                 {"lengths", "values", "shares"}, args);
}

Labels labels_of(const Tensor& t) { return {t.data<int32_t>(), t.data<int32_t>() + t.size()}; }

// Rows of one sample's classes, of which each has its greatest value here.
Tensor rows(const Labels& best, int64_t classes) {
  Tensor x = Tensor::zeros(DType::float32, {static_cast<int64_t>(best.size()), 1, classes});
  for (size_t t = 0; t < best.size(); ++t) x.data<float>()[static_cast<int64_t>(t) * classes + best[t]] = 1;
  return x;
}

TEST(CTCGreedyDecoder, MergesRepetitionsAndDropsBlanks) {
  const Tensor x = rows({1, 1, 0, 1, 2, 2, 0, 0, 2}, 3);
  EXPECT_EQ(labels_of(run_op_on(greedy(), {{"x", x}})[1]), Labels({1, 1, 2, 2}));
  EXPECT_EQ(labels_of(run_op_on(greedy({make_arg("merge_repeated", false)}), {{"x", x}})[1]),
            Labels({1, 1, 1, 2, 2, 2}));
}

TEST(CTCGreedyDecoder, OfSeveralSamples) {
  Tensor x = Tensor::zeros(DType::float64, {3, 3, 3});
  const int32_t best[3][3] = {{1, 2, 0}, {0, 2, 1}, {1, 1, 2}};  // of each timestep
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t b = 0; b < 3; ++b) x.data<double>()[(t * 3 + b) * 3 + best[t][b]] = 1;
  const Tensor n = Tensor::of<int32_t>({3}, {3, 2, 0});
  const std::vector<Tensor> y = run_op_on(greedy({}, true), {{"x", x}, {"n", n}});
  EXPECT_EQ(labels_of(y[0]), Labels({2, 1, 0}));
  EXPECT_EQ(labels_of(y[1]), Labels({1, 1, 2}));
  EXPECT_EQ(run_op_on(greedy(), {{"x", normal<float>({0, 2, 3})}})[1].size(), 0);
}

// The probability of all labels that alignments of sample 0 stand for.
std::map<Labels, double> all_labels(const Tensor& x) {
  const int64_t times = x.dim(0), classes = x.dim(2);
  std::map<Labels, double> shares;
  Labels alignment(static_cast<size_t>(times), 0);
  for (;;) {
    double product = 1;
    Labels labels;
    for (int64_t t = 0; t < times; ++t) {
      product *= x.data<double>()[t * classes + alignment[t]];
      if (alignment[t] != 0 && (t == 0 || alignment[t] != alignment[t - 1])) labels.push_back(alignment[t]);
    }
    shares[labels] += product;
    int64_t t = 0;
    while (t < times && ++alignment[t] == classes) alignment[t++] = 0;
    if (t == times) return shares;
  }
}

// A beam that keeps everything finds the labels of the greatest probabilities, and these.
TEST(CTCBeamSearchDecoder, FindsTheBestOfAllLabels) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Tensor x = uniform<double>({5, 1, 3}, 0.01, 1, seed);
    std::vector<std::pair<double, Labels>> expected;
    for (const auto& [labels, share] : all_labels(x)) expected.emplace_back(-share, labels);
    std::sort(expected.begin(), expected.end());
    const std::vector<Tensor> y = run_op_on(
        beam({make_arg("beam_width", 1000), make_arg("num_candidates", 4), make_arg("prune_threshold", 0.0F)}),
        {{"x", x}});
    Labels values;
    for (int k = 0; k < 4; ++k) {
      values.insert(values.end(), expected[k].second.begin(), expected[k].second.end());
      EXPECT_EQ(y[0].data<int32_t>()[k], static_cast<int32_t>(expected[k].second.size())) << seed;
      EXPECT_NEAR(y[2].data<double>()[k], -expected[k].first, 1e-12) << seed;
    }
    EXPECT_EQ(labels_of(y[1]), values) << seed;
  }
}

// The sum over alignments is another than the best alignment: "1" has 0.4 + 0.24 + 0.24 of them.
TEST(CTCBeamSearchDecoder, SumsOverAlignments) {
  const Tensor x = Tensor::of<double>({2, 1, 2}, {0.6, 0.4, 0.6, 0.4});
  const std::vector<Tensor> y = run_op_on(beam(), {{"x", x}});
  EXPECT_EQ(labels_of(y[1]), Labels({1}));
  EXPECT_NEAR(y[2].data<double>()[0], 0.64, 1e-14);
  EXPECT_EQ(run_op_on(greedy(), {{"x", x}})[1].size(), 0);
}

TEST(CTCBeamSearchDecoder, PrunesClasses) {
  const Tensor x = Tensor::of<double>({1, 1, 3}, {0.3, 0.3, 0.4});
  const auto values = [&](float threshold) {
    return labels_of(run_op_on(beam({make_arg("prune_threshold", threshold)}), {{"x", x}})[1]);
  };
  EXPECT_EQ(values(0.35F), Labels({2}));
  EXPECT_EQ(values(0.5F), Labels({2}));  // all classes, since none is left
}

TEST(CTCBeamSearchDecoder, CandidatesThatAreNotThere) {
  const std::vector<Tensor> y =
      run_op_on(beam({make_arg("num_candidates", 3)}, true),
                {{"x", Tensor::of<float>({1, 2, 1}, {0.5F, 0.25F})}, {"n", Tensor::of<int64_t>({2}, {1, 0})}});
  EXPECT_EQ(labels_of(y[0]), Labels(6, 0));
  EXPECT_EQ(compare(y[2], Tensor::of<float>({6}, {0.5F, 0, 0, 1, 0, 0}), 0), "");
}

// 3,000 timesteps, whose products are no numbers of double.
TEST(CTCBeamSearchDecoder, OfManyTimesteps) {
  Tensor x = Tensor::zeros(DType::float32, {3000, 1, 3});
  for (int64_t t = 0; t < 3000; ++t) {
    const int64_t best = t == 700 ? 1 : t == 2500 ? 2 : 0;
    for (int64_t c = 0; c < 3; ++c) x.data<float>()[t * 3 + c] = c == best ? 0.6F : 0.0005F;
  }
  EXPECT_EQ(labels_of(run_op_on(beam({make_arg("beam_width", 3)}), {{"x", x}})[1]), Labels({1, 2}));
}

TEST(CTCDecoders, MistakesAreNamed) {
  const auto expect = [](const std::string& error, const std::string& part) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  const Tensor x = uniform<float>({3, 2, 2}, 0, 1);
  for (const bool of_beam : {false, true}) {
    const OperatorDef def = of_beam ? beam({}, true) : greedy({}, true);
    expect(error_of([&] {
             run_op_on(def, {{"x", x}, {"n", Tensor::of<int32_t>({2}, {3, 4})}});
           }),
           "SEQ_LEN of sample 1 is 4, but must be in 0..3");
    expect(error_of([&] {
             run_op_on(def, {{"x", x}, {"n", Tensor::of<int32_t>({2}, {-1, 2})}});
           }),
           "SEQ_LEN of sample 0 is -1");
    expect(error_of([&] {
             run_op_on(def, {{"x", x}, {"n", Tensor::of<int32_t>({1}, {2})}});
           }),
           "SEQ_LEN is [1], but must be [2]");
    expect(error_of([&] {
             run_op_on(def, {{"x", normal<float>({3, 2})}, {"n", Tensor::of<int32_t>({2}, {1, 2})}});
           }),
           "INPUTS is [3, 2], but must be [T, B, C]");
  }
  expect(error_of([&] {
           run_op_on(beam({make_arg("num_candidates", 11)}), {{"x", x}});
         }),
         "num_candidates is 11, but the beam_width 10");
  expect(error_of([&] { run_op_on(beam({make_arg("beam_width", 0)}), {{"x", x}}); }), "must be at least 1, but is 0");
}

}  // namespace
}  // namespace stepnet::testing::ctc_decoders_test
