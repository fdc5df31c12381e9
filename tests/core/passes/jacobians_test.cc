#include "core/passes/jacobians.h"

#include <gtest/gtest.h>

#include "core/gradcheck/examples.h"
#include "core/gradcheck/runs.h"
#include "core/net/dataflow.h"
#include "stepnet/op_spec.h"
#include "tests/core/passes/jacobian_rows.h"
#include "tests/core/random_nets.h"
#include "tests/core/temp_folder.h"

namespace stepnet::testing::jacobians_test {
namespace {

class JacobianOf : public ::testing::TestWithParam<std::string> {};

std::string name_of(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

// Of first derivatives, and where there are some, of second ones.
TEST_P(JacobianOf, ExamplesIsThatOfItsRows) {
  const TempFolder folder;
  const OpSpec& spec = op_spec(GetParam());
  RowCounts counts;
  for (size_t i = 0; i < spec.examples.size(); ++i) {
    SCOPED_TRACE(fmt::format("example {}", i + 1));
    const OpExample& example = spec.examples[i];
    GradientSubject subject = example_subject(spec, example, 1, folder.path());
    if (subject.outputs.empty() || subject.inputs.empty()) continue;
    EXPECT_EQ(compare_jacobians(subject, counts), "");
    GradientSubject gradients;
    try {
      gradients = gradients_as_subject(subject, MovedRuns(subject, 1).weights());
    } catch (const Error&) {
      continue;  // it depends on nothing
    }
    std::erase_if(gradients.inputs, [&](const std::string& input) { return !refusal(gradients, input).empty(); });
    if (gradients.inputs.empty()) continue;
    EXPECT_EQ(compare_jacobians(gradients, counts), "") << "of its gradients";
  }
}
INSTANTIATE_TEST_SUITE_P(Operators, JacobianOf, ::testing::ValuesIn(op_types()), name_of);

TEST(Jacobian, OfRandomNetsIsThatOfItsRows) {
  RowCounts counts;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const RandomNet r = random_net(seed);
    for (const int64_t batch : r.batches) {
      if (batch > 10) continue;
      GradientSubject subject{.net = r.net, .feeds = {}, .outputs = r.targets, .inputs = {}};
      for (const NetFeed& feed : r.feeds) subject.feeds[feed.name] = feed_value(feed, batch, seed);
      const std::set<std::string> written = written_names(r.net);
      const auto given = [&](const std::string& name) { return std::ranges::count(r.given, name) > 0; };
      for (const std::string& name : r.wanted)
        if (subject.feeds.count(name) > 0 && written.count(name) == 0 && !given(name)) subject.inputs.push_back(name);
      if (subject.inputs.empty()) continue;
      EXPECT_EQ(compare_jacobians(subject, counts), "") << "seed " << seed << ", batch " << batch;
    }
  }
  EXPECT_GT(counts.jacobians, 300) << counts.refused << " were refused";
}

}  // namespace
}  // namespace stepnet::testing::jacobians_test
