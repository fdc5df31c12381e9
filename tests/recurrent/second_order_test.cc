// Derivatives of networks beyond the first, and forward mode through them: all example cells.
#include <gtest/gtest.h>

#include "recurrent/form/short_form.h"
#include "stepnet/gradient_check.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "tests/core/heap_counter.h"
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

// A sanitizer takes some ten times as long.
int highest_order() { return counts_heap() ? 3 : 2; }

class HigherOrder : public ::testing::TestWithParam<CellFile> {};

TEST_P(HigherOrder, GradientsOfGradients) {
  GradientCheckOptions options;
  options.order = highest_order();
  options.directions = 1;
  EXPECT_EQ(check_gradients(subject_of(GetParam().name), options).str(), "");
}

TEST_P(HigherOrder, ForwardMode) {
  GradientCheckOptions options;
  options.forward = true;
  options.order = highest_order();
  options.directions = 1;
  EXPECT_EQ(check_gradients(subject_of(GetParam().name), options).str(), "");
}

// h = W h_prev + tanh(x_t), element by element, and y = h h. `blob`: what the step net calls the second term.
NetDef plain_net(const std::string& blob, const std::string& name = "") {
  NetDef net = parse_net_text(fmt::format(R"(
    op {{ type: 'RecurrentNetwork' {1} input: 'X' input: 'h0' output: 'h_all'
         [stepnet.recurrent] {{
           step_net {{ name: 'step'
             op {{ type: 'Mul' input: 'h_prev' input: 'W' output: 'm' }}
             op {{ type: 'Tanh' input: 'x_t' output: '{0}' }}
             op {{ type: 'Sum' input: 'm' input: '{0}' output: 'h' }} }}
           sequence {{ outer: 'X' inner: 'x_t' }}
           state {{ input: 'h_prev' output: 'h' initial: 'h0' all: 'h_all' }} }} }}
    op {{ type: 'Mul' input: 'h_all' input: 'h_all' output: 'y' }})",
                                          blob, name.empty() ? "" : "name: '" + name + "'"));
  expand_recurrent(net);
  return net;
}

GradientSubject plain_subject(const NetDef& net, const std::string& output) {
  GradientSubject subject{net, {}, {output}, {}, {}, {}};
  subject.feeds["X"] = normal<double>({3, 2, 4}, 1);
  subject.feeds["h0"] = normal<double>({2, 4}, 2);
  subject.feeds["W"] = normal<double>({1, 2, 4}, 3);
  subject.inputs = {"X", "h0", "W"};
  return subject;
}

// Networks that passes make stand beside each other in one net: each has a name, and blobs, of its own.
TEST(HigherOrderOfOneNet, NetworksDoNotShareNames) {
  for (const std::string name : {"", "rnn"}) {
    NetDef net = plain_net("q", name);
    std::string blob = "y";
    for (int order = 1; order <= 2; ++order) {
      GradientRequest request;
      request.targets = {{blob, ""}};
      blob = add_gradient_operators(net, request).gradients.at("W").dense;
    }
    GradientCheckOptions options;
    options.directions = 1;
    options.tolerance = 1e-6;
    EXPECT_EQ(check_gradients(plain_subject(net, blob), options).str(), "") << name;
    TangentRequest along;
    along.given = {{"W", ""}};
    along.wanted = {"y"};
    NetDef moved = net;
    const std::string tangent = add_tangent_operators(moved, along).tangents.at("y");
    along.given = {{"X", ""}};
    along.wanted = {tangent};
    EXPECT_NO_THROW(add_tangent_operators(moved, along)) << name;
  }
}

TEST(HigherOrderOfOneNet, ATangentMayHaveTheNameOfABlobOfTheStepNet) {
  GradientCheckOptions options;
  options.forward = true;
  options.order = 2;
  EXPECT_EQ(check_gradients(plain_subject(plain_net("direction/W"), "y"), options).str(), "");
}

// A step net may read a blob that is no input of the operator, as the full form allows.
TEST(HigherOrderOfOneNet, StepNetsFindMovingBlobsByName) {
  NetDef net = plain_net("q");
  OperatorDef& op = *net.mutable_op(0);
  const auto last = std::remove(op.mutable_input()->begin(), op.mutable_input()->end(), "W");
  op.mutable_input()->erase(last, op.mutable_input()->end());
  const auto is_backward = [](const Argument& arg) {
    return arg.name() == "backward_step_net" || arg.name() == "param" || arg.name() == "param_grads";
  };
  auto& args = *op.mutable_arg();
  args.erase(std::remove_if(args.begin(), args.end(), is_backward), args.end());
  *net.add_op() = make_op("Tanh", {"W"}, {"w"});
  const GradientSubject subject = plain_subject(net, "y");
  NetDef moved = net;
  TangentRequest along;
  along.given = {{"W", "v"}};
  along.wanted = {"y"};
  const std::string tangent = add_tangent_operators(moved, along).tangents.at("y");
  const auto run_at = [&](double by, const std::string& shown) {
    Workspace workspace;
    for (const auto& [name, value] : subject.feeds) workspace.tensor(name) = value.clone();
    workspace.tensor("v") = Tensor::zeros(DType::float64, {1, 2, 4});
    workspace.tensor("v").data<double>()[3] = 1;
    workspace.tensor("W").data<double>()[3] += by;
    RunContext run;
    run_net_once(moved, workspace, run);
    return workspace.fetch(shown).clone();
  };
  const Tensor found = run_at(0, tangent), above = run_at(1e-5, "y"), below = run_at(-1e-5, "y");
  for (int64_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found.data<double>()[i], (above.data<double>()[i] - below.data<double>()[i]) / 2e-5, 1e-7);
}

TEST(HigherOrderOfOneNet, GatherInAStepNetStaysDense) {
  NetDef net = parse_net_text(R"(
    op { type: 'RecurrentNetwork' input: 'X' input: 'h0' input: 'i' output: 'y'
         [stepnet.recurrent] {
           step_net { name: 'step'
             op { type: 'Gather' input: 'W' input: 'i' output: 'row' arg { name: 'dense_gradient' i: 1 } }
             op { type: 'Mul' input: 'h_prev' input: 'row' output: 'm' }
             op { type: 'Sum' input: 'm' input: 'x_t' output: 'h' } }
           sequence { outer: 'X' inner: 'x_t' }
           state { input: 'h_prev' output: 'h' initial: 'h0' all: 'y' } } })");
  expand_recurrent(net);
  GradientSubject subject = plain_subject(net, "y");
  subject.feeds["W"] = normal<double>({3, 2, 4}, 3);
  subject.feeds["i"] = Tensor::of<int32_t>({1}, {1});
  GradientCheckOptions options;
  options.forward = true;
  options.order = 2;
  EXPECT_EQ(check_gradients(subject, options).str(), "");
}

INSTANTIATE_TEST_SUITE_P(Examples, HigherOrder, ::testing::ValuesIn(smooth_cell_files()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stepnet::testing::second_order_test
