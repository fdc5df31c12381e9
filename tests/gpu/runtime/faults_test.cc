// Bad values that kernels find: which operator had them is said where the host waits.
#include "gpu/runtime/faults.h"

#include <set>

#include "core/operator/running_op.h"
#include "stepnet/text.h"
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::faults_test {
namespace {

class GpuFaults : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    workspace_.tensor("X") = on_gpu(Tensor::of<float>({3}, {1, 2, 3}));
    feed("good", {0, 2});
    feed("bad", {1, 7});
  }
  void TearDown() override { gpu::wait_for_launches(false); }

  void feed(const std::string& name, std::initializer_list<int32_t> indices) {
    workspace_.tensor(name) = on_gpu(Tensor::of<int32_t>({static_cast<int64_t>(indices.size())}, indices));
  }
  void run(const std::string& text) {
    RunContext context;
    run_net_once(parse_net_text("device_option { device_type: 1 }\n" + text, "look.pbtxt"), workspace_, context);
  }
  Tensor fetched(const std::string& name) { return copied_to(workspace_.fetch(name), {}); }

  Workspace workspace_;
};

TEST_F(GpuFaults, NameTheOperatorItsNetAndPlace) {
  run(R"(name: "look"
         op { type: "Gather" input: "X" input: "good" output: "A" }
op { type: "Gather" input: "X" input: "bad" output: "B" })");
  EXPECT_EQ(error_of([&] { fetched("B"); }),
            "Gather: an index is 7, outside of [0, 3)\n"
            "  in  look.pbtxt:4:1, operator 1 of net \"look\"\n"
            "  op  B = Gather(X, bad)");
  EXPECT_EQ(compare(fetched("A"), Tensor::of<float>({2}, {1, 3}), 0), "");  // it is said once
  EXPECT_EQ(compare(fetched("B"), Tensor::of<float>({2}, {2, 0}), 0), "");
}

TEST_F(GpuFaults, TheNextRunIsFine) {
  const std::string net = R"(op { type: "Gather" input: "X" input: "now" output: "Y" })";
  for (int i = 0; i < 3; ++i) {
    feed("now", {1, -1});
    run(net);
    EXPECT_NE(error_of([&] { fetched("Y"); }).find("an index is -1, outside of [0, 3)"), std::string::npos);
    feed("now", {1, 0});
    run(net);
    EXPECT_EQ(compare(fetched("Y"), Tensor::of<float>({2}, {2, 1}), 0), "");
  }
}

// Operators of short lives, of which one may be where another was.
TEST_F(GpuFaults, AreNotTakenForThoseOfAnotherOperator) {
  for (const std::string name : {"first", "second", "third", "fourth"}) {
    run(R"(op { type: "Gather" input: "X" input: "bad" output: ")" + name + "\" }");
    const std::string text = error_of([&] { fetched(name); });
    EXPECT_NE(text.find("op  " + name + " = Gather(X, bad)"), text.npos) << text;
  }
}

TEST_F(GpuFaults, TheFirstOneIsKept) {
  feed("more", {8, 9});
  run(R"(op { type: "Gather" input: "X" input: "bad" output: "A" }
         op { type: "Gather" input: "X" input: "more" output: "B" })");
  const std::string text = error_of([&] { fetched("B"); });
  EXPECT_NE(text.find("an index is 7"), text.npos) << text;
  EXPECT_NE(text.find("op  A = Gather(X, bad)"), text.npos) << text;
  fetched("A");
}

TEST_F(GpuFaults, AreToldAtOnceIfLaunchesAreWaitedFor) {
  gpu::wait_for_launches(true);
  const std::string text = error_of([&] {
    run(R"(op { type: "Gather" input: "X" input: "bad" output: "A" }
           op { type: "Gather" input: "X" input: "good" output: "B" })");
  });
  EXPECT_NE(text.find("an index is 7"), text.npos) << text;
  EXPECT_NE(text.find("operator 0 of net"), text.npos) << text;
}

// More operators than are remembered.
TEST_F(GpuFaults, ManyOperatorsPassBy) {
  BoundOp op = bind_op(parse_net_text(R"(op { type: "Gather" input: "X" input: "bad" output: "Y" })", "many").op(0),
                       "many", 0, kGpu);
  for (int i = 0; i < 40000; ++i) {
    op.index = i;
    const RunningScope scope(op);
    gpu::bounds(0, "an index");
  }
  run(R"(op { type: "Gather" input: "X" input: "bad" output: "A" })");
  const std::string text = error_of([&] { fetched("A"); });
  EXPECT_NE(text.find("op  A = Gather(X, bad)"), text.npos) << text;
}

// To forget one does not take a look at all others, which would be three thousand million looks here.
TEST_F(GpuFaults, ManyOperatorsThatStay) {
  const BoundOp op = bind_op(
      parse_net_text(R"(op { type: "Gather" input: "X" input: "bad" output: "Y" })", "many").op(0), "many", 0, kGpu);
  std::vector<BoundOp> ops(200000, {{}, op.spec, nullptr, kGpu, "many", 0});
  const auto bounds_of = [&](size_t i) {
    const RunningScope scope(ops[i]);
    return gpu::bounds(0, "an index");
  };
  std::set<unsigned long long> numbers;
  for (size_t i = 0; i < ops.size(); ++i) numbers.insert(bounds_of(i).launch);
  EXPECT_EQ(numbers.size(), ops.size());
  EXPECT_EQ(bounds_of(ops.size() - 1).launch, *numbers.rbegin());  // which is still known
  EXPECT_GT(bounds_of(0).launch, *numbers.rbegin());
}

// There are no elements to fetch, and yet it is told.
TEST_F(GpuFaults, AreToldWhereNothingIsFetched) {
  workspace_.tensor("nothing") = on_gpu(Tensor::empty(DType::float32, {3, 0}));
  run(R"(op { type: "LengthsSum" input: "nothing" input: "bad" output: "A" })");
  EXPECT_NE(error_of([&] { fetched("A"); }).find("op  A = LengthsSum(nothing, bad)"), std::string::npos);
}

TEST_F(GpuFaults, AreOfOneDevice) {
  if (gpu::device_count() < 2) GTEST_SKIP() << "this machine has one GPU";
  run(R"(op { type: "Gather" input: "X" input: "bad" output: "A" })");
  allocator({DeviceKind::cuda, 1}).synchronize();
  EXPECT_NE(error_of([&] { allocator(kGpu).synchronize(); }).find("an index is 7"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::faults_test
