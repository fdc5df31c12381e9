// The shapes of broadcasting, and their mistakes.
#include "operators/loops/broadcast.h"

#include "tests/operators/op_test.h"

namespace stepnet::testing::broadcast_test {
namespace {

BroadcastArgs aligned(int64_t axis) {
  BroadcastArgs args;
  args.broadcast = true;
  args.axis = axis;
  return args;
}

TEST(Broadcast, AnOperandOfOneElementTakesTheOthersShape) {
  const BroadcastArgs args = aligned(-1);
  EXPECT_EQ(broadcast_shapes(args, Shape{3}, Shape{1, 1}).out, Shape{3});
  EXPECT_EQ(broadcast_shapes(args, Shape{}, Shape{1}).out, Shape{});
  EXPECT_EQ(broadcast_shapes(args, Shape{0, 2}, Shape{1}).out, (Shape{0, 2}));
  EXPECT_EQ(broadcast_shapes(aligned(0), Shape{2, 3}, Shape{1}).out, (Shape{2, 3}));
}

TEST(Broadcast, OuterOnesOfAnAlignedOperandRepeat) {
  const Broadcast b = broadcast_shapes(aligned(0), Shape{2, 3, 4}, Shape{1, 3, 1});
  EXPECT_EQ(b.b, (Shape{1, 3, 1}));
  EXPECT_EQ(b.out, (Shape{2, 3, 4}));
}

TEST(Broadcast, NeighbouringDimensionsOfAKindAreOneRun) {
  int runs = 0;
  BroadcastRuns(broadcast_shapes(aligned(-1), Shape{2, 3, 4, 5}, Shape{4, 5})).each([&](const BroadcastRun& run) {
    EXPECT_EQ(run.size, 20);
    EXPECT_EQ(run.a, 20 * runs);
    EXPECT_EQ(run.b, 0);
    ++runs;
  });
  EXPECT_EQ(runs, 6);
}

TEST(Broadcast, MistakesAreNamed) {
  EXPECT_EQ(error_of([] {
              broadcast_shapes(aligned(1), Shape{2, 3}, Shape{3, 2});
            }),
            "B [3, 2] laid over A [2, 3] from axis 1 on sticks out");
  EXPECT_EQ(error_of([] {
              broadcast_shapes(aligned(0), Shape{2, 3}, Shape{3});
            }),
            "B [3] laid over A [2, 3] from axis 0 on has 3 against 2 in dimension 0");
  BroadcastArgs args = aligned(1);
  args.broadcast = false;
  EXPECT_EQ(error_of([&] {
              broadcast_shapes(args, Shape{2, 3}, Shape{2, 3});
            }),
            "axis and axis_str need the argument broadcast: 1");
  args = aligned(-1);
  args.axis_str = "X";
  EXPECT_EQ(error_of([&] {
              broadcast_shapes(args, Shape{2, 3}, Shape{3});
            }),
            "axis_str \"X\" is not one letter of order \"NCHW\"");
}

}  // namespace
}  // namespace stepnet::testing::broadcast_test
