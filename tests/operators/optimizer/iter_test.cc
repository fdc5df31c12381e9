// Counters.
#include <limits>
#include <thread>

#include "operators/control/create_mutex.h"
#include "operators/optimizer/iter.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::iter_test {
namespace {

int64_t count_runs(const OperatorDef& def, Workspace& workspace, int runs) {
  NetDef net;
  *net.add_op() = def;
  Net bound(net, workspace);
  RunContext run;
  for (int i = 0; i < runs; ++i) bound.run(run);
  EXPECT_EQ(workspace.fetch("iter").dtype(), DType::int64);
  return workspace.fetch("iter").item<int64_t>();
}

TEST(Iter, StartsByItselfAndCounts) {
  Workspace workspace;
  EXPECT_EQ(count_runs(make_op("Iter", {}, {"iter"}), workspace, 3), 3);
  EXPECT_EQ(count_runs(make_op("Iter", {}, {"iter"}), workspace, 1), 4);
}

// What it counts is not let go of between runs, nor are its bytes lent to others.
TEST(Iter, KeepsItsValueWhereMemoryIsReused) {
  const NetDef def = parse_net_text(R"(
    op { type: "Iter" output: "i" }
    op { type: "Cast" input: "i" output: "f" arg { name: "to" i: 1 } }
    op { type: "Scale" input: "f" output: "g" arg { name: "scale" f: 2.0 } }
    op { type: "Negative" input: "g" output: "h" }
    external_output: "h")");
  for (const bool plans : {false, true}) {
    Workspace workspace;
    NetOptions options;
    options.plan_memory = plans;
    options.release_intermediates = !plans;
    Net net(def, workspace, options);
    RunContext run;
    for (int i = 1; i <= 4; ++i) {
      net.run(run);
      EXPECT_EQ(workspace.fetch("h").item<float>(), -2.0F * static_cast<float>(i)) << plans;
    }
  }
}

TEST(Iter, RaisesItsInputInPlace) {
  Workspace workspace;
  workspace.tensor("iter") = Tensor::of<int32_t>({1}, {41});
  EXPECT_EQ(count_runs(make_op("Iter", {"iter"}, {"iter"}), workspace, 2), 43);
  EXPECT_EQ(workspace.fetch("iter").str(), "int64[1]");
}

TEST(Iter, RefusesWhatIsNoCounter) {
  const OperatorDef def = make_op("Iter", {"iter"}, {"iter"});
  auto error = [&](const Tensor& t) { return error_of([&] { run_op_on(def, {{"iter", t}}); }); };
  EXPECT_NE(error(integers<int64_t>({2}, 0, 1)).find("int64[2] is not a single value"), std::string::npos);
  EXPECT_NE(error(Tensor::scalar<int64_t>(std::numeric_limits<int64_t>::max())).find("cannot go beyond"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              run_op_on(make_op("Iter", {"iter"}, {"other"}), {{"iter", Tensor::scalar<int64_t>(0)}});
            }).find("must be the same blob"),
            std::string::npos);
}

NetDef net_of(const OperatorDef& def) {
  NetDef net;
  *net.add_op() = def;
  return net;
}

const OperatorDef kAtomicIter = make_op("AtomicIter", {"mutex", "iter"}, {"iter"});

TEST(AtomicIter, CountsEveryRunOfEveryThread) {
  Workspace workspace;
  RunContext run;
  run_net_once(net_of(make_op("CreateMutex", {}, {"mutex"})), workspace, run);
  EXPECT_TRUE(workspace.at("mutex").holds<BlobMutex>());
  workspace.tensor("iter") = Tensor::of<int64_t>({1}, {0});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      Net net(net_of(kAtomicIter), workspace);
      RunContext own;
      for (int i = 0; i < 500; ++i) net.run(own);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(workspace.fetch("iter").item<int64_t>(), 2000);
}

TEST(AtomicIter, NeedsAMutexAndACounter) {
  Workspace workspace;
  RunContext run;
  workspace.tensor("mutex") = Tensor::scalar<float>(1);
  workspace.tensor("iter") = Tensor::scalar<int64_t>(1);
  EXPECT_NE(error_of([&] { run_net_once(net_of(kAtomicIter), workspace, run); }).find("not what is needed here"),
            std::string::npos);
  workspace.at("mutex").emplace<BlobMutex>();
  workspace.at("iter").clear();
  EXPECT_NE(error_of([&] { run_net_once(net_of(kAtomicIter), workspace, run); }).find("holds nothing yet"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              run_net_once(net_of(make_op("AtomicIter", {"mutex", "iter"}, {"other"})), workspace, run);
            }).find("must be the same blob"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::iter_test
