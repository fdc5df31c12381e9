#include "operators/control/create_mutex.h"

#include "tests/operators/op_test.h"

namespace stepnet::testing::create_mutex_test {
namespace {

TEST(CreateMutex, PutsAMutexIntoItsBlob) {
  Workspace workspace;
  NetDef net;
  *net.add_op() = make_op("CreateMutex", {}, {"mutex"});
  RunContext run;
  run_net_once(net, workspace, run);
  ASSERT_TRUE(workspace.at("mutex").holds<BlobMutex>());
  EXPECT_TRUE(workspace.at("mutex").get<BlobMutex>().try_lock());
  workspace.at("mutex").get<BlobMutex>().unlock();
}

}  // namespace
}  // namespace stepnet::testing::create_mutex_test
