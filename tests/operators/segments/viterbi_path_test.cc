// ViterbiPath against all paths, and against what Caffe2 1.10 gives.
#include <cmath>

#include "tests/operators/op_test.h"

namespace stepnet::testing::viterbi_path_test {
namespace {

const OperatorDef kPath = make_op("ViterbiPath", {"P", "T"}, {"path"});

// The best of all paths, of which there are labels^steps.
std::vector<int32_t> naive(const Tensor& predictions, const Tensor& transitions) {
  const int64_t steps = predictions.dim(0), labels = predictions.dim(1);
  int64_t paths = 1;
  for (int64_t n = 0; n < steps; ++n) paths *= labels;
  std::vector<int32_t> best(static_cast<size_t>(steps)), path = best;
  double most = -HUGE_VAL;
  for (int64_t number = 0; number < paths; ++number) {
    double score = 0;
    for (int64_t n = 0, rest = number; n < steps; ++n, rest /= labels) {
      path[n] = static_cast<int32_t>(rest % labels);
      score += predictions.data<double>()[n * labels + path[n]];
      if (n > 0) score += transitions.data<double>()[path[n - 1] * labels + path[n]];
    }
    if (score > most) most = score, best = path;
  }
  return best;
}

TEST(ViterbiPath, IsTheBestOfAllPaths) {
  for (uint64_t seed = 1; seed < 20; ++seed)
    for (const auto& [steps, labels] : {std::pair{1, 3}, {2, 2}, {6, 3}, {4, 1}}) {
      const Tensor p = normal<double>({steps, labels}, seed), t = normal<double>({labels, labels}, seed + 50);
      const auto best = naive(p, t);
      const Tensor wanted = Tensor::of<int32_t>({steps}, std::span<const int32_t>(best));
      EXPECT_EQ(compare(run_op_on(kPath, {{"P", p}, {"T", t}})[0], wanted, 0), "") << seed;
    }
}

TEST(ViterbiPath, IsThatOfThePublicFormat) {
  const Feeds feeds = {{"P", Tensor::of<float>({3, 3}, {1, 2, 3, 4, 1, 1, 0, 5, 1})},
                       {"T", Tensor::of<float>({3, 3}, {0, 3, 1, 0, 0, 4, 2, 0, 0})}};
  EXPECT_EQ(compare(run_op_on(kPath, feeds)[0], Tensor::of<int32_t>({3}, {2, 0, 1}), 0), "");
}

TEST(ViterbiPath, BadInputIsNamed) {
  const auto error = [](const Shape& p, const Shape& t) {
    return error_of([&] { run_op_on(kPath, {{"P", normal<float>(p)}, {"T", normal<float>(t)}}); });
  };
  EXPECT_NE(error({3}, {3, 3}).find("predictions must be [N, D] for at least one label, but is [3]"),
            std::string::npos);
  EXPECT_NE(error({3, 0}, {0, 0}).find("for at least one label, but is [3, 0]"), std::string::npos);
  EXPECT_NE(error({3, 2}, {3, 3}).find("transitions is [3, 3], but predictions [3, 2] has 2 labels"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::viterbi_path_test
