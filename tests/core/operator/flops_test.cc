// FLOPs as operators' registrations say them, against a count of the arithmetic that a reference does.
#include <gtest/gtest.h>

#include "core/gradcheck/examples.h"
#include "stepnet/gradients.h"
#include "tests/core/temp_folder.h"
#include "tests/operators/flops_check.h"

namespace stepnet::testing::flops_test {
namespace {

// Adds the gradients of the inputs; false if there are none, or none of this order.
bool differentiate(GradientSubject& subject) {
  if (subject.inputs.empty() || subject.outputs.empty()) return false;
  GradientRequest request;
  request.wanted.insert(subject.inputs.begin(), subject.inputs.end());
  for (const std::string& output : subject.outputs) request.targets.emplace_back(output, "");
  try {
    const GradientResult result = add_gradient_operators(subject.net, request);
    subject.outputs.clear();
    for (const std::string& input : subject.inputs)
      if (const auto found = result.gradients.find(input); found != result.gradients.end())
        if (!found->second.dense.empty()) subject.outputs.push_back(found->second.dense);
  } catch (const Error&) {
    return false;
  }
  return true;
}

class FlopsOf : public ::testing::TestWithParam<std::string> {};

TEST_P(FlopsOf, ExamplesAreAsCounted) {
  const OpSpec& spec = op_spec(GetParam());
  for (const OpExample& example : spec.examples) {
    const TempFolder folder;
    GradientSubject subject = example_subject(spec, example, 1, folder.path());
    int order = 0;
    do EXPECT_EQ(run_counted(subject.net, subject.feeds).problems, "") << subject.net.ShortDebugString();
    while (++order <= 2 && differentiate(subject));
  }
}

std::string name_of(const ::testing::TestParamInfo<std::string>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(Operators, FlopsOf, ::testing::ValuesIn(op_types()), name_of);

}  // namespace
}  // namespace stepnet::testing::flops_test
