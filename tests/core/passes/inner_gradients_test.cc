// Gradients in the middle of a net: what they become, that they are right, and that they can be differentiated.
#include "core/passes/inner_gradients.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/net/expansions.h"
#include "stepnet/gradient_check.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/core/gradient_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::inner_gradients_test {
namespace {

NetDef expanded(const Lines& lines) {
  NetDef net = net_of_lines(lines);
  expand_net(net);
  return net;
}

std::string refusal(const Lines& lines) {
  return error_text([&] { expanded(lines); });
}

std::map<std::string, Tensor> run(NetDef net, const Feeds& feeds) {
  expand_net(net);
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  RunContext context;
  run_net_once(net, workspace, context);
  std::map<std::string, Tensor> blobs;
  for (const OperatorDef& op : net.op())
    for (const std::string& name : op.output())
      if (!name.empty()) blobs[name] = workspace.fetch(name).clone();
  return blobs;
}

// Central differences of the sum of the loss.
Tensor differences(const NetDef& net, const Feeds& feeds, const std::string& loss, const std::string& wrt) {
  constexpr double kStep = 1e-5;
  Feeds moved = feeds;
  Tensor& x = std::ranges::find(moved, wrt, &Feeds::value_type::first)->second;
  const Tensor at = x;
  Tensor gradient = Tensor::zeros(DType::float64, at.shape());
  for (int64_t i = 0; i < at.size(); ++i)
    for (const int side : {-1, 1}) {
      x = at.clone();
      x.data<double>()[i] += side * kStep;
      const Tensor losses = run(net, moved).at(loss);
      for (const double v : losses.span<double>()) gradient.data<double>()[i] += side * v / (2 * kStep);
    }
  return gradient;
}

// Orders 1 to 3 backward and 1 to 2 forward, of all feeds of float64.
std::string check_derivatives(const Lines& lines, const Feeds& feeds, const std::vector<std::string>& outputs,
                              const std::vector<std::string>& inputs) {
  GradientSubject subject{expanded(lines), {}, outputs, inputs, {}, {}};
  for (const auto& [name, value] : feeds) subject.feeds[name] = value;
  GradientCheckOptions options;
  options.order = 3;
  std::string text = check_gradients(subject, options).str();
  options.forward = true;
  options.order = 2;
  return text + check_gradients(subject, options).str();
}

TEST(InnerGradients, StandInTheirPlace) {
  const NetDef net = expanded({"y = Tanh(x)", "dx = Gradients(y, x)", "l = Mul(dx, dx)"});
  EXPECT_EQ(lines_of(net), (Lines{"y = Tanh(x)", "dx/y_autogen_grad = ConstantFill(y)",
                                  "dx = TanhGradient(y, dx/y_autogen_grad)", "l = Mul(dx, dx)"}));
  for (const OperatorDef& op : net.op()) EXPECT_FALSE(op.is_gradient_op()) << line_of(op);
}

TEST(InnerGradients, LeaveOtherNetsAsTheyAre) {
  NetDef net = net_of_lines({"y = Tanh(x)"});
  add_gradient_operators(net, {.targets = {{"y", ""}}, .wanted = {}, .stop = {}});
  const Lines before = lines_of(net);
  expand_net(net);
  EXPECT_EQ(lines_of(net), before);
  EXPECT_TRUE(net.op(net.op_size() - 1).is_gradient_op());
}

// A net that has gradients keeps the marks of theirs, and has the order that it had.
TEST(InnerGradients, BehindGradientsOfTheNet) {
  NetDef net = net_of_lines({"y = Tanh(x)"});
  add_gradient_operators(net, {.targets = {{"y", ""}}, .wanted = {}, .stop = {}});
  const int before = net.op_size();
  *net.add_op() = make_op("Gradients", {"x_grad", "x"}, {"ddx"});
  expand_net(net);
  for (int i = 0; i < net.op_size(); ++i) EXPECT_EQ(net.op(i).is_gradient_op(), i > 0 && i < before) << i;
  const Tensor x = normal<double>({3});
  const auto blobs = run(net, {{"x", x}});
  for (int64_t i = 0; i < 3; ++i) {
    const double t = std::tanh(x.data<double>()[i]);
    EXPECT_NEAR(blobs.at("ddx").data<double>()[i], -2 * t * (1 - t * t), 1e-12);
  }
}

TEST(InnerGradients, AreThoseOfTheSumOfTheLoss) {
  const Lines lines = {"s = FC(x, W, b)", "t = Tanh(s)", "y = Mul(t, s)", "dW, ds, dx, db = Gradients(y, W, s, x, b)"};
  const Feeds feeds = {{"x", normal<double>({4, 3})}, {"W", normal<double>({2, 3}, 2)}, {"b", normal<double>({2}, 3)}};
  const auto blobs = run(net_of_lines(lines), feeds);
  for (const std::string wrt : {"W", "x", "b"})
    EXPECT_EQ(compare(blobs.at("d" + wrt), differences(net_of_lines(lines), feeds, "y", wrt), 1e-8), "") << wrt;
  for (int64_t i = 0; i < 8; ++i) {
    const double s = blobs.at("s").data<double>()[i], t = std::tanh(s);
    EXPECT_NEAR(blobs.at("ds").data<double>()[i], t + s * (1 - t * t), 1e-12);
  }
}

TEST(InnerGradients, OfGradientsToAnyOrder) {
  const Lines lines = {"y = Sin(x)", "a = Gradients(y, x)", "b = Gradients(a, x)", "c = Gradients(b, x)"};
  const Tensor x = normal<double>({5});
  const auto blobs = run(net_of_lines(lines), {{"x", x}});
  for (int64_t i = 0; i < 5; ++i) {
    const double v = x.data<double>()[i];
    EXPECT_NEAR(blobs.at("a").data<double>()[i], std::cos(v), 1e-12);
    EXPECT_NEAR(blobs.at("b").data<double>()[i], -std::sin(v), 1e-12);
    EXPECT_NEAR(blobs.at("c").data<double>()[i], -std::cos(v), 1e-12);
  }
  EXPECT_EQ(check_derivatives(lines, {{"x", x}}, {"y", "a", "b", "c"}, {"x"}), "");
}

TEST(InnerGradients, AreDifferentiatedLikeTheRest) {
  const Lines lines = {
      "s = FC(k, W, b)",      "t = Tanh(s)",     "e = Sub(t, v)",      "l = Mul(e, e)",   "dW, db = Gradients(l, W, b)",
      "W1 = Sub(W, dW)",      "b1 = Sub(b, db)", "s1 = FC(k, W1, b1)", "e1 = Sub(s1, v)", "l1 = Mul(e1, e1)",
      "dk = Gradients(l1, k)"};
  const Feeds feeds = {{"k", normal<double>({2, 3})},
                       {"W", normal<double>({2, 3}, 2)},
                       {"b", normal<double>({2}, 3)},
                       {"v", normal<double>({2, 2}, 4)}};
  EXPECT_EQ(check_derivatives(lines, feeds, {"l1", "dk"}, {"k", "W", "b", "v"}), "");
  const auto blobs = run(net_of_lines(lines), feeds);
  EXPECT_EQ(compare(blobs.at("dk"), differences(net_of_lines(lines), feeds, "l1", "k"), 1e-7), "");
}

// A gradient is no constant unless it is made one.
TEST(InnerGradients, EndAtStopGradient) {
  const Lines lines = {"y = Sin(x)", "g = Gradients(y, x)", "d = StopGradient(g)", "l = Mul(d, x)",
                       "r = Gradients(l, x)"};
  const Tensor x = normal<double>({5});
  const auto blobs = run(net_of_lines(lines), {{"x", x}});
  EXPECT_EQ(compare(blobs.at("r"), blobs.at("d"), 0), "");
}

TEST(InnerGradients, TwoOfOneLoss) {
  const Lines lines = {"y = Mul(x, w)", "z = Tanh(y)", "a = Gradients(z, x)", "b = Gradients(z, w)", "o = Mul(a, b)"};
  const Feeds feeds = {{"x", normal<double>({3})}, {"w", normal<double>({3}, 2)}};
  const auto blobs = run(net_of_lines(lines), feeds);
  EXPECT_EQ(compare(blobs.at("a"), differences(net_of_lines(lines), feeds, "z", "x"), 1e-8), "");
  EXPECT_EQ(compare(blobs.at("b"), differences(net_of_lines(lines), feeds, "z", "w"), 1e-8), "");
  EXPECT_EQ(check_derivatives(lines, feeds, {"o"}, {"x", "w"}), "");
}

TEST(InnerGradients, OfRowsOfATableAreDense) {
  const Lines lines = {"r = Gather(table, i)", "y = Mul(r, r)", "d = Gradients(y, table)", "o = Mul(d, d)"};
  const Feeds feeds = {{"table", normal<double>({4, 2})}, {"i", Tensor::of<int32_t>({3}, {1, 1, 2})}};
  const auto blobs = run(net_of_lines(lines), feeds);
  EXPECT_EQ(compare(blobs.at("d"), differences(net_of_lines(lines), feeds, "y", "table"), 1e-8), "");
  const NetDef net = expanded(lines);
  EXPECT_EQ(check_gradients({net, {feeds.begin(), feeds.end()}, {"o"}, {"table"}, {}, {}}).str(), "");
}

// Where two gradients are the same bytes, or one is also read by what makes another, each output is still its own blob.
TEST(InnerGradients, AreBlobsOfTheirOwn) {
  const Lines lines = {"s = Sum(x, z)", "t = Sum(s, x)", "dx, dz, ds, again = Gradients(t, x, z, s, s)",
                       "dz = Scale(dz)", "ds = Negative(ds)"};
  for (const bool step_net : {false, true}) {
    NetDef net = net_of_lines(lines);
    *net.mutable_op(3)->add_arg() = make_arg("scale", 5.0F);
    expand_inner_gradients(net, step_net);
    const auto blobs = run(net, {{"x", normal<double>({3})}, {"z", normal<double>({3}, 2)}});
    for (const auto& [name, value] : {std::pair{"dx", 2.0}, {"dz", 5.0}, {"ds", -1.0}, {"again", 1.0}})
      EXPECT_EQ(blobs.at(name).data<double>()[1], value) << name << (step_net ? " of a step net" : "");
  }
}

// MatchShape, which the gradient of x is made by, gives the bytes of that of t another name.
TEST(InnerGradients, ShareNoBytes) {
  for (const bool step_net : {false, true}) {
    NetDef net = net_of_lines({"t = Sub(x, z)", "y = SumElements(t)", "dt, dx = Gradients(y, t, x)", "dt = Scale(dt)"});
    *net.mutable_op(3)->add_arg() = make_arg("scale", 5.0F);
    expand_inner_gradients(net, step_net);
    const auto blobs = run(net, {{"x", normal<double>({3})}, {"z", normal<double>({3}, 2)}});
    EXPECT_EQ(blobs.at("dt").data<double>()[1], 5);
    EXPECT_EQ(blobs.at("dx").data<double>()[1], 1) << (step_net ? "of a step net" : "");
  }
}

TEST(InnerGradients, OfWhatIsDifferentiatedItselfAreOnes) {
  const auto blobs =
      run(net_of_lines({"s = Tanh(x)", "ds = Gradients(s, s)", "dx = Gradients(x, x)"}), {{"x", normal<double>({3})}});
  for (const char* name : {"ds", "dx"}) EXPECT_EQ(blobs.at(name).data<double>()[2], 1) << name;
}

// Names that the pass would take, names that the net's own gradients take, and an output that had a value before.
TEST(InnerGradients, ClashWithNoName) {
  const Lines lines = {"dx/o_autogen_grad = Copy(x)",
                       "x_grad = Copy(x)",
                       "dx = Exp(x)",
                       "y = Tanh(x)",
                       "p = Mul(y, x_grad)",
                       "o = Mul(p, dx/o_autogen_grad)",
                       "u = Mul(o, dx)",
                       "dx = Gradients(u, x)",
                       "dx/x_grad = Mul(dx, dx/o_autogen_grad)"};
  const Feeds feeds = {{"x", normal<double>({3})}};
  const auto blobs = run(net_of_lines(lines), feeds);
  const Lines without(lines.begin(), lines.begin() + 7);
  EXPECT_EQ(compare(blobs.at("dx"), differences(net_of_lines(without), feeds, "u", "x"), 1e-7), "");
  const Lines fresh = {"dx/o_autogen_grad = Copy(x)",
                       "x_grad = Copy(x)",
                       "y = Tanh(x)",
                       "p = Mul(y, x_grad)",
                       "o = Mul(p, dx/o_autogen_grad)",
                       "dx = Gradients(o, x)",
                       "dx/x_grad = Mul(dx, dx/o_autogen_grad)"};
  EXPECT_EQ(check_derivatives(fresh, feeds, {"dx/x_grad"}, {"x"}), "");
}

TEST(InnerGradients, OfNothing) {
  const auto blobs =
      run(net_of_lines({"y = Tanh(x)", "dx = Gradients(y, x)"}), {{"x", Tensor::zeros(DType::float32, {0, 2})}});
  EXPECT_EQ(blobs.at("dx").shape(), (Shape{0, 2}));
}

TEST(InnerGradients, InNetsOfOperators) {
  NetDef net = net_of_lines({"d = If(c, x)"});
  Argument& then = *net.mutable_op(0)->add_arg();
  then.set_name("then_net");
  *then.mutable_n() = net_of_lines({"y = Sin(x)", "d = Gradients(y, x)"});
  const Tensor x = normal<double>({3});
  Tensor yes = Tensor::zeros(DType::boolean, {1});
  yes.data<bool>()[0] = true;
  const auto blobs = run(net, {{"x", x}, {"c", yes}});
  EXPECT_NEAR(blobs.at("d").data<double>()[0], std::cos(x.data<double>()[0]), 1e-12);
}

TEST(InnerGradients, OfBlobsThatAreNotThereAreRefused) {
  expect_contains(refusal({"y = Tanh(weight)", "d = Gradients(y, wieght)"}), "Did you mean \"weight\"?");
  expect_contains(refusal({"y = Tanh(x)", "d = Gradients(loss, x)"}), "no blob \"loss\"");
  expect_contains(refusal({"d = Gradients(x, x)", "y = Tanh(x)"}), "no blob \"x\" before it");
  expect_contains(refusal({"y = Tanh(x)", "d, e = Gradients(y, x)"}), "2 and 1");
}

TEST(InnerGradients, OfWhatTheLossDoesNotDependOnAreRefused) {
  for (const Lines& lines : {Lines{"y = Tanh(x)", "u = Tanh(z)", "dx, dz = Gradients(y, x, z)"},
                             {"y = Tanh(x)", "u = Tanh(z)", "dz = Gradients(y, z)"},
                             {"s = StopGradient(z)", "y = Mul(s, x)", "dx, dz = Gradients(y, x, z)"},
                             {"y = Gather(x, z)", "dx, dz = Gradients(y, x, z)"}})
    expect_contains(refusal(lines), "the loss \"y\" does not depend on \"z\"");
}

TEST(InnerGradients, OfIntegersAreRefused) {
  NetDef net = net_of_lines({"f = Cast(i) to=1", "y = Mul(f, f)", "d = Gradients(y, i)"});
  expect_contains(error_text([&] { expand_net(net); }), "integers");
  net.mutable_op(0)->add_arg()->CopyFrom(make_arg("from_type", "float"));
  EXPECT_NO_THROW(expand_net(net));
}

// Which value is meant, or what has become of one that is read, would not be known.
TEST(InnerGradients, OfOverwrittenBlobsAreRefused) {
  expect_contains(refusal({"x = Tanh(x)", "y = Tanh(x)", "d = Gradients(y, x)"}),
                  "operator 0 (Tanh) has overwritten it");
  expect_contains(refusal({"y = Tanh(x)", "x = Copy(q)", "d = Gradients(y, x)"}),
                  "operator 1 (Copy) has overwritten it");
  expect_contains(refusal({"y = Mul(x, w)", "w = Copy(q)", "d = Gradients(y, x)"}), "version 0 of \"w\"");
  expect_contains(refusal({"s = Copy(x)", "y = Tanh(s)", "s = Copy(q)", "d = Gradients(y, s)"}),
                  "does not depend on \"s\"");
}

// A name means what it holds in the place of the operator.
TEST(InnerGradients, OfTheLastValueOfAName) {
  const Lines lines = {"s = Sin(x)",          "s = Sin(s)",    "y = Sin(s)",
                       "d = Gradients(y, s)", "y = Mul(d, d)", "e = Gradients(y, d)"};
  const auto blobs = run(net_of_lines(lines), {{"x", normal<double>({3})}});
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(blobs.at("d").data<double>()[i], std::cos(blobs.at("s").data<double>()[i]), 1e-12);
    EXPECT_NEAR(blobs.at("e").data<double>()[i], 2 * blobs.at("d").data<double>()[i], 1e-12);
  }
}

TEST(InnerGradients, ThroughOperatorsWithoutADerivativeAreRefused) {
  NetDef net = net_of_lines({"y = If(c, x)", "d = Gradients(y, x)"});
  Argument& then = *net.mutable_op(0)->add_arg();
  then.set_name("then_net");
  *then.mutable_n() = net_of_lines({"y = Relu(x)"});
  const std::string text = error_text([&] { expand_net(net); });
  expect_contains(text, "If has no gradient");
  expect_contains(text, "what operator 1 (Gradients)");
}

TEST(InnerGradients, MustBeExpandedFirst) {
  NetDef net = net_of_lines({"y = Tanh(x)", "d = Gradients(y, x)"});
  expect_contains(error_text([&] {
                    add_gradient_operators(net, {.targets = {{"d", ""}}, .wanted = {}, .stop = {}});
                  }),
                  "expanded first");
}

}  // namespace
}  // namespace stepnet::testing::inner_gradients_test
