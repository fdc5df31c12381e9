// Nets on several streams. The imitated device runs what is queued only when somebody waits, and before it only what
// events order before it: there, a wait that is missing is a wrong value here.
#include <random>

#include "gpu/runtime/memory.h"
#include "gpu/runtime/stream.h"
#include "stepnet/tensor.h"
#include "stepnet/text.h"
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::net_streams_test {
namespace {

constexpr int64_t kSize = 4096;

Tensor random_values(uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  Tensor t = Tensor::empty(DType::float32, {kSize});
  for (float& v : t.span<float>()) v = values(random);
  return t;
}

OperatorDef& add(NetDef& net, const std::string& type, const std::vector<std::string>& in, const std::string& out) {
  OperatorDef& op = *net.add_op();
  op.set_type(type);
  for (const std::string& name : in) op.add_input(name);
  op.add_output(out);
  return op;
}

// Chains that part, meet, overwrite each other's blobs and share bytes.
NetDef random_net(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return random() % n; };
  NetDef net;
  net.mutable_device_option()->set_device_type(CUDA);
  std::vector<std::string> names = {"x0", "x1", "x2"};
  const auto any = [&] { return names[below(names.size())]; };
  for (int i = 0; i < 40; ++i) {
    const bool overwrites = below(4) == 0;
    const std::string fresh = "b" + std::to_string(i), a = any(), b = any();
    const std::string out = overwrites ? any() : fresh;
    const size_t kind = below(6);
    if (kind == 0 && !overwrites) {
      add(net, "Alias", {a}, fresh);
    } else if (kind == 1) {
      add(net, "Tanh", {a}, a);
    } else if (kind == 2 && a != out) {
      add(net, "Tanh", {a}, out);
    } else if (kind == 3) {
      add(net, "Sigmoid", {a}, a);
    } else if (out != b && a != b) {
      add(net, "Sub", {a, b}, out == a ? a : out);
    } else {
      continue;
    }
    if (!overwrites && std::ranges::any_of(net.op(), [&](const OperatorDef& op) { return op.output(0) == fresh; }))
      names.push_back(fresh);
  }
  for (const char* name : {"x0", "x1", "x2"}) net.add_external_input(name);
  return net;
}

NetDef with_streams(NetDef net, int streams) {
  Argument& arg = *net.add_arg();
  arg.set_name("streams");
  arg.set_i(streams);
  return net;
}

class GpuNetStreams : public GpuTest {
 protected:
  static void feed(Workspace& workspace) {
    for (uint32_t i = 0; i < 3; ++i) workspace.tensor("x" + std::to_string(i)) = on_gpu(random_values(i));
  }
  // All blobs after some runs.
  static std::map<std::string, Tensor> results(const NetDef& net, const NetOptions& options, int runs) {
    Workspace workspace;
    feed(workspace);
    Net bound(net, workspace, options);
    RunContext run;
    for (int i = 0; i < runs; ++i) bound.run(run);
    std::map<std::string, Tensor> found;
    for (const std::string& name : workspace.names())
      if (const Tensor& t = workspace.fetch(name); t.raw()) found[name] = copied_to(t, {});
    return found;
  }
  static void expect_same(const std::map<std::string, Tensor>& is, const std::map<std::string, Tensor>& should,
                          const std::string& where) {
    ASSERT_EQ(is.size(), should.size()) << where;
    for (const auto& [name, value] : should) EXPECT_EQ(compare(is.at(name), value, 0), "") << where << ", " << name;
  }
};

TEST_F(GpuNetStreams, ResultsHaveTheSameBits) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const NetDef net = random_net(seed);
    for (const bool releases : {false, true}) {
      NetOptions options;
      options.release_intermediates = releases;
      expect_same(results(net, options, 3), results(with_streams(net, 1), options, 3), std::to_string(seed));
    }
  }
}

// Two chains, of which the second is on a stream of its own.
NetDef two_chains() {
  return parse_net_text(R"(device_option { device_type: 1 }
    op { type: "Tanh" input: "x0" output: "a" } op { type: "Tanh" input: "a" output: "b" }
    op { type: "Tanh" input: "x1" output: "c" } op { type: "Tanh" input: "c" output: "d" }
    op { type: "Sub" input: "b" input: "d" output: "y" })",
                        "two.pbtxt");
}

TEST_F(GpuNetStreams, TheCallersStreamIsWaitedForAndWaits) {
  static const gpu::Stream& side = *new gpu::Stream;
  Workspace workspace;
  feed(workspace);
  Net net(two_chains(), workspace);
  RunContext run;
  net.run(run);
  {
    const gpu::StreamScope scope(0, side.get());
    workspace.tensor("x1").fill_zero();
    net.run(run);
    EXPECT_EQ(gpu::current_stream(0), side.get());
    workspace.tensor("x1").copy_from(workspace.fetch("d"));  // behind the run
  }
  EXPECT_EQ(compare(copied_to(workspace.fetch("d"), {}), Tensor::zeros(DType::float32, {kSize}), 0), "");
  EXPECT_EQ(compare(copied_to(workspace.fetch("x1"), {}), Tensor::zeros(DType::float32, {kSize}), 0), "");
  EXPECT_EQ(compare(copied_to(workspace.fetch("y"), {}), copied_to(workspace.fetch("b"), {}), 0), "");
}

TEST_F(GpuNetStreams, SomebodyElsesViewsAreSeen) {
  Workspace workspace;
  feed(workspace);
  // "d" has the bytes of "x0", which nobody could know beforehand.
  workspace.tensor("d") = workspace.tensor("x0");
  const Tensor x0 = copied_to(workspace.fetch("x0"), {});
  Net net(two_chains(), workspace);
  RunContext run;
  net.run(run);
  net.run(run);
  Workspace one;
  feed(one);
  one.tensor("d") = one.tensor("x0");
  Net expected(with_streams(two_chains(), 1), one);
  expected.run(run);
  expected.run(run);
  for (const char* name : {"a", "b", "d", "x0", "y"})
    EXPECT_EQ(compare(copied_to(workspace.fetch(name), {}), copied_to(one.fetch(name), {}), 0), "") << name;
}

TEST_F(GpuNetStreams, AFailedRunLeavesTheCallersStream) {
  Workspace workspace;
  feed(workspace);
  NetDef def = two_chains();
  def.mutable_op(3)->set_type("Sub");  // on the second stream
  def.mutable_op(3)->add_input("x2");
  Net net(def, workspace);
  RunContext run;
  net.run(run);
  workspace.tensor("x2") = on_gpu(Tensor::of<float>({2}, {1, 2}));
  const cudaStream_t here = gpu::current_stream(0);
  EXPECT_NE(error_of([&] { net.run(run); }).find("Sub"), std::string::npos);
  EXPECT_EQ(gpu::current_stream(0), here);
  EXPECT_FALSE(gpu::keep_apart(false));
  // What was queued comes before what is queued now.
  workspace.tensor("c").fill_zero();
  EXPECT_EQ(compare(copied_to(workspace.fetch("c"), {}), Tensor::zeros(DType::float32, {kSize}), 0), "");
  feed(workspace);
  net.run(run);
}

TEST_F(GpuNetStreams, TheirNumberIsChecked) {
  Workspace workspace;
  feed(workspace);
  for (const int streams : {0, 17})
    EXPECT_NE(error_of([&] {
                Net(with_streams(two_chains(), streams), workspace);
              }).find("the argument \"streams\" of net \"\" must be an integer from 1 to 16"),
              std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::net_streams_test
