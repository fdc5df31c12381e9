#include <thread>

#include "operators/control/create_mutex.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::atomic_iter_test {
namespace {

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
}  // namespace stepnet::testing::atomic_iter_test
