// Where a net adds its gradients up: which go together, and when they start.
#include "recurrent/distributed/reductions.h"

#include <gtest/gtest.h>

#include "stepnet/text.h"
#include "tests/core/errors.h"

namespace stepnet::testing::reductions_test {
namespace {

// Makes g0 to g3, and reads g0 again at its end.
NetDef backward() {
  NetDef net;
  for (int i = 0; i < 4; ++i) {
    OperatorDef& op = *net.add_op();
    op.set_type("Copy");
    op.add_input("x");
    op.add_output(fmt::format("g{}", i));
  }
  OperatorDef& again = *net.add_op();
  again.set_type("Scale");
  again.add_input("g0");
  again.add_output("g0");
  return net;
}

std::vector<ReducedGradient> four_gradients() {
  std::vector<ReducedGradient> gradients;
  for (int i = 0; i < 4; ++i)
    gradients.push_back({fmt::format("g{}", i), fmt::format("p{}", i), TensorType::of(DType::float32, {5, 2})});
  return gradients;
}

// "Copy(x)=g0; ..."
std::string text_of(const NetDef& net) {
  std::vector<std::string> ops;
  for (const OperatorDef& op : net.op())
    ops.push_back(fmt::format("{}({})={}", op.type(), fmt::join(op.input(), ","), fmt::join(op.output(), ",")));
  return fmt::format("{}", fmt::join(ops, "; "));
}

TEST(Reductions, StartBehindTheLastUseOfABucketsGradients) {
  NetDef net = backward();
  add_reductions(net, four_gradients(), {.world = "w", .bucket_bytes = 80, .few = 0});
  EXPECT_EQ(text_of(net),
            "Copy(x)=g0; Copy(x)=g1; Copy(x)=g2; StartAllreduce(w,g1,g2)=train/started_0; Copy(x)=g3; Scale(g0)=g0; "
            "StartAllreduce(w,g3,g0)=train/started_1; "
            "FinishAllreduce(train/started_0,p1,p2)=train/started_0,g1,g2; "
            "FinishAllreduce(train/started_1,p3,p0)=train/started_1,g3,g0");
  EXPECT_EQ(net.op(3).arg_size(), 0);
}

// Each by itself, unless another name may share its bytes, as that of the Alias here, or it is rounded.
TEST(Reductions, LargeGradientsMoveInPlace) {
  NetDef net = backward();
  OperatorDef& alias = *net.add_op();
  alias.set_type("Alias");
  alias.add_input("g1");
  alias.add_output("other");
  std::vector<ReducedGradient> gradients = four_gradients();
  gradients[0].type = TensorType::of(DType::float32, {1});
  NetDef rounded = net;
  add_reductions(net, gradients, {.world = "w", .in_place_bytes = 40, .few = 0});
  EXPECT_EQ(text_of(net),
            "Copy(x)=g0; Copy(x)=g1; Copy(x)=g2; StartAllreduce(w,g2)=train/started_0,g2; Copy(x)=g3; "
            "StartAllreduce(w,g3)=train/started_1,g3; Scale(g0)=g0; Alias(g1)=other; "
            "StartAllreduce(w,g0,g1)=train/started_2; "
            "FinishAllreduce(train/started_0,g2)=train/started_0,g2; "
            "FinishAllreduce(train/started_1,g3)=train/started_1,g3; "
            "FinishAllreduce(train/started_2,p0,p1)=train/started_2,g0,g1");
  add_reductions(rounded, gradients, {.world = "w", .move_as = DType::bfloat16, .in_place_bytes = 40});
  EXPECT_EQ(rounded.op(6).type(), "StartAllreduce");
  EXPECT_EQ(rounded.op(6).input_size(), 5);
}

TEST(Reductions, FewGradientsAllMoveInPlace) {
  NetDef net = backward(), more = net;
  add_reductions(net, four_gradients(), {.world = "w", .few = 4});
  EXPECT_EQ(text_of(net),
            "Copy(x)=g0; Copy(x)=g1; StartAllreduce(w,g1)=train/started_0,g1; Copy(x)=g2; "
            "StartAllreduce(w,g2)=train/started_1,g2; Copy(x)=g3; StartAllreduce(w,g3)=train/started_2,g3; "
            "Scale(g0)=g0; StartAllreduce(w,g0)=train/started_3,g0; "
            "FinishAllreduce(train/started_0,g1)=train/started_0,g1; "
            "FinishAllreduce(train/started_1,g2)=train/started_1,g2; "
            "FinishAllreduce(train/started_2,g3)=train/started_2,g3; "
            "FinishAllreduce(train/started_3,g0)=train/started_3,g0");
  add_reductions(more, four_gradients(), {.world = "w", .few = 3});
  EXPECT_EQ(more.op_size(), 7);
}

TEST(Reductions, ShardsAreOfOneTypeAndGroup) {
  NetDef net = backward();
  std::vector<ReducedGradient> gradients = four_gradients();
  gradients[1].group = "slow";
  gradients[2].type.dtype = DType::float64;
  const auto shards = add_sharded_reductions(net, gradients, 3, {.world = "w"});
  EXPECT_EQ(text_of(net),
            "Copy(x)=g0; Copy(x)=g1; StartReduceScatter(w,g1)=train/started_0; Copy(x)=g2; "
            "StartReduceScatter(w,g2)=train/started_1; Copy(x)=g3; Scale(g0)=g0; "
            "StartReduceScatter(w,g3,g0)=train/started_2; "
            "FinishReduceScatter(train/started_0)=train/started_0,train/shard_0_gradient; "
            "FinishReduceScatter(train/started_1)=train/started_1,train/shard_1_gradient; "
            "FinishReduceScatter(train/started_2)=train/started_2,train/shard_2_gradient");
  ASSERT_EQ(shards.size(), 3U);
  EXPECT_EQ(shards[0].type.str(), "float[4]");  // of 10 elements, rounded up
  EXPECT_EQ(shards[1].type.str(), "double[4]");
  EXPECT_EQ(shards[2].type.str(), "float[7]");
  EXPECT_EQ(shards[2].parameters, (std::vector<std::string>{"p3", "p0"}));
}

// g1 is made of the rows gi and gv.
std::vector<ReducedGradient> one_sparse_gradient() {
  std::vector<ReducedGradient> gradients = four_gradients();
  gradients[1].indices = "gi";
  gradients[1].values = "gv";
  return gradients;
}

TEST(Reductions, RowsAreGatheredBehindAllStarts) {
  NetDef net = backward();
  add_reductions(net, one_sparse_gradient(), {.world = "w", .few = 0});
  EXPECT_EQ(text_of(net),
            "Copy(x)=g0; Copy(x)=g1; Copy(x)=g2; Copy(x)=g3; Scale(g0)=g0; StartAllreduce(w,g2,g3,g0)=train/started_0; "
            "AllgatherSlices(w,gi,gv)=g1_indices,g1_values; SparseToDense(g1_indices,g1_values,p1)=g1; "
            "FinishAllreduce(train/started_0,p2,p3,p0)=train/started_0,g2,g3,g0");
}

// The derivative of a sum is one blob for all of its terms: for a parameter, and for rows of a table.
TEST(Reductions, RowsThatAreAnotherGradientDoNotMoveInPlace) {
  NetDef net = backward();
  std::vector<ReducedGradient> gradients = one_sparse_gradient();
  gradients[1].values = "g2";
  add_reductions(net, gradients, {.world = "w", .few = 4});
  EXPECT_EQ(text_of(net),
            "Copy(x)=g0; Copy(x)=g1; Copy(x)=g2; StartAllreduce(w,g2)=train/started_0; Copy(x)=g3; "
            "StartAllreduce(w,g3)=train/started_1,g3; Scale(g0)=g0; StartAllreduce(w,g0)=train/started_2,g0; "
            "AllgatherSlices(w,gi,g2)=g1_indices,g1_values; SparseToDense(g1_indices,g1_values,p1)=g1; "
            "FinishAllreduce(train/started_0,p2)=train/started_0,g2; "
            "FinishAllreduce(train/started_1,g3)=train/started_1,g3; "
            "FinishAllreduce(train/started_2,g0)=train/started_2,g0");
}

TEST(Reductions, APartOfASparseGradientIsTaken) {
  NetDef net;
  const auto shards =
      add_sharded_reductions(net, {one_sparse_gradient()[1]}, 3, {.world = "w", .move_as = DType::bfloat16});
  EXPECT_EQ(text_of(net),
            "AllgatherSlices(w,gi,gv)=g1_indices,g1_values; SparseToDense(g1_indices,g1_values,p1)=g1; "
            "TakeShard(w,g1)=train/shard_0_gradient");
  EXPECT_EQ(net.op(0).arg(0).s(), "bfloat16");
  ASSERT_EQ(shards.size(), 1U);
  EXPECT_EQ(shards[0].type.str(), "float[4]");
  EXPECT_EQ(shards[0].parameters, (std::vector<std::string>{"p1"}));
}

TEST(Reductions, OnlyFloatsAreRounded) {
  NetDef net = backward();
  std::vector<ReducedGradient> gradients = four_gradients();
  add_reductions(net, gradients, {.world = "w", .move_as = DType::bfloat16});
  EXPECT_EQ(net.op(5).arg(0).s(), "bfloat16");
  gradients[3].type.dtype = DType::float64;
  expect_contains(error_text([&] { add_reductions(net, gradients, {.world = "w", .move_as = DType::bfloat16}); }),
                  "gradients are to be added up in bfloat16, but \"p3\" is double");
}

}  // namespace
}  // namespace stepnet::testing::reductions_test
