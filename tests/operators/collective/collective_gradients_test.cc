// Derivatives of the operators of operators/collective against central differences, where the loss is the sum of all
// ranks' losses and one element of one rank moves at a time.
#include <gtest/gtest.h>

#include <cmath>

#include "stepnet/gradients.h"
#include "tests/operators/collective/ranks.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::collective_gradients_test {
namespace {

struct GradientCase {
  const char* name;
  const char* text;  // makes Y of X
  Shape shape;
};

// Each rank weights its Y by other numbers, and squares it first.
std::string loss_of(const std::string& text) {
  return text +
         " op { type: 'Mul' input: 'Y' input: 'Y' output: 'S' } op { type: 'Mul' input: 'S' input: 'weights' output: "
         "'P' "
         "} op { type: 'SumElements' input: 'P' output: 'loss' }";
}

class CollectiveGradients : public ::testing::TestWithParam<GradientCase> {
 protected:
  CollectiveGradients() {
    NetDef init = parse_net_text("op { type: 'CreateCommonWorld' output: 'world' }");
    run_net_once(init, workspace_, run_);
    NetDef net = parse_net_text(loss_of(GetParam().text));
    for (const char* name : {"world", "X", "weights"}) net.add_external_input(name);
    feed(x());
    forward_ = std::make_unique<Net>(net, workspace_);
    const GradientResult made = add_gradient_operators(net, {.targets = {{"loss", ""}}, .wanted = {"X"}, .stop = {}});
    gradient_ = made.gradients.at("X").dense;
    whole_ = std::make_unique<Net>(net, workspace_);
  }

  Shape shape() const {
    const Shape& s = GetParam().shape;
    return std::string(GetParam().name) == "ReduceScatter" ? s.with(0, s[0] * ranks()) : s;
  }
  Tensor x() const { return normal<double>(shape(), 5 + static_cast<uint64_t>(rank())); }

  void feed(const Tensor& x) {
    workspace_.tensor("X") = x.clone();
    workspace_.tensor("weights") = normal<double>(weights_shape(), 50 + static_cast<uint64_t>(rank()));
  }

  // That of Y.
  Shape weights_shape() const {
    const bool gathers = std::string(GetParam().name) == "Allgather";
    return gathers ? shape().with(0, shape()[0] * ranks()) : GetParam().shape;
  }

  double loss(const Tensor& x) {
    feed(x);
    forward_->run(run_);
    return sum_over_ranks(workspace_.fetch("loss").item<double>());
  }

  Workspace workspace_;
  RunContext run_;
  std::unique_ptr<Net> forward_, whole_;
  std::string gradient_;
};

TEST_P(CollectiveGradients, AreThoseOfDifferences) {
  const Tensor x = this->x();
  feed(x);
  whole_->run(run_);
  const Tensor gradient = workspace_.fetch(gradient_).clone();
  ASSERT_EQ(gradient.shape(), x.shape());
  constexpr double h = 1e-5;
  for (int r = 0; r < ranks(); ++r)
    for (int64_t i = 0; i < x.size(); ++i) {
      Tensor up = x.clone(), down = x.clone();
      if (rank() == r) up.data<double>()[i] += h, down.data<double>()[i] -= h;
      const double slope = (loss(up) - loss(down)) / (2 * h);
      if (rank() == r) {
        EXPECT_NEAR(gradient.data<double>()[i], slope, 1e-7 * std::max(1.0, std::abs(slope))) << "element " << i;
      }
    }
}

const GradientCase kCases[] = {
    {"Allreduce", "op { type: 'Allreduce' input: 'world' input: 'X' output: 'Y' }", {2, 3}},
    {"AllreduceOfTwo",
     "op { type: 'Scale' input: 'X' output: 'Z' arg { name: 'scale' f: 2 } } op { type: 'Allreduce' input: 'world' "
     "input: 'X' input: 'Z' output: 'A' output: 'B' } op { type: 'Add' input: 'A' input: 'B' output: 'Y' }",
     {3}},
    {"Broadcast", "op { type: 'Broadcast' input: 'world' input: 'X' output: 'Y' }", {2, 2}},
    {"BroadcastInPlace",
     "op { type: 'Scale' input: 'X' output: 'Y' arg { name: 'scale' f: 3 } } op { type: 'Broadcast' input: 'world' "
     "input: 'Y' output: 'Y' }",
     {4}},
    {"Reduce", "op { type: 'Reduce' input: 'world' input: 'X' output: 'Y' }", {2, 3}},
    {"Allgather", "op { type: 'Allgather' input: 'world' input: 'X' output: 'Y' }", {2, 3}},
    {"ReduceScatter", "op { type: 'ReduceScatter' input: 'world' input: 'X' output: 'Y' }", {2, 2}},
};
INSTANTIATE_TEST_SUITE_P(All, CollectiveGradients, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// In forward mode and of second order the operators are the same.
TEST(CollectiveSecondOrder, OfAReductionIsReducedAgain) {
  NetDef net = parse_net_text(
      "external_input: 'world' external_input: 'X' op { type: 'Allreduce' input: 'world' input: 'X' output: 'Y' } "
      "op { type: 'Mul' input: 'Y' input: 'Y' output: 'S' } op { type: 'SumElements' input: 'S' output: 'loss' }");
  const GradientResult first = add_gradient_operators(net, {.targets = {{"loss", ""}}, .wanted = {"X"}, .stop = {}});
  OperatorDef& sum = *net.add_op();
  sum.set_type("SumElements");
  sum.add_input(first.gradients.at("X").dense);
  sum.add_output("slope");
  const GradientResult second = add_gradient_operators(net, {.targets = {{"slope", ""}}, .wanted = {"X"}, .stop = {}});
  Workspace workspace;
  run_on_world("", workspace);
  workspace.tensor("X") = normal<double>({3}, 1 + static_cast<uint64_t>(rank()));
  RunContext run;
  run_net_once(net, workspace, run);
  // loss of all ranks: R |Y|^2; slope of this rank: 2 R sum(Y); of all ranks by X: 2 R R.
  const Tensor& gradient = workspace.fetch(second.gradients.at("X").dense);
  for (const double v : gradient.span<double>()) EXPECT_NEAR(v, 2.0 * ranks() * ranks(), 1e-9);
}

TEST(CollectiveGradientErrors, ReceivedTensorsHaveNoGradient) {
  NetDef net = parse_net_text(
      "external_input: 'world' external_input: 'X' op { type: 'ReceiveTensor' input: 'world' input: 'X' output: 'X' } "
      "op { type: 'SumElements' input: 'X' output: 'loss' }");
  const std::string text = error_of([&] {
    add_gradient_operators(net, {.targets = {{"loss", ""}}, .wanted = {"X"}, .stop = {}});
  });
  EXPECT_NE(text.find("for their nets to send back"), std::string::npos) << text;
}

}  // namespace
}  // namespace stepnet::testing::collective_gradients_test
