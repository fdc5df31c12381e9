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

// One row of the table more for each rank, and some of them looked up by several.
TEST(DataParallel, RowsOfRanksTrainATableAsThoseOfOneDo) {
  constexpr int64_t kWords = 40;
  const auto count_of = [](int r) { return int64_t{r} + 2; };
  int64_t all = 0, first = 0;
  for (int r = 0; r < ranks(); ++r) {
    if (r == rank()) first = all;
    all += count_of(r);
  }
  Tensor words = Tensor::empty(DType::int32, {all});
  for (int64_t i = 0; i < all; ++i) words.data<int32_t>()[i] = static_cast<int32_t>(i * i % 7);
  const Tensor t = normal<double>({all, kColumns}, 4);
  const auto trained = [&](int64_t begin, int64_t count) {
    Workspace workspace;
    RunContext run;
    run_on_world("", workspace);
    workspace.tensor("table") = normal<double>({kWords, kColumns}, 5);
    workspace.tensor("words") = words.rows(begin, count).clone();
    workspace.tensor("t") = t.rows(begin, count).clone();
    workspace.tensor("one") = Tensor::of<double>({1}, {1.0});
    workspace.tensor("rate") = Tensor::of<double>({1}, {-0.1});
    NetDef net = net_of_page("rows.pbtxt");
    Net step(net, workspace);
    for (int i = 0; i < 5; ++i) step.run(run);
    return workspace.fetch("table").clone();
  };
  // The loss of each rank is the mean of its own rows.
  const auto expected = [&] {
    Tensor table = normal<double>({kWords, kColumns}, 5);
    for (int i = 0; i < 5; ++i) {
      Tensor slopes = Tensor::zeros(DType::float64, table.shape());
      int64_t at = 0;
      for (int r = 0; r < ranks(); ++r)
        for (int64_t n = 0; n < count_of(r); ++n, ++at)
          for (int64_t k = 0; k < kColumns; ++k) {
            const int64_t place = words.data<int32_t>()[at] * kColumns + k;
            slopes.data<double>()[place] +=
                (table.data<double>()[place] - t.data<double>()[at * kColumns + k]) / static_cast<double>(count_of(r));
          }
      for (int64_t e = 0; e < table.size(); ++e) table.data<double>()[e] -= 0.1 * slopes.data<double>()[e];
    }
    return table;
  };
  const Tensor table = trained(first, count_of(rank()));
  EXPECT_EQ(compare(table, expected(), 1e-12), "");
  EXPECT_NE(compare(table, normal<double>({kWords, kColumns}, 5), 1e-3), "");
}

}  // namespace
}  // namespace stepnet::testing::data_parallel_test
