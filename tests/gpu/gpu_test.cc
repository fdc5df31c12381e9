#include "tests/gpu/gpu_test.h"

#include <cmath>

namespace stepnet::testing {
namespace {

// Makes zeros of what is NaN in both; returns how many there are.
template <class T>
int64_t zero_common_nans(Tensor& a, Tensor& b) {
  int64_t count = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    T &x = a.data<T>()[i], &y = b.data<T>()[i];
    if (!std::isnan(x) || !std::isnan(y)) continue;
    x = y = 0;
    ++count;
  }
  return count;
}

}  // namespace

Tensor on_gpu(const Tensor& t) { return copied_to(t, kGpu); }

std::vector<Tensor> run_op_on_gpu(OperatorDef def, const Feeds& feeds) {
  def.mutable_device_option()->set_device_type(CUDA);
  Workspace workspace;
  NetDef net;
  *net.add_op() = def;
  for (const auto& [name, tensor] : feeds) workspace.tensor(name) = on_gpu(tensor);
  RunContext run;
  run_net_once(net, workspace, run);
  std::vector<Tensor> outputs;
  for (const std::string& name : def.output()) {
    if (name.empty()) {
      outputs.emplace_back();
      continue;
    }
    const Tensor& there = workspace.fetch(name);
    if (there.device() != kGpu) ADD_FAILURE() << name << " is not on the GPU";
    outputs.push_back(copied_to(there, {}));
  }
  return outputs;
}

std::string compare_devices(OperatorDef def, const Feeds& feeds, double tol, int64_t nans) {
  std::vector<Tensor> expected = run_op_on(def, feeds), found = run_op_on_gpu(def, feeds);
  for (size_t i = 0; i < found.size(); ++i) {
    if (def.output(static_cast<int>(i)).empty()) continue;
    if (found[i].dtype() != expected[i].dtype() || !(found[i].shape() == expected[i].shape()))
      return found[i].str() + " against " + expected[i].str();
    if (found[i].dtype() == DType::float32) nans -= zero_common_nans<float>(found[i], expected[i]);
    if (found[i].dtype() == DType::float64) nans -= zero_common_nans<double>(found[i], expected[i]);
    if (const std::string wrong = compare(found[i], expected[i], tol, ErrorScale::tensor); !wrong.empty()) return wrong;
  }
  return nans == 0 ? "" : fmt::format("{} NaN too {}", std::abs(nans), nans > 0 ? "few" : "many");
}

}  // namespace stepnet::testing
