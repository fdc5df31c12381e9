// The nets of docs/distributed.md, distributed by hand: ranks that each have a part of the batch train as one does that
// has all of it.
#include <gtest/gtest.h>

#include "recurrent/form/passes.h"
#include "recurrent/form/short_form.h"
#include "tests/operators/collective/ranks.h"
#include "tests/operators/op_test.h"
#include "tests/pages.h"

namespace stepnet::testing::data_parallel_test {
namespace {

NetDef net_of_page(const std::string& name) {
  for (const CodeBlock& block : read_page("docs/distributed.md").blocks)
    if (block.name == name) {
      NetDef net = parse_net_text(block.text, name);
      expand_recurrent(net);
      return net;
    }
  fail("docs/distributed.md has no {}", name);
}

constexpr int64_t kRowsOfRank = 6, kColumns = 3;

// Trains on these rows and leaves the parameters in the workspace.
void train(const NetDef& init, const Tensor& x, const Tensor& t, Workspace& workspace) {
  RunContext run;
  run_net_once(init, workspace, run);
  for (const char* name : {"W", "b", "one"}) workspace.tensor(name) = to_double(workspace.fetch(name));
  // Where the net divides by a number of ranks that is no power of two, float rounds.
  const double rate = workspace.fetch("minus_rate").item<double>() / workspace.fetch("ranks").item<double>();
  EXPECT_NEAR(workspace.fetch("rate").item<double>(), rate, 1e-7);
  workspace.tensor("rate") = Tensor::of<double>({1}, {rate});
  workspace.tensor("x") = x.clone();
  workspace.tensor("t") = t.clone();
  Net step(net_of_page("step.pbtxt"), workspace);
  for (int i = 0; i < 20; ++i) step.run(run);
}

TEST(DataParallel, RanksWithPartsOfABatchTrainAsOneWithAllOfIt) {
  const Tensor x = normal<double>({kRowsOfRank * ranks(), kColumns}, 3);
  const Tensor t = normal<double>({kRowsOfRank * ranks(), 1}, 4);
  NetDef init = net_of_page("init.pbtxt");
  Workspace together;
  train(init, x.rows(kRowsOfRank * rank(), kRowsOfRank), t.rows(kRowsOfRank * rank(), kRowsOfRank), together);

  ASSERT_EQ(init.op(0).type(), "CreateCommonWorld");
  init.mutable_op()->DeleteSubrange(0, 1);
  Workspace alone;
  alone.create("world").emplace<WorldPtr>(create_local_world(1));
  train(init, x, t, alone);
  for (const char* name : {"W", "b"}) {
    EXPECT_EQ(compare(together.fetch(name), alone.fetch(name), 1e-12), "") << name;
    EXPECT_NE(together.fetch(name).data<double>()[0], 0) << name;
  }
}

}  // namespace
}  // namespace stepnet::testing::data_parallel_test
