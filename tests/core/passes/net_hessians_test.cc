// Second derivatives of nets in one pass for all rows.
#include <gtest/gtest.h>

#include "core/gradcheck/runs.h"
#include "core/passes/jacobians.h"
#include "stepnet/gradients.h"
#include "tests/core/errors.h"
#include "tests/core/passes/jacobian_rows.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::net_hessians_test {
namespace {

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
}  // namespace stepnet::testing::net_hessians_test
