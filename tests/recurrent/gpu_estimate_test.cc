// Estimates for a GPU against its allocator, where there is one or one is imitated: peaks of nets and training steps.
#include <gtest/gtest.h>

#include "core/compute/backend.h"
#include "core/operator/nets_inside.h"
#include "core/operator/observer.h"
#include "recurrent/form/short_form.h"
#include "recurrent/train/memory_budget.h"
#include "stepnet/device.h"
#include "tests/recurrent/estimate_nets.h"

namespace stepnet::testing::gpu_estimate_test {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};
constexpr int kRuns = 2;

class GpuEstimate : public ::testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    if (!device_offered(DeviceKind::cuda)) GTEST_SKIP() << "there is no GPU, and none is imitated";
  }
};

// A definition of an operator has no device: it runs on that of the operator that it defines.
NetDef on_gpu(NetDef net) {
  for_each_net(net, [](NetDef& inner) { inner.mutable_device_option()->set_device_type(CUDA); });
  for_each_net(net, [](NetDef& inner) {
    for_each_definition(inner, [](NetDef& definition) { definition.clear_device_option(); });
  });
  return net;
}

std::unique_ptr<NetSession> forward(const EstimateNet& n, Device device) {
  NetDef net = n.net;
  expand_recurrent(net);
  ForwardOptions options{.feeds = n.data};
  options.feeds.insert(n.parameters.begin(), n.parameters.end());
  options.device = device;
  return forward_session(device == kGpu ? on_gpu(net) : net, options);
}

std::unique_ptr<NetSession> training(const EstimateNet& n, Device device) {
  TrainingEstimate t{.model = model_of(device == kGpu ? on_gpu(n.net) : n.net, {}, n.loss)};
  t.model.device = t.device = device;
  t.optimizer.optimizer = "adam";
  t.feeds = n.data;
  t.parameters = n.parameters;
  return training_net_session(t);
}

// Each operator's peak, beyond what was live before.
class Peaks : public NetObserver {
 public:
  Peaks(std::function<MemoryCounters()> now, std::function<void()> reset, int64_t base)
      : now_(std::move(now)), reset_(std::move(reset)), base_(base) {}
  void before(const BoundOp&) override { reset_(); }
  void after(const BoundOp& op) override {
    peaks.push_back(now_().peak - base_);
    ops.push_back(op.def.type());
  }
  int64_t most() const { return peaks.empty() ? 0 : *std::ranges::max_element(peaks); }
  std::vector<int64_t> peaks;
  std::vector<std::string> ops;

 private:
  std::function<MemoryCounters()> now_;
  std::function<void()> reset_;
  int64_t base_;
};

void run_watched(NetSession& session, Peaks& peaks) {
  for (int i = 0; i < kRuns; ++i) {
    RunContext run;
    run.observer = &peaks;
    session.net->run(run);
    if (session.advance) session.advance();
  }
}

using Make = std::unique_ptr<NetSession> (*)(const EstimateNet&, Device);

// What stays for kernels to work on is left out on both sides: a real device's products have a workspace, and only
// where NVRTC is missing, as on the imitated device, there are instructions of chains.
int64_t workspaces() { return memory_by_category(kGpu)[static_cast<size_t>(MemoryCategory::workspace)].live; }

Peaks estimated(const EstimateNet& n, Make make) {
  DryScope scope(DeviceKind::cuda);
  Peaks peaks(
      [&] {
        MemoryCounters now = scope.counters();
        if (scope.product_flops > 0) now.peak -= kDeviceProductWorkspace;
        return now;
      },
      [&] { scope.reset_peak(); }, 0);
  const auto session = make(n, kGpu);
  run_watched(*session, peaks);
  return peaks;
}

Peaks measured(const EstimateNet& n, Make make) {
  Allocator& memory = allocator(kGpu);
  memory.synchronize();
  const int64_t before = workspaces();
  Peaks peaks(
      [&] {
        MemoryCounters now = memory.counters();
        now.peak -= workspaces() - before;
        return now;
      },
      [&] { memory.reset_peak(); }, memory.counters().live);
  const auto session = make(n, kGpu);
  run_watched(*session, peaks);
  memory.synchronize();
  return peaks;
}

// "" or what is wrong: the net's peak is to be exact, and is known to within 2% at worst.
std::string compare_with_gpu(const EstimateNet& n, Make make) {
  const Peaks dry = estimated(n, make), real = measured(n, make);
  const double ratio = static_cast<double>(dry.most()) / static_cast<double>(std::max<int64_t>(real.most(), 1));
  std::string text;
  if (std::abs(ratio - 1) > 0.02) text = fmt::format("the peak is {}, estimated {}\n", real.most(), dry.most());
  if (text.empty() || real.ops != dry.ops) return text;
  for (size_t i = 0; i < real.ops.size(); ++i)
    if (real.peaks[i] != dry.peaks[i])
      text += fmt::format("  {} {}: {}, estimated {}\n", i, real.ops[i], real.peaks[i], dry.peaks[i]);
  return text;
}

TEST_P(GpuEstimate, OfNetsIsThePeakOfTheAllocator) {
  for (const EstimateNet& n : estimate_nets(GetParam())) {
    SCOPED_TRACE(n.name);
    EXPECT_EQ(compare_with_gpu(n, forward), "") << "forward";
    EXPECT_EQ(compare_with_gpu(n, training), "") << "training";
  }
}

TEST_P(GpuEstimate, OfCellsIsThePeakOfTheAllocator) {
  for (const EstimateNet& n : estimate_cells(GetParam())) {
    SCOPED_TRACE(n.name);
    EXPECT_EQ(compare_with_gpu(n, forward), "") << "forward";
    EXPECT_EQ(compare_with_gpu(n, training), "") << "training";
  }
}

INSTANTIATE_TEST_SUITE_P(Draws, GpuEstimate, ::testing::Range(uint64_t{0}, uint64_t{3}));

}  // namespace
}  // namespace stepnet::testing::gpu_estimate_test
