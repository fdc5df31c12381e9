// FLOPs of whole nets and cells as they are estimated, against the arithmetic that references count.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/estimate/estimate.h"
#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"
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

double estimated(const NetDef& net, const EstimateNet& n) {
  ForwardOptions options{.feeds = n.data};
  options.feeds.insert(n.parameters.begin(), n.parameters.end());
  DryScope scope;
  const auto session = forward_session(net, options);
  return estimate_session(*session, scope).flops;
}

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
    NetDef net = without_passes(n.net, pass_choices().back()), before = net;
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

INSTANTIATE_TEST_SUITE_P(Draws, FlopsOfNets, ::testing::Range(uint64_t{1}, uint64_t{6}));

}  // namespace
}  // namespace stepnet::testing::flops_test
