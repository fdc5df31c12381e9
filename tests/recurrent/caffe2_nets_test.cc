// Nets made by Caffe2's own builders run as they are, without a warning, and give what Caffe2 computed
// (tests/data/caffe2_nets/README.md). STEPNET_CAFFE2_NETS names a folder with others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "core/gradcheck/examples.h"
#include "core/net/dataflow.h"
#include "core/operator/arg_names.h"
#include "recurrent/form/short_form.h"
#include "stepnet/gradient_check.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "tests/operators/op_test.h"
#include "tools/source_path.h"

namespace stepnet::testing::caffe2_nets_test {
namespace {

namespace fs = std::filesystem;

std::string folder() {
  const char* named = std::getenv("STEPNET_CAFFE2_NETS");
  return named ? named : source_path("tests/data/caffe2_nets");
}

std::vector<std::string> recorded() {
  const std::string ending = ".net.pbtxt";
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder()))
    if (const std::string file = entry.path().filename().string(); file.ends_with(ending))
      names.push_back(file.substr(0, file.size() - ending.size()));
  std::ranges::sort(names);
  return names;
}

NetDef load(const std::string& name, const std::string& part) {
  NetDef net = load_net(folder() + "/" + name + "." + part + ".pbtxt");
  std::vector<std::string> warnings;
  check_arg_names(net, &warnings);
  EXPECT_EQ(fmt::format("{}", fmt::join(warnings, "\n")), "") << part;
  expand_recurrent(net);
  return net;
}

// Within 1e-5 of the largest element. Some gradients are zero but for rounding: a bias before a softmax has one.
std::string compare_recorded(const Tensor& found, const Tensor& recorded) {
  if (found.dtype() != recorded.dtype()) return "is " + found.str() + " against " + recorded.str();
  const Tensor values = to_double(recorded);
  double largest = 2e-3;
  for (int64_t i = 0; i < values.size(); ++i) largest = std::max(largest, std::fabs(values.data<double>()[i]));
  return compare(found, recorded, 1e-5 * std::min(largest, 1.0), ErrorScale::tensor);
}

class Caffe2Nets : public ::testing::TestWithParam<std::string> {};

TEST_P(Caffe2Nets, GiveWhatCaffe2Computed) {
  const NetDef init = load(GetParam(), "init"), def = load(GetParam(), "net"), expected = load(GetParam(), "expected");
  ASSERT_EQ(expected.arg_size(), 1);
  for (const bool plan_memory : {false, true}) {
    Workspace workspace, recorded;
    RunContext run;
    run_net_once(init, workspace, run);
    run_net_once(expected, recorded, run);
    const std::vector<std::string> names = recorded.names();
    ASSERT_FALSE(names.empty());
    Net net(def, workspace, {.plan_memory = plan_memory, .keep = {names.begin(), names.end()}});
    for (int64_t i = 0; i < expected.arg(0).i(); ++i) net.run(run);
    for (const std::string& name : names)
      EXPECT_EQ(compare_recorded(workspace.fetch(name), recorded.fetch(name)), "") << name;
  }
}

// The net's forward part, in double: what stands before its gradients' operators.
GradientSubject forward_part(const NetDef& net, const Workspace& workspace) {
  GradientSubject subject;
  subject.net = net;
  subject.net.clear_external_input();
  subject.net.clear_external_output();
  const auto first =
      std::ranges::find_if(net.op(), [](const OperatorDef& op) { return op.is_gradient_op(); }) - net.op().begin();
  subject.net.mutable_op()->DeleteSubrange(static_cast<int>(first), net.op_size() - static_cast<int>(first));
  const auto is_given = [](const OperatorDef& op) { return op.output_size() == 1 && op.output(0).ends_with("_grad"); };
  while (subject.net.op_size() > 0 && is_given(subject.net.op(subject.net.op_size() - 1)))
    subject.net.mutable_op()->RemoveLast();
  for (OperatorDef& op : *subject.net.mutable_op())
    if (std::ranges::any_of(op_spec(op.type()).args, [](const ArgSpec& arg) { return arg.name == "dtype"; }))
      if (!find_arg(op, "dtype")) *op.add_arg() = make_arg("dtype", static_cast<int64_t>(DType::float64));
  for (const std::string& name : read_from_outside(subject.net)) {
    const Blob* blob = workspace.find(name);
    if (!blob || !blob->is_tensor() || blob->empty()) continue;
    const Tensor& value = blob->tensor();
    subject.feeds[name] = is_floating(value.dtype()) ? to_double(value) : value.clone();
    if (is_floating(value.dtype())) subject.inputs.push_back(name);
  }
  return subject;
}

// Networks in the full form that Caffe2's builders wrote are read back, so that forward mode and second derivatives are
// there for them.
TEST_P(Caffe2Nets, AreDifferentiatedForwardAndTwice) {
  const NetDef def = load(GetParam(), "net");
  const auto is_differentiated = [](const OperatorDef& op) { return op.type() == "RecurrentNetworkGradient"; };
  if (std::ranges::none_of(def.op(), is_differentiated) || GetParam() == "crf") return;  // that has constants of float
  Workspace workspace;
  RunContext run;
  run_net_once(load(GetParam(), "init"), workspace, run);
  GradientSubject subject = forward_part(def, workspace);
  subject.outputs = floating_outputs(subject, 1);
  if (subject.outputs.empty() || subject.inputs.empty()) return;
  GradientCheckOptions options;
  options.directions = 1;
  options.tolerance = 1e-6;
  if (!check_gradients(subject, options).right()) {
    // The backward step net that Caffe2's builder wrote for this one does not compute the derivative.
    EXPECT_EQ(GetParam(), "residual_lstm_3_1_2");
    return;
  }
  options.forward = true;
  options.order = 2;
  EXPECT_EQ(check_gradients(subject, options).str(), "");
}

INSTANTIATE_TEST_SUITE_P(Recorded, Caffe2Nets, ::testing::ValuesIn(recorded()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace stepnet::testing::caffe2_nets_test
