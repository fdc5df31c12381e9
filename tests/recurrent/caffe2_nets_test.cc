// Nets made by Caffe2's own builders run as they are, without a warning, and give what Caffe2 computed
// (tests/data/caffe2_nets/README.md). STEPNET_CAFFE2_NETS names a folder with others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "core/operator/arg_names.h"
#include "recurrent/form/short_form.h"
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

INSTANTIATE_TEST_SUITE_P(Recorded, Caffe2Nets, ::testing::ValuesIn(recorded()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace stepnet::testing::caffe2_nets_test
