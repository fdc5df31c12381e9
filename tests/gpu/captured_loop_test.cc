// Loops of recurrent networks as graphs, and what is said where one cannot be captured.
#include "core/gradcheck/examples.h"
#include "core/operator/anomaly.h"
#include "core/operator/observer.h"
#include "gpu/runtime/faults.h"
#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "stepnet/run_context.h"
#include "stepnet/text.h"
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::captured_loop_test {
namespace {

class GpuCapturedLoop : public GpuTest {
 protected:
  // Every launch is waited for, which a capture prohibits.
  void wait_for_launches() { gpu::wait_for_launches(true); }
  void TearDown() override { gpu::wait_for_launches(false); }

  // h = tanh(x + h_prev) over 4 timesteps, run four times in the same places.
  void run(const std::function<void(const std::string&)>& warn) {
    NetDef net = parse_net_text(
        "device_option { device_type: 1 } op { type: 'RecurrentNetwork' input: 'x' input: 'h0' output: 'h_all' output: "
        "'h_last' [stepnet.recurrent] { sequence { outer: 'x' inner: 'x_t' } state { input: 'h_prev' output: 'h' "
        "initial: 'h0' all: 'h_all' last: 'h_last' } step_net { name: 'cell' external_input: 'x_t' external_input: "
        "'h_prev' external_output: 'h' op { type: 'Add' input: 'x_t' input: 'h_prev' output: 's' } op { type: 'Tanh' "
        "input: 's' output: 'h' } } } }",
        "a cell");
    expand_recurrent(net);
    Workspace blobs;
    blobs.tensor("x") = on_gpu(Tensor::of<float>({4, 1, 2}, {1, -1, 2, -2, 0, 1, 0, -1}));
    blobs.tensor("h0") = on_gpu(Tensor::of<float>({1, 2}, {0, 0}));
    RunContext context;
    context.warn = &warn;
    Net made(net, blobs);
    for (int i = 0; i < 4; ++i) {
      made.run(context);
      // tanh(tanh(tanh(tanh(1) + 2))), and tanh(tanh(tanh(tanh(-1) - 2) + 1) - 1)
      EXPECT_EQ(
          compare(copied_to(blobs.fetch("h_last"), {}), Tensor::of<float>({1, 1, 2}, {0.6400351F, -0.7582333F}), 1e-6),
          "");
    }
  }
};

// h = x + w h_prev over 4 timesteps, with a factor on the CPU that is another one in every second run, so that a graph
// of a run before would be at the same addresses.
TEST_F(GpuCapturedLoop, HasNoOldNumbersOfTheCpu) {
  NetDef net = parse_net_text(
      "device_option { device_type: 1 } op { type: 'RecurrentNetwork' input: 'x' input: 'h0' input: 'one' input: 'w' "
      "output: 'h_all' output: 'h_last' [stepnet.recurrent] { sequence { outer: 'x' inner: 'x_t' } state { input: "
      "'h_prev' output: 'h' initial: 'h0' all: 'h_all' last: 'h_last' } step_net { name: 'cell' external_input: 'x_t' "
      "external_input: 'h_prev' external_input: 'one' external_input: 'w' external_output: 'h' op { type: "
      "'WeightedSum' "
      "input: 'x_t' input: 'one' input: 'h_prev' input: 'w' output: 'h' } } } }",
      "a cell");
  expand_recurrent(net);
  Workspace blobs;
  blobs.tensor("x") = on_gpu(Tensor::of<float>({4, 1, 1}, {1, 1, 1, 1}));
  blobs.tensor("h0") = on_gpu(Tensor::of<float>({1, 1}, {0}));
  blobs.tensor("one") = on_gpu(Tensor::of<float>({1}, {1}));
  blobs.tensor("w") = Tensor::of<float>({1}, {0});
  RunContext context;
  Net made(net, blobs);
  for (int i = 0; i < 8; ++i) {
    const auto w = static_cast<float>(i / 2);
    blobs.tensor("w").copy_from(Tensor::of<float>({1}, {w}));
    made.run(context);
    const Tensor last = Tensor::of<float>({1, 1, 1}, {1 + w * (1 + w * (1 + w))});
    EXPECT_EQ(compare(copied_to(blobs.fetch("h_last"), {}), last, 1e-6), "") << "run " << i;
  }
}

// A graph has no operators that could be looked at.
TEST_F(GpuCapturedLoop, IsNoneWhereAnomaliesAreLookedFor) {
  NetDef net = parse_net_text(
      "device_option { device_type: 1 } op { type: 'RecurrentNetwork' input: 'x' input: 'h0' output: 'h_all' output: "
      "'h_last' [stepnet.recurrent] { sequence { outer: 'x' inner: 'x_t' } state { input: 'h_prev' output: 'h' "
      "initial: 'h0' all: 'h_all' last: 'h_last' } step_net { name: 'cell' external_input: 'x_t' external_input: "
      "'h_prev' external_output: 'h' op { type: 'Add' input: 'x_t' input: 'h_prev' output: 's' } op { type: 'Log' "
      "input: 's' output: 'h' } } } }",
      "a cell");
  expand_recurrent(net);
  Workspace blobs;
  blobs.tensor("x") = on_gpu(Tensor::of<float>({4, 1, 1}, {2, 2, 3, 4}));
  blobs.tensor("h0") = on_gpu(Tensor::of<float>({1, 1}, {0}));
  Net made(net, blobs);
  RunContext context;
  for (int i = 0; i < 4; ++i) made.run(context);
  AnomalyWatch watch;
  context.anomalies = &watch;
  blobs.tensor("x").copy_from(Tensor::of<float>({4, 1, 1}, {2, 2, -3, 4}));
  const std::string error = error_of([&] { made.run(context); });
  EXPECT_NE(error.find("step net \"cell\""), error.npos) << error;
}

TEST_F(GpuCapturedLoop, IsNotSpokenOf) {
  run([](const std::string& warning) { ADD_FAILURE() << warning; });
}

TEST_F(GpuCapturedLoop, IsAWarningWhereItIsRefused) {
  wait_for_launches();
  std::vector<std::string> warnings;
  run([&](const std::string& warning) { warnings.push_back(warning); });
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(warnings[0].find("\"cell\" is not captured as a graph") != std::string::npos) << warnings[0];
  EXPECT_TRUE(warnings[0].find("cudaErrorStreamCaptureUnsupported") != std::string::npos) << warnings[0];
}

TEST_F(GpuCapturedLoop, MayBeAnError) {
  wait_for_launches();
  EXPECT_THROW(run([](const std::string& warning) { throw Error(warning); }), Error);
}

// What has become of the loops of a net that is run.
class Loops : public NetObserver {
 public:
  void before(const BoundOp&) override {}
  void after(const BoundOp&) override {}
  void looped(std::string_view loop, const std::string& how) override { all[std::string(loop)] = how; }

  std::map<std::string, std::string> all;
};

// h = tanh(x + h_prev W) for each of 3 heads, which are the sequences here, with as many rows each, and the gradients
// of x and h0.
std::map<std::string, Tensor> run_heads(int64_t rows, const std::string& passes, Loops& loops) {
  NetDef net = parse_net_text(
      "device_option { device_type: 1 } op { type: 'RecurrentNetwork' input: 'x' input: 'h0' output: 'h_all' output: "
      "'h_last' " +
          passes +
          "[stepnet.recurrent] { sequence { outer: 'x' inner: 'x_t' } state { input: 'h_prev' output: 'h' initial: "
          "'h0' all: 'h_all' last: 'h_last' } step_net { name: 'cell' op { type: 'BatchMatMul' input: 'h_prev' input: "
          "'W' output: 'm' } op { type: 'Add' input: 'x_t' input: 'm' output: 's' } op { type: 'Tanh' input: 's' "
          "output: 'h' } } } }",
      "heads");
  expand_recurrent(net);
  const GradientResult found =
      add_gradient_operators(net, {.targets = {{"h_all", "dh_all"}}, .wanted = {"x", "h0"}, .stop = {}});
  Workspace blobs;
  unsigned seed = 0;
  const auto feed = [&](const std::string& name, const Shape& shape, double size) {
    blobs.tensor(name) = on_gpu(normal<float>(shape, ++seed, 0, size));
  };
  feed("x", {6, 3, rows, 16}, 0.7);
  feed("h0", {1, 3, rows, 16}, 0.5);
  feed("W", {1, 3, 16, 16}, 0.25);
  feed("dh_all", {6, 3, rows, 16}, 0.5);
  Net made(net, blobs);
  RunContext context;
  context.observer = &loops;
  made.run(context);
  std::map<std::string, Tensor> all;
  for (const std::string& name : {std::string("h_all"), found.gradients.at("x").dense, found.gradients.at("h0").dense})
    all[name] = copied_to(blobs.fetch(name), {});
  return all;
}

TEST_F(GpuCapturedLoop, IsOneKernelOfHeads) {
  for (const int64_t rows : {5, 70}) {
    Loops apart, together;
    const auto expected = run_heads(rows, "arg { name: 'disabled_passes' strings: 'persistent' } ", apart);
    for (const auto& [name, value] : run_heads(rows, "", together))
      EXPECT_EQ(compare(value, expected.at(name), 1e-5, ErrorScale::tensor), "") << name;
    EXPECT_EQ(together.all.size(), 2u);
    for (const auto& [loop, how] : together.all) {
      EXPECT_TRUE(how.starts_with("one kernel of ")) << loop << ": " << how;
      EXPECT_NE(how.find(" heads"), how.npos) << how;
    }
  }
}

}  // namespace
}  // namespace stepnet::testing::captured_loop_test
