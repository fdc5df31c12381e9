// Every operator's examples, dry and for real: what a kernel takes beside its outputs must be declared.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/gradcheck/examples.h"
#include "stepnet/gradients.h"
#include "stepnet/matmul.h"
#include "tests/core/estimate_testing.h"

namespace stepnet::testing::estimate_operators_test {
namespace {

using Types = std::map<std::string, TensorType>;

Tensor in_float(const Tensor& value) {
  if (value.dtype() != DType::float64) return value.clone();
  Tensor converted = Tensor::empty(DType::float32, value.shape());
  std::ranges::transform(value.span<double>(), converted.data<float>(), [](double v) { return static_cast<float>(v); });
  return converted;
}

bool has_float_kernel(const NetDef& net) {
  return std::ranges::all_of(net.op(), [](const OperatorDef& op) {
    const OpSpec& spec = op_spec(op.type());
    return spec.kernels.empty() || std::ranges::any_of(spec.kernels, [](const Kernel& k) {
             return k.dtype == DType::float32 || k.dtype == DType::undefined;
           });
  });
}

std::unique_ptr<NetSession> session_of(const NetDef& net, const std::map<std::string, Tensor>& feeds) {
  auto session = std::make_unique<NetSession>();
  for (const auto& [name, value] : feeds) {
    Tensor& blob = session->blobs.create_local(name).tensor();
    blob = Tensor::empty(value.dtype(), value.shape());
    if (!blob.is_dry()) blob.copy_from(value);
  }
  session->net = std::make_unique<Net>(net, session->blobs, NetOptions{.release_intermediates = true});
  return session;
}

struct RealRun {
  std::vector<OpMemory> figures;
  double product_flops = 0;
};

RealRun real_run(const NetDef& net, const std::map<std::string, Tensor>& feeds) {
  forget_products();
  const LiveBytes base = live_bytes();
  const auto session = session_of(net, feeds);
  const double before = matmul_counters().flops;
  count_matmuls(true);
  RealRun result{run_measured(*session, base), 0};
  count_matmuls(false);
  result.product_flops = matmul_counters().flops - before;
  return result;
}

// What a real run makes of every blob, if the net keeps all of them.
Types types_of(const NetDef& net, const std::map<std::string, Tensor>& feeds) {
  Workspace blobs;
  for (const auto& [name, value] : feeds) blobs.tensor(name) = value.clone();
  RunContext run;
  run_net_once(net, blobs, run);
  Types types;
  for (const std::string& name : blobs.names()) {
    const Blob& blob = blobs.at(name);
    if (blob.is_tensor() && !blob.empty()) types[name] = TensorType::of(blob.tensor().dtype(), blob.tensor().shape());
  }
  return types;
}

std::string compare(const NetDef& net, const std::map<std::string, Tensor>& feeds, const Types& bounds) {
  std::vector<OpMemory> dry;
  double flops = 0;
  {
    DryScope scope;
    for (const auto& [name, type] : bounds) scope.bounds[name] = {type.dtype, type.shape};
    dry = run_measured(*session_of(net, feeds));
    flops = scope.product_flops;
  }
  const RealRun real = real_run(net, feeds);
  for (size_t i = 0; i < dry.size(); ++i)
    if (dry[i] != real.figures[i])
      return fmt::format("{} (operator {}): {} / {} / {}, estimated are {} / {} / {}",
                         net.op(static_cast<int>(i)).type(), i, real.figures[i].before, real.figures[i].peak,
                         real.figures[i].after, dry[i].before, dry[i].peak, dry[i].after);
  return flops == real.product_flops ? "" : fmt::format("{} of products, estimated are {}", real.product_flops, flops);
}

// The example forward, and with the gradients of all inputs that have one.
std::vector<GradientSubject> nets_of(const OpSpec& spec, const OpExample& example) {
  GradientSubject subject = example_subject(spec, example, 1);
  std::vector<GradientSubject> nets = {subject};
  if (subject.inputs.empty() || subject.outputs.empty()) return nets;
  GradientRequest request;
  request.wanted.insert(subject.inputs.begin(), subject.inputs.end());
  for (const std::string& output : subject.outputs) request.targets.emplace_back(output, "");
  add_gradient_operators(subject.net, request);
  nets.push_back(subject);
  return nets;
}

// Which of their nets run, and how often, only data says.
const std::set<std::string>& refused_types() {
  static const std::set<std::string> types = {"If", "While"};
  return types;
}

class EstimateOf : public ::testing::TestWithParam<std::string> {};

TEST_P(EstimateOf, ExamplesIsExact) {
  const OpSpec& spec = op_spec(GetParam());
  for (const OpExample& example : spec.examples) {
    if (example.net.find("$FOLDER") != std::string::npos) continue;  // what files hold is data
    for (const GradientSubject& subject : nets_of(spec, example)) {
      std::vector<std::map<std::string, Tensor>> feeds = {subject.feeds};
      if (has_float_kernel(subject.net)) {
        for (auto& [name, value] : feeds.emplace_back(subject.feeds)) value = in_float(value);
      }
      for (const auto& given : feeds) {
        SCOPED_TRACE(subject.net.ShortDebugString());
        try {
          EXPECT_EQ(compare(subject.net, given, {}), "");
        } catch (const Error& e) {
          const std::string text = e.what();
          EXPECT_TRUE(text.find("depends on data") != text.npos || text.find("a dry run has none") != text.npos)
              << text;
          if (refused_types().contains(GetParam())) continue;
          EXPECT_EQ(compare(subject.net, given, types_of(subject.net, given)), "");
        }
      }
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<std::string>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(Operators, EstimateOf, ::testing::ValuesIn(op_types()), name_of);

}  // namespace
}  // namespace stepnet::testing::estimate_operators_test
