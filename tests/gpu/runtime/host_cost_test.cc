// What the host does for work that it has queued before: which calls of the runtime, and what it allocates. Counted on
// the imitated device.
#include <cuda_runtime.h>

#include "core/compute/backend.h"
#include "core/operator/observer.h"
#include "gpu/runtime/launch.h"
#include "gpu/runtime/timesteps.h"
#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "stepnet/run_context.h"
#include "stepnet/text.h"
#include "tests/core/heap_counter.h"
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::host_cost_test {
namespace {

using Calls = std::map<std::string, int64_t, std::less<>>;

// Those that `work` makes.
Calls calls_of(FunctionRef<> work) {
  const Calls before = emulated::calls();
  work();
  Calls made;
  for (const auto& [name, count] : emulated::calls()) {
    const auto at = before.find(name);
    if (const int64_t more = count - (at == before.end() ? 0 : at->second); more > 0) made[name] = more;
  }
  return made;
}

TEST_F(GpuTest, AScopeOfTheCurrentDeviceOnlyAsksForIt) {
  const gpu::DeviceScope outer(0);
  EXPECT_EQ(calls_of([] { const gpu::DeviceScope same(0); }), (Calls{{"cudaGetDevice", 1}}));
}

TEST_F(GpuTest, TheCurrentStreamIsNoCall) {
  const gpu::DeviceScope outer(0);
  gpu::current_stream(0);
  EXPECT_EQ(calls_of([] { gpu::current_stream(0); }), Calls{});
}

TEST_F(GpuTest, ALaunchIsOneOfThreeCalls) {
  const gpu::DeviceScope outer(0);
  gpu::current_stream(0);
  EXPECT_EQ(calls_of([] { gpu::each(0, 4, [] __device__(size_t) {}); }),
            (Calls{{"cudaGetDevice", 1}, {"cudaGetLastError", 1}, {"launch", 1}}));
}

struct Loop {
  std::string name;
  std::string state;       // h of the step, from x_t and h_prev
  std::string outer = {};  // arguments of the network
  std::string more = {};   // of its short form: another state
  int64_t gates = 1;       // widths of what is added up, by that of h
  friend void PrintTo(const Loop& loop, std::ostream* out) { *out << loop.name; }
};

std::string fc(const std::string& in, const std::string& out) {
  return "op { type: 'FC' arg { name: 'axis' i: 2 } input: '" + in + "' input: 'W' input: 'b' output: '" + out + "' } ";
}

// h = tanh(x_t + W h_prev + b), with something else in it.
const std::vector<Loop>& loops() {
  static const std::string rest =
      fc("h_prev", "m") +
      "op { type: 'Add' input: 'x_t' input: 'm' output: 's' } op { type: 'Tanh' input: 's' output: 'h' } ";
  static const std::string other =
      fc("h_prev", "m") +
      "op { type: 'Add' input: 'x_t' input: 'm' output: 's' } op { type: 'LogSoftmax' arg { name: 'axis' i: 2 } input: "
      "'s' output: 'n' } op { type: 'Tanh' input: 'n' output: 'h' } ";
  static const std::string random =
      "op { type: 'Dropout' arg { name: 'ratio' f: 0.25 } arg { name: 'is_test' i: 0 } input: 'h_prev' output: 'd' "
      "output: 'd_mask' } " +
      fc("d", "m") +
      "op { type: 'Add' input: 'x_t' input: 'm' output: 's' } op { type: 'Tanh' input: 's' output: 'h' } ";
  const auto unit = [](const std::string& inputs, int lengths) {
    return fc("h_prev", "m") +
           "op { type: 'Add' input: 'x_t' input: 'm' output: 's' } op { type: 'LSTMUnit' arg { name: "
           "'sequence_lengths' i: " +
           std::to_string(lengths) + " } input: 'h_prev' input: 'c_prev' input: 's' " + inputs +
           "output: 'h' output: 'c' } ";
  };
  static const std::string c = "state { input: 'c_prev' output: 'c' initial: 'h0' } ",
                           no_graph = "arg { name: 'disabled_passes' strings: 'graph' } ";
  static const std::string of_all = unit("input: 'timestep' ", 0),
                           of_some = unit("input: 'lengths' input: 'timestep' ", 1);
  static const std::vector<Loop> all = {{"captured", rest},
                                        {"captured_one_by_one", other},
                                        {"one_kernel", rest, no_graph},
                                        {"one_by_one", other, no_graph},
                                        {"random", random},
                                        {"lstm_as_one_kernel", of_all, no_graph, c, 4},
                                        {"lengths_captured", of_some, "", c, 4},
                                        {"lengths_as_one_kernel", of_some, no_graph, c, 4}};
  return all;
}

// Which loops of a net are no kernels.
class Loops : public NetObserver {
 public:
  void before(const BoundOp&) override {}
  void after(const BoundOp&) override {}
  void looped(std::string_view loop, const std::string& how) override {
    ++seen;
    if (!how.starts_with("one kernel of ")) others += fmt::format("{}: {}\n", loop, how);
  }

  int seen = 0;
  std::string others;
};

struct Made {
  Workspace blobs;
  std::unique_ptr<Net> net;
  RunContext context;
  int64_t heap_of_run() {
    const int64_t before = heap_allocations();
    net->run(context);
    return heap_allocations() - before;
  }
};

// A training step's nets: forward, and, if it trains, the gradients of W, b and x from one of h_all.
std::unique_ptr<Made> made(const Loop& loop, int64_t steps, bool train = true) {
  NetDef net = parse_net_text(
      "device_option { device_type: 1 } external_input: 'x' external_input: 'h0' external_input: 'W' external_input: "
      "'b' external_input: 'lengths' external_output: 'h_all' op { type: 'RecurrentNetwork' input: 'x' input: 'h0' "
      "input: 'W' input: 'b' input: 'lengths' output: 'h_all' " +
          loop.outer +
          "[stepnet.recurrent] { sequence { outer: 'x' inner: 'x_t' } state { input: 'h_prev' output: 'h' initial: "
          "'h0' all: 'h_all' } " +
          loop.more +
          "step_net { name: 'cell' external_input: 'x_t' external_input: 'h_prev' external_input: 'W' external_input: "
          "'b' external_input: 'lengths' external_output: 'h' " +
          loop.state + "} } }",
      "a cell");
  expand_recurrent(net);
  net.add_external_input("dh");
  if (train) add_gradient_operators(net, {.targets = {{"h_all", "dh"}}, .wanted = {"W", "b", "x"}, .stop = {}});
  auto made = std::make_unique<Made>();
  const int64_t batch = 3, width = 8;
  const auto feed = [&](const std::string& name, const Shape& shape) {
    Tensor t = Tensor::empty(DType::float32, shape);
    float v = 0;
    for (float& e : t.span<float>()) e = 0.3f * std::sin(v += 0.7f);
    made->blobs.tensor(name) = on_gpu(t);
  };
  feed("x", {steps, batch, loop.gates * width});
  feed("h0", {1, batch, width});
  feed("W", {loop.gates * width, width});
  feed("b", {loop.gates * width});
  feed("dh", {steps, batch, width});
  made->blobs.tensor("lengths") = on_gpu(Tensor::of<int32_t>({batch}, {3, 6, 1}));
  made->net = std::make_unique<Net>(net, made->blobs);
  return made;
}

class HostCost : public GpuTest, public ::testing::WithParamInterface<Loop> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    skip_heap_while(emulated::inside);
  }
  void TearDown() override { skip_heap_while(nullptr); }
};

