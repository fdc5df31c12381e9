// Derivatives of networks beyond the first, and forward mode through them: all example cells.
#include <gtest/gtest.h>

#include "recurrent/form/short_form.h"
#include "stepnet/gradient_check.h"
#include "tests/recurrent/cell_files.h"

namespace stepnet::testing::second_order_test {
namespace {

GradientSubject subject_of(const std::string& name) {
  GradientSubject subject{cell_net(name), {}, {}, {}, {}, {}};
  for (const auto& [feed, value] : cell_feeds(
           name, DType::float64, {{'T', 3}, {'B', 2}, {'I', 2}, {'H', 3}, {'P', 2}, {'D', 2}, {'S', 4}, {'A', 3}})) {
    subject.feeds[feed] = value;
    if (value.dtype() == DType::float64) subject.inputs.push_back(feed);
  }
  subject.outputs = {subject.net.external_output().begin(), subject.net.external_output().end()};
  subject.net.clear_external_output();
  expand_recurrent(subject.net);
  return subject;
}

class HigherOrder : public ::testing::TestWithParam<CellFile> {};

TEST_P(HigherOrder, GradientsOfGradients) {
  GradientCheckOptions options;
  options.order = 3;
  options.directions = 1;
  EXPECT_EQ(check_gradients(subject_of(GetParam().name), options).str(), "");
}

TEST_P(HigherOrder, ForwardMode) {
  GradientCheckOptions options;
  options.forward = true;
  options.order = 3;
  options.directions = 1;
  EXPECT_EQ(check_gradients(subject_of(GetParam().name), options).str(), "");
}

INSTANTIATE_TEST_SUITE_P(Examples, HigherOrder, ::testing::ValuesIn(cell_files()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stepnet::testing::second_order_test
