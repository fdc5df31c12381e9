// The operators over sorted segments: values that Caffe2 computed, gradients, and what they refuse.
#include <cmath>

#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::sorted_segment_range_test {
namespace {

const std::vector<std::string> kKinds = {"Sum", "Mean", "Max", "LogSumExp", "LogMeanExp"};

OperatorDef forward(const std::string& kind) { return make_op("SortedSegmentRange" + kind, {"D", "I"}, {"Y"}); }
OperatorDef gradient(const std::string& kind) {
  return make_op("SortedSegmentRange" + kind + "Gradient", {"D", "Y", "d", "I"}, {"dD"});
}

Feeds recorded_feeds() {
  return {{"D", Tensor::of<float>({5, 2}, {1.5F, -2, 0.25F, 1, 3, -1, 0.5F, 0.5F, -0.75F, 2})},
          {"I", Tensor::of<int32_t>({5}, {0, 0, 1, 2, 2})}};
}

struct Recorded {
  const char* kind;
  std::vector<float> y, dx;  // dx of gradients 1, -2, 0.5, 3, 2, -1
};

const Recorded kRecorded[] = {
    {"Sum", {1.75F, -1, 3, -1, -0.25F, 2.5F}, {1, -2, 1, -2, 0.5F, 3, 2, -1, 2, -1}},
    {"Mean", {0.875F, -0.5F, 3, -1, -0.125F, 1.25F}, {0.5F, -1, 0.5F, -1, 0.5F, 3, 1, -0.5F, 1, -0.5F}},
    {"Max", {1.5F, 1, 3, -1, 0.5F, 2}, {1, 0, 0, -2, 0.5F, 3, 2, 0, 0, -1}},
    {"LogSumExp",
     {1.75192904F, 1.04858732F, 3, -1, 0.751929045F, 2.20141339F},
     {0.777299881F, -0.0948517472F, 0.222700149F, -1.90514827F, 0.5F, 3, 1.55459976F, -0.182425499F, 0.445400298F,
      -0.817574382F}},
    {"LogMeanExp",
     {1.05878186F, 0.35544014F, 3, -1, 0.0587818623F, 1.50826621F},
     {0.777299881F, -0.0948517472F, 0.222700149F, -1.90514827F, 0.5F, 3, 1.55459976F, -0.182425499F, 0.445400298F,
      -0.817574382F}},
};

TEST(SortedSegmentRange, AreThoseOfCaffe2) {
  for (const Recorded& r : kRecorded) {
    Feeds feeds = recorded_feeds();
    const Tensor y = run_op_on(forward(r.kind), feeds)[0];
    EXPECT_EQ(compare(y, Tensor::of<float>({3, 2}, r.y), 1e-6), "") << r.kind;
    feeds.emplace_back("Y", y);
    feeds.emplace_back("d", Tensor::of<float>({3, 2}, {1, -2, 0.5F, 3, 2, -1}));
    EXPECT_EQ(compare(run_op_on(gradient(r.kind), feeds)[0], Tensor::of<float>({5, 2}, r.dx), 1e-6), "") << r.kind;
  }
}

TEST(SortedSegmentRange, Gradients) {
  for (const std::string& kind : kKinds)
    for (const auto& [shape, ids] : std::vector<std::pair<Shape, std::vector<int32_t>>>{
             {{5, 2}, {0, 0, 1, 2, 2}}, {{1}, {0}}, {{4, 1, 2}, {0, 0, 0, 0}}, {{0, 2}, {}}, {{2, 0}, {0, 1}}}) {
      const Feeds feeds = {{"D", normal<double>(shape)},
                           {"I", Tensor::of<int32_t>({shape[0]}, std::span<const int32_t>(ids))}};
      EXPECT_EQ(check_gradient(forward(kind), feeds, {"D"}), "") << kind << shape.str();
    }
}

TEST(SortedSegmentRange, GradientsOfSumsAndMeansReadTheIdsAlone) {
  for (const std::string& kind : kKinds) {
    const bool linear = kind == "Sum" || kind == "Mean";
    EXPECT_EQ(gradient_reads(forward(kind), "D"), linear ? "I" : "D I Y") << kind;
  }
}

TEST(SortedSegmentRange, LargeExponentsStayFinite) {
  const Feeds feeds = {{"D", Tensor::of<float>({4}, {3000, 3000, -HUGE_VALF, -HUGE_VALF})},
                       {"I", Tensor::of<int64_t>({4}, {0, 0, 1, 1})}};
  const Tensor y = run_op_on(forward("LogSumExp"), feeds)[0];
  EXPECT_EQ(y.data<float>()[0], 3000 + std::log(2.0F));
  EXPECT_EQ(y.data<float>()[1], -HUGE_VALF);
}

TEST(SortedSegmentRange, BadIdsAreNamed) {
  const auto error = [](const std::vector<int32_t>& ids) {
    const std::string text = error_of([&] {
      run_op_on(forward("Sum"),
                {{"D", normal<float>({3, 2})},
                 {"I", Tensor::of<int32_t>({static_cast<int64_t>(ids.size())}, std::span<const int32_t>(ids))}});
    });
    return text.substr(0, text.find('\n'));
  };
  const std::string name = "SortedSegmentRangeSum: ";
  EXPECT_EQ(error({1, 1, 2}), name + "segment id 0 is 1, but the first segment is 0");
  EXPECT_EQ(error({0, 2, 2}), name + "segment id 1 is 2, but must be 0 or 1, as the one before is 0");
  EXPECT_EQ(error({0, 1, 0}), name + "segment id 2 is 0, but must be 1 or 2, as the one before is 1");
  EXPECT_EQ(error({0, 1}), name + "DATA [3, 2] has 3 rows, but SEGMENT_IDS 2");
}

}  // namespace
}  // namespace stepnet::testing::sorted_segment_range_test