// Some for each network and for each block of timesteps, as on the CPU, and none for a timestep.
TEST_P(HostCost, ATimestepOfALaterRunAllocatesNothing) {
  if (!counts_heap()) GTEST_SKIP() << "a sanitizer has its own operator new";
  const auto heap_of = [&](int64_t steps) {
    const auto loop = made(GetParam(), steps);
    for (int i = 0; i < 6; ++i) loop->net->run(loop->context);
    int64_t least = loop->heap_of_run();
    for (int i = 0; i < 3; ++i) least = std::min(least, loop->heap_of_run());
    return least;
  };
  const int64_t few = heap_of(10), many = heap_of(20);
  RecordProperty("of_a_run", std::to_string(few));
  EXPECT_EQ(few, many);
  EXPECT_LE(few, 40);  // two networks: maps of their links and gradients, and no names
}

Calls calls_of_run(const std::string& name, int64_t steps) {
  const auto loop = made(*std::ranges::find(loops(), name, &Loop::name), steps);
  for (int i = 0; i < 5; ++i) loop->net->run(loop->context);
  return calls_of([&] { loop->net->run(loop->context); });
}

// The gradients of rows from outside are no launches of their own: they are in the graph, or in the kernel.
TEST_F(GpuTest, TimestepsAreNoLaunchesOfALoopThatIsOneThing) {
  for (const std::string name : {"captured", "captured_one_by_one", "one_kernel", "lengths_as_one_kernel"}) {
    const Calls few = calls_of_run(name, 6);
    EXPECT_EQ(few, calls_of_run(name, 40)) << name;
    const auto graphs = few.find("cudaGraphLaunch");
    EXPECT_EQ(graphs == few.end() ? 0 : graphs->second, name.ends_with("one_kernel") ? 0 : 2) << name;
  }
  EXPECT_LT(calls_of_run("one_by_one", 6)["launch"], calls_of_run("one_by_one", 40)["launch"]);
}

