// FLOPs of whole nets and cells as they are estimated, against the arithmetic that references count.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/estimate/estimate.h"
#include "core/passes/defined_operators.h"
#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"
#include "stepnet/text.h"
#include "tests/operators/flops_check.h"
#include "tests/recurrent/cell_files.h"
#include "tests/recurrent/estimate_nets.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing::flops_test {
namespace {

using Values = std::map<std::string, Tensor>;

Values values_of(const EstimateNet& n) {
  Values values;
  for (const auto& types : {n.data, n.parameters})
    for (const auto& [name, type] : types) {
      values[name] = Tensor::zeros(type.dtype, type.shape);
      if (type.dtype == DType::float32)
        for (int64_t i = 0; float& x : values[name].span<float>()) x = std::sin(static_cast<float>(++i));
    }
  return values;
}

Estimate estimate_of(const NetDef& net, const EstimateNet& n) {
  ForwardOptions options{.feeds = n.data};
  options.feeds.insert(n.parameters.begin(), n.parameters.end());
  DryScope scope;
  const auto session = forward_session(net, options);
  return estimate_session(*session, scope);
}

double estimated(const NetDef& net, const EstimateNet& n) { return estimate_of(net, n).flops; }
double estimated_products(const NetDef& net, const EstimateNet& n) { return estimate_of(net, n).product_flops; }

class FlopsOfNets : public ::testing::TestWithParam<uint64_t> {};

TEST_P(FlopsOfNets, AreAsCounted) {
  for (const EstimateNet& n : estimate_nets(GetParam())) {
    SCOPED_TRACE(n.name);
    NetDef net = n.net;
    if (n.name == "encoder_decoder") continue;  // of cells, which are below
    const CountedRun forward = run_counted(net, values_of(n));
    EXPECT_EQ(forward.problems, "");
    EXPECT_EQ(forward.flops, estimated(net, n));
    GradientRequest request;
    request.targets.emplace_back(n.loss, "");
    for (const auto& [name, type] : n.parameters) request.wanted.insert(name);
    add_gradient_operators(net, request);
    const CountedRun training = run_counted(net, values_of(n));
    EXPECT_EQ(training.problems, "");
    EXPECT_EQ(training.flops, estimated(net, n));
    EXPECT_GT(training.flops, 2 * forward.flops);
  }
}

// What the step net reads in the first timestep.
Values step_feeds(const RecurrentDef& def, Values values) {
  for (const SequenceLink& s : def.sequence()) values[s.inner()] = values.at(s.outer()).rows(0, 1).clone();
  for (const StateLink& s : def.state()) {
    std::vector<int64_t> dims = {1, values.at(def.sequence(0).outer()).dim(1)};
    dims.insert(dims.end(), s.size().begin(), s.size().end());
    values[s.input()] = s.has_initial() ? values.at(s.initial()).clone() : Tensor::zeros(DType::float32, Shape(dims));
  }
  values["timestep"] = Tensor::zeros(DType::int32, {1});
  return values;
}

// In every timestep those of the step net; before them, those of operators that stand in front.
TEST_P(FlopsOfNets, TimestepsAreAsCounted) {
  for (const EstimateNet& n : estimate_cells(GetParam())) {
    SCOPED_TRACE(n.name);
    NetDef net = without_passes(n.net, pass_choices().back());
    expand_defined_operators(net);
    NetDef before = net;
    OperatorDef& network = network_in(net);
    const RecurrentDef def = network.GetExtension(recurrent);
    before.clear_external_output();
    auto& ops = *before.mutable_op();
    ops.erase(std::remove_if(ops.begin(), ops.end(), [&](const auto& op) { return op.type() == network.type(); }),
              ops.end());
    expand_recurrent(net);
    const CountedRun flat = run_counted(before, values_of(n));
    NetDef step_net = def.step_net();
    expand_recurrent(step_net);  // gradients of inner losses
    const CountedRun step = run_counted(step_net, step_feeds(def, flat.blobs));
    EXPECT_EQ(flat.problems + step.problems, "");
    const auto steps = static_cast<double>(flat.blobs.at(def.sequence(0).outer()).dim(0));
    EXPECT_EQ(flat.flops + steps * step.flops, estimated(net, n));
    EXPECT_GT(step.flops, 0);
  }
}

// A layer's products are [B, I] or [B, H] by [H, 4 H] for each timestep. Forward, h W and x V have tangents in h, W and
// V; backward, gradients reach W and V from both values and tangents, h from its value by W and by W's direction, and
// its tangent by W. What would be the gradient of a direction, or of x, is no part of it.
TEST(FlopsOfDerivatives, HessianTimesVectorHasNoProductsThatNobodyAskedFor) {
  constexpr int64_t kT = 5, kB = 3, kI = 6, kH = 4;
  NetDef net = parse_net_text(
      "op { type: 'LSTM' arg { name: 'hidden' i: 4 } input: 'X' input: '' input: '' input: 'V' "
      "input: 'W' input: 'b' input: 'c' output: 'Y' } "
      "op { type: 'SumSqrElements' input: 'Y' output: 'loss' }");
  TangentRequest tangents;
  for (const char* name : {"V", "W"}) tangents.given[name] = std::string(name) + "_tangent";
  tangents.wanted = {"loss"};
  const TangentResult moved = add_tangent_operators(net, tangents);
  GradientRequest gradients;
  gradients.targets.emplace_back(moved.tangents.at("loss"), "");
  gradients.wanted = {"V", "W"};
  add_gradient_operators(net, gradients);
  EstimateNet n;
  n.data["X"] = TensorType::of(DType::float32, {kT, kB, kI});
  for (const char* suffix : {"", "_tangent"}) {
    n.parameters["V" + std::string(suffix)] = TensorType::of(DType::float32, {4 * kH, kI});
    n.parameters["W" + std::string(suffix)] = TensorType::of(DType::float32, {4 * kH, kH});
  }
  for (const char* bias : {"b", "c"}) n.parameters[bias] = TensorType::of(DType::float32, {4 * kH});
  const double by_inputs = 2.0 * kT * kB * kI * 4 * kH, by_states = 2.0 * kT * kB * kH * 4 * kH;
  EXPECT_EQ(estimated_products(net, n), (2 + 1) * by_inputs + (3 + 2 + 3) * by_states);
}

INSTANTIATE_TEST_SUITE_P(Draws, FlopsOfNets, ::testing::Range(uint64_t{1}, uint64_t{6}));

}  // namespace
}  // namespace stepnet::testing::flops_test
