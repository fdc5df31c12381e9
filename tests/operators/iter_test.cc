#include "operators/iter.h"

#include <limits>

#include "tests/operators/op_test.h"

namespace stepnet::testing {
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

}  // namespace
}  // namespace stepnet::testing