void expect_planned_once(const std::string& name) {
  SCOPED_TRACE(name);
  const Loop& loop = *std::ranges::find(loops(), name, &Loop::name);
  const auto first = made(loop, 6), second = made(loop, 6);
  const auto planned_by = [](Made& m) {
    const int64_t before = gpu::planned_loops();
    Loops shown;
    m.context.observer = &shown;
    m.net->run(m.context);
    m.context.observer = nullptr;
    EXPECT_EQ(shown.others, "");
    EXPECT_EQ(shown.seen, 2);  // forward and backward
    return gpu::planned_loops() - before;
  };
  for (int i = 0; i < 3; ++i) {
    planned_by(*first);
    planned_by(*second);  // at other addresses
  }
  EXPECT_EQ(planned_by(*first), 0);
  EXPECT_EQ(planned_by(*second), 0);
  const Tensor x = first->blobs.tensor("x"), other = on_gpu(Tensor::zeros(DType::float32, x.shape()));
  const Tensor h = copied_to(first->blobs.fetch("h_all"), {});
  first->blobs.tensor("x") = other;
  planned_by(*first);
  EXPECT_NE(compare(copied_to(first->blobs.fetch("h_all"), {}), h, 1e-3), "");
  first->blobs.tensor("x") = x;
  planned_by(*first);
  EXPECT_EQ(compare(copied_to(first->blobs.fetch("h_all"), {}), h, 0), "");
}

TEST_F(GpuTest, ALoopThatRunsAgainIsNotPlannedAgain) {
  for (const char* name : {"one_kernel", "lstm_as_one_kernel", "lengths_as_one_kernel"}) expect_planned_once(name);
}

// Of a plan that is kept, too, lengths are looked at in every run. Forward, as the last timestep of a backward run is
// none of the kernel's, and finds them by itself.
TEST_F(GpuTest, LengthsOfALaterRunMustNotBeNegative) {
  const auto loop = made(*std::ranges::find(loops(), "lengths_as_one_kernel", &Loop::name), 6, false);
  for (int i = 0; i < 3; ++i) loop->net->run(loop->context);
  const int64_t planned = gpu::planned_loops();
  const Tensor bad = on_gpu(Tensor::of<int32_t>({3}, {3, -4, 1}));
  loop->blobs.tensor("lengths").copy_from(bad);  // where they are
  const std::string text = error_of([&] {
    loop->net->run(loop->context);
    copied_to(loop->blobs.fetch("h_all"), {});
  });
  EXPECT_NE(text.find("a length in seq_lengths is -4"), text.npos) << text;
  EXPECT_EQ(gpu::planned_loops(), planned);
}

TEST_F(GpuTest, BuffersThatTakeTurnsHaveGraphsOfTheirOwn) {
  const auto loop = made(loops()[0], 6);
  const std::vector<Tensor> turns = {loop->blobs.tensor("x"), on_gpu(Tensor::zeros(DType::float32, {6, 3, 8}))};
  std::vector<Tensor> found(2);
  const auto run = [&](size_t turn) {
    loop->blobs.tensor("x") = turns[turn];
    loop->net->run(loop->context);
    const Tensor now = copied_to(loop->blobs.fetch("h_all"), {});
    EXPECT_EQ(found[turn].defined() ? compare(now, found[turn], 0) : "", "");
    found[turn] = now;
  };
  for (size_t i = 0; i < 8; ++i) run(i % 2);
  const Calls later = calls_of([&] {
    for (size_t i = 0; i < 4; ++i) run(i % 2);
  });
  EXPECT_EQ(later.at("cudaGraphLaunch"), 8);  // forward and backward
  EXPECT_EQ(later.count("cudaStreamBeginCapture"), 0u);
  EXPECT_NE(compare(found[0], found[1], 1e-3), "");
}

INSTANTIATE_TEST_SUITE_P(Loops, HostCost, ::testing::ValuesIn(loops()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stepnet::testing::host_cost_test
