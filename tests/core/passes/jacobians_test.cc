#include "core/passes/jacobians.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/gradcheck/examples.h"
#include "core/gradcheck/runs.h"
#include "stepnet/arguments.h"
#include "stepnet/op_spec.h"
#include "tests/core/errors.h"
#include "tests/core/gradient_testing.h"
#include "tests/core/passes/jacobian_rows.h"
#include "tests/core/random_nets.h"
#include "tests/core/temp_folder.h"
#include "tests/operators/op_test.h"

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
    for (const std::string& input : subject.inputs) {  // other outputs of the gradient operator are not wanted then
      GradientSubject alone = subject;
      alone.inputs = {input};
      EXPECT_EQ(compare_jacobians(alone, counts), "") << "of " << input << " alone";
    }
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
      const auto given = [&](const std::string& name) { return std::ranges::count(r.given, name) > 0; };
      for (const std::string& name : r.wanted)
        if (subject.feeds.count(name) > 0 && !given(name)) subject.inputs.push_back(name);
      if (subject.inputs.empty()) continue;
      EXPECT_EQ(compare_jacobians(subject, counts), "") << "seed " << seed << ", batch " << batch;
    }
  }
  EXPECT_GT(counts.jacobians, 300) << counts.refused << " were refused";
}

// Sums to a shape take the arguments of operands that are laid over each other, but none of their rules.
TEST(Jacobian, OfSumsToOneElementIsThatOfItsRows) {
  RowCounts counts;
  for (const char* args : {"", "axis=0", "broadcast=1", "axis=0, broadcast=1"})
    for (const Shape& x : {Shape{2, 3}, {1, 1}, {1}})
      for (const Shape& like : {Shape{}, {1}, {1, 1}, {1, 1, 1}}) {
        SCOPED_TRACE(fmt::format("{} to {} {}", x, like, args));
        GradientSubject subject{
            .net = net_of_lines({"h = Sqr(x)", fmt::format("v = SumReduceLike(h, w) {}", args), "y = Tanh(v)"}),
            .feeds = {},
            .outputs = {"y"},
            .inputs = {"x"}};
        subject.feeds["x"] = normal<double>(x, 1);
        subject.feeds["w"] = normal<double>(like, 2);
        EXPECT_EQ(compare_jacobians(subject, counts), "");
      }
  EXPECT_GT(counts.jacobians, 40);
}

// Nothing is repeated for each row where there are rules, so there are as many operators for any number of them.
TEST(Jacobian, OfLayersIsOnePass) {
  std::vector<int> sizes;
  for (const int64_t outputs : {1, 3, 50}) {
    NetDef net = net_of_lines(kLayers);
    add_jacobian_operators(net, request_of("y", {"x", "W", "b"}, layer_shapes(outputs)));
    sizes.push_back(net.op_size());
  }
  EXPECT_EQ(sizes[1], sizes[2]);
  EXPECT_LE(sizes[0], sizes[1]);
  EXPECT_LT(sizes[1], 70);
}

TEST(Jacobian, OfNothingAndByNothingHasNoElements) {
  for (const auto& [x, y] : {std::pair{Shape{0, 3}, Shape{0}}, {Shape{2, 0}, Shape{2}}}) {
    NetDef net = net_of_lines({"h = Tanh(x)", "y = ReduceSum(h)"});
    *net.mutable_op(1)->add_arg() = make_arg("axes", std::vector<int64_t>{1});
    *net.mutable_op(1)->add_arg() = make_arg("keepdims", 0);
    const auto made = add_jacobian_operators(net, request_of("y", {"x"}, {{"x", x}}));
    Workspace workspace;
    workspace.tensor("x") = Tensor::zeros(DType::float64, x);
    run_once(net, workspace, 1);
    EXPECT_EQ(workspace.fetch(made.at("x")).shape(), x.prepend(y.size()));
    EXPECT_EQ(workspace.fetch(made.at("x")).dtype(), DType::float64);
  }
}

TEST(Jacobian, LeavesNamesOfTheNetAlone) {
  NetDef net = net_of_lines(
      {"x_jacobian = Tanh(x)", "jacobian_rows/given = Sin(x_jacobian)", "y = Mul(x, jacobian_rows/given)"});
  const auto made = add_jacobian_operators(net, request_of("y", {"x"}, {{"x", {3}}}));
  EXPECT_EQ(made.at("x"), "x_jacobian_1");
  Workspace workspace;
  workspace.tensor("x") = normal<double>({3}, 5);
  run_once(net, workspace, 1);
  const Tensor& j = workspace.fetch("x_jacobian_1");
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t k = 0; k < 3; ++k) {
      const double x = workspace.fetch("x").data<double>()[i], t = std::tanh(x);
      const double slope = i == k ? std::sin(t) + x * std::cos(t) * (1 - t * t) : 0;
      EXPECT_NEAR(j.data<double>()[3 * i + k], slope, 1e-14);
    }
}

TEST(Jacobian, MistakesAreSaid) {
  const auto text = [](const Lines& lines, const JacobianRequest& request) {
    return error_text([&] {
      NetDef net = net_of_lines(lines);
      add_jacobian_operators(net, request);
    });
  };
  expect_contains(text({"y = Tanh(x)"}, request_of("q", {"x"}, {{"x", {2}}})), "the shape of \"q\"");
  expect_contains(text({"y = Tanh(x)"}, request_of("y", {"q"}, {{"x", {2}}})), "\"q\" is nothing that the net reads");
  expect_contains(text({"y = Tanh(x)"}, request_of("y", {}, {{"x", {2}}})), "no blob is named");
  expect_contains(text({"y = Tanh(x)"}, request_of("y", {"x", "x"}, {{"x", {2}}})), "\"x\" is named twice");
  expect_contains(text({"y = Mul(x, w)"}, request_of("y", {"x"}, {{"x", {2}}})), "what type \"w\" has");
  expect_contains(text({"x = Tanh(x)", "y = Sin(x)"}, request_of("y", {"x"}, {{"x", {2}}})), "is written by the net");
  expect_contains(text({"y = Tanh(x)", "z = Sin(w)"}, request_of("y", {"w"}, {{"x", {2}}, {"w", {2}}})), "depend");
  expect_contains(text({"y = Tanh(x)"}, request_of("y", {"x"}, {{"x", {2}}}, DType::int32)), "floating-point");
  expect_contains(text({"y = Tanh(x)"}, request_of("y", {"x"}, {{"x", {1, 1, 1, 1, 1, 1, 1, 2}}})), "8");
}

}  // namespace
}  // namespace stepnet::testing::jacobians_test
