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

JacobianRequest request_of(const std::string& output, const std::vector<std::string>& inputs,
                           const std::map<std::string, Shape>& shapes, DType dtype = DType::float64) {
  JacobianRequest request{.output = output, .inputs = inputs, .types = {}};
  for (const auto& [name, shape] : shapes) request.types[name] = TensorType::of(dtype, shape);
  return request;
}

const Lines kLayers = {"s = FC(x, W, b)", "h = Tanh(s)", "z = FC(h, V, c)", "y = Softmax(z)"};

std::map<std::string, Shape> layer_shapes(int64_t outputs) {
  return {{"x", {2, 5}}, {"W", {4, 5}}, {"b", {4}}, {"V", {outputs, 4}}, {"c", {outputs}}};
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
  NetDef net = net_of_lines({"x_jacobian = Tanh(x)", "jacobian/given = Sin(x_jacobian)", "y = Mul(x, jacobian/given)"});
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
  expect_contains(text({"y = Mul(x, w)"}, request_of("y", {"x"}, {{"x", {2}}})), "what type \"w\" has");
  expect_contains(text({"x = Tanh(x)", "y = Sin(x)"}, request_of("y", {"x"}, {{"x", {2}}})), "is written by the net");
  expect_contains(text({"y = Tanh(x)", "z = Sin(w)"}, request_of("y", {"w"}, {{"x", {2}}, {"w", {2}}})), "depend");
  expect_contains(text({"y = Tanh(x)"}, request_of("y", {"x"}, {{"x", {2}}}, DType::int32)), "floating-point");
  expect_contains(text({"y = Tanh(x)"}, request_of("y", {"x"}, {{"x", {1, 1, 1, 1, 1, 1, 1, 2}}})), "8");
}

// Against rows of H, each from an ordinary gradient of the gradient.
TEST(JacobianHessian, OfLayersIsThatOfItsRows) {
  Lines lines = kLayers;
  lines.insert(lines.end(), {"q = Mul(y, y)", "loss = SumElements(q)"});
  const auto shapes = layer_shapes(3);
  NetDef net = net_of_lines(lines);
  const auto made = add_hessian_operators(net, request_of("loss", {"x", "W", "c"}, shapes));
  NetDef slopes = net_of_lines(lines);
  GradientRequest first;
  first.targets = {{"loss", ""}};
  first.wanted = {"x", "W", "c"};
  const GradientResult result = add_gradient_operators(slopes, first);
  Workspace workspace;
  GradientSubject subject{.net = slopes, .feeds = {}, .outputs = {}, .inputs = {"x", "W", "c"}};
  for (const auto& [name, shape] : shapes) subject.feeds[name] = normal<double>(shape, name[0]);
  for (const std::string& a : subject.inputs) subject.outputs.push_back(result.gradients.at(a).dense);
  for (const auto& [name, value] : subject.feeds) workspace.tensor(name) = value.clone();
  run_once(net, workspace, 1);
  EXPECT_EQ(made.at({"W", "W"}), "W_hessian");
  for (size_t k = 0; k < subject.inputs.size(); ++k) {
    const auto rows = rows_one_by_one(subject, subject.outputs[k], subject.inputs);
    for (const std::string& b : subject.inputs)
      EXPECT_EQ(row_difference(workspace.fetch(made.at({subject.inputs[k], b})), rows.at(b)), "")
          << subject.inputs[k] << " " << b;
  }
}

// A loss that is linear in an input, or does not depend on it.
TEST(JacobianHessian, IsZeroWhereSlopesAreConstant) {
  NetDef net = net_of_lines({"s = Mul(x, w)", "loss = SumElements(s)"});
  const auto made = add_hessian_operators(net, request_of("loss", {"x", "w"}, {{"x", {2}}, {"w", {2}}}));
  Workspace workspace;
  workspace.tensor("x") = normal<double>({2}, 5);
  workspace.tensor("w") = normal<double>({2}, 6);
  run_once(net, workspace, 1);
  const auto values = [&](const std::string& a, const std::string& b) {
    const auto v = workspace.fetch(made.at({a, b})).span<double>();
    return std::vector<double>(v.begin(), v.end());
  };
  EXPECT_EQ(values("x", "x"), (std::vector<double>{0, 0, 0, 0}));
  EXPECT_EQ(values("x", "w"), (std::vector<double>{1, 0, 0, 1}));
  NetDef two = net_of_lines({"y = Mul(x, x)"});
  expect_contains(error_text([&] { add_hessian_operators(two, request_of("y", {"x"}, {{"x", {2}}})); }), "one number");
}

}  // namespace
}  // namespace stepnet::testing::jacobians_test
