// Intermediates in one block of memory: what shares bytes, what stays apart, and what happens when a run is not like
// the one that was observed.
#include "core/net/net_arena.h"

#include <gtest/gtest.h>

#include "stepnet/operator.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/core/gradient_testing.h"
#include "tests/core/heap_counter.h"
#include "tests/core/planned_runs.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace stepnet::testing::net_arena_test {
namespace {

const NetOptions kPlanned = {.plan_memory = true};

NetDef net_of(const std::string& text) { return parse_net_text(text, "test.pbtxt"); }

// Runs the net with planned memory beside one without, and compares its external outputs after each run.
class Both {
 public:
  Both(const NetDef& net, const Feeds& feeds, std::vector<std::string> outputs = {})
      : planned(net, feeds, kPlanned),
        plain(net, feeds, {}),
        outputs_(outputs.empty() ? outputs_of(net) : std::move(outputs)) {}

  void feed(const Feeds& feeds) {
    planned.feed(feeds);
    plain.feed(feeds);
  }
  void run(int times = 1) {
    for (int i = 0; i < times; ++i) {
      planned.run();
      plain.run();
      ASSERT_EQ(difference(planned, plain, outputs_), "") << "run " << i;
    }
  }
  NetMemory memory() { return planned.net().memory(); }

  NetRuns planned, plain;

 private:
  std::vector<std::string> outputs_;
};

const Tensor kX = normal<float>({16, 4}, 1);  // 256 bytes
constexpr int64_t kBytes = 256;

TEST(NetArena, AChainOfInPlaceOperatorsHasOnePlace) {
  Both both(net_of(R"(external_input: 'X' external_output: 'Z'
      op { type: 'Exp' input: 'X' output: 'A' } op { type: 'Negative' input: 'A' output: 'B' }
      op { type: 'Reshape' input: 'B' output: 'C' arg { name: 'shape' ints: 8 ints: 8 } }
      op { type: 'Transpose' input: 'C' output: 'D' } op { type: 'Scale' input: 'D' output: 'E' }
      op { type: 'SumElements' input: 'E' output: 'Z' })"),
            {{"X", kX}});
  both.run(4);
  EXPECT_TRUE(both.memory().planned);
  EXPECT_EQ(both.memory().values, 5);
  EXPECT_EQ(both.memory().written_over, 3);  // not by Transpose
  EXPECT_EQ(both.memory().apart, 5 * kBytes);
  EXPECT_EQ(both.memory().block, 2 * kBytes);
  EXPECT_EQ(both.planned.allocations(), 0);
}

// Sum, whose terms have one shape, needs no operators for that.
TEST(NetArena, GradientsOfOperandsThatDoNotRepeatTakeNoMore) {
  const Feeds feeds = {{"x", normal<float>({16, 4}, 1)}, {"w", normal<float>({4, 4}, 2)}, {"b", normal<float>({4}, 3)}};
  const auto runs_of = [&](const std::string& type, const NetOptions& options) {
    NetDef net =
        net_of_lines({"a = FC(x, w, b)", "t = Tanh(a)", "s = " + type + "(t, x)", "u = Sigmoid(s)",
                      "r = " + type + "(u, s)", "q = " + type + "(r, t)", "v = Softmax(q)", "l = SumSqrElements(v)"});
    for (const auto& feed : feeds) net.add_external_input(feed.first);
    auto runs = std::make_unique<NetRuns>(descent_net(net, "l", {"w", "b"}), feeds, options);
    for (int i = 0; i < 4; ++i) runs->run();
    return runs;
  };
  for (const NetOptions& options : {kPlanned, NetOptions{.release_intermediates = true}}) {
    const auto add = runs_of("Add", options), sum = runs_of("Sum", options);
    EXPECT_EQ(difference(*add, *sum, {"w", "b"}), "");
    EXPECT_LE(add->peak(), sum->peak());
    EXPECT_EQ(add->allocations(), sum->allocations());
    const NetMemory of_add = add->net().memory(), of_sum = sum->net().memory();
    EXPECT_EQ(of_add.planned, of_sum.planned);
    EXPECT_EQ(of_add.values, of_sum.values);
    EXPECT_EQ(of_add.block, of_sum.block);
    EXPECT_EQ(of_add.most_alive, of_sum.most_alive);
  }
}

TEST(NetArena, ValuesThatDoNotMeetShareBytes) {
  Both both(net_of(R"(external_input: 'X' external_output: 'Z'
      op { type: 'Transpose' input: 'X' output: 'A' } op { type: 'Transpose' input: 'A' output: 'B' }
      op { type: 'Transpose' input: 'B' output: 'C' } op { type: 'Transpose' input: 'C' output: 'D' }
      op { type: 'SumElements' input: 'D' output: 'Z' })"),
            {{"X", kX}});
  both.run(4);
  EXPECT_EQ(both.memory().written_over, 0);
  EXPECT_EQ(both.memory().block, 2 * kBytes);
  EXPECT_EQ(both.memory().most_alive, 2 * kBytes);
}

// A is read by two operators; only the second may write over it.
TEST(NetArena, AnInputOfTwoOperatorsIsKeptForTheSecond) {
  Both both(net_of(R"(external_input: 'X' external_output: 'Z'
      op { type: 'Exp' input: 'X' output: 'A' } op { type: 'Negative' input: 'A' output: 'B' }
      op { type: 'Mul' input: 'A' input: 'B' output: 'C' } op { type: 'SumElements' input: 'C' output: 'Z' })"),
            {{"X", kX}});
  both.run(4);
  EXPECT_EQ(both.memory().written_over, 1);
  EXPECT_EQ(both.memory().block, 2 * kBytes);
}

TEST(NetArena, AnInputThatIsReadTwiceByOneOperatorIsWrittenOverIfBothMayBe) {
  Both both(net_of(R"(external_input: 'X' external_output: 'Z'
      op { type: 'Exp' input: 'X' output: 'A' } op { type: 'Mul' input: 'A' input: 'A' output: 'B' }
      op { type: 'MatMul' input: 'B' input: 'B' output: 'C' arg { name: 'trans_b' i: 1 } }
      op { type: 'SumElements' input: 'C' output: 'Z' })"),
            {{"X", kX}});
  both.run(4);
  EXPECT_EQ(both.memory().written_over, 1);  // not by MatMul
}

TEST(NetArena, AnotherNameForTheSameBytesKeepsThem) {
  Both both(net_of(R"(external_input: 'X' external_output: 'Z' external_output: 'Y'
      op { type: 'Exp' input: 'X' output: 'A' } op { type: 'Alias' input: 'A' output: 'B' }
      op { type: 'Transpose' input: 'A' output: 'C' } op { type: 'Transpose' input: 'C' output: 'D' }
      op { type: 'SumElements' input: 'D' output: 'Y' } op { type: 'SumElements' input: 'B' output: 'Z' })"),
            {{"X", kX}});
  both.run(4);
  EXPECT_TRUE(both.memory().planned);
  EXPECT_EQ(both.memory().values, 3);
  EXPECT_EQ(both.memory().block, 3 * kBytes);  // A lives to the end under its other name
}

TEST(NetArena, OneOfTwoNamesThatIsVisibleKeepsTheBytesOutOfTheBlock) {
  Both both(net_of(R"(external_input: 'X' external_output: 'B'
      op { type: 'Exp' input: 'X' output: 'A' } op { type: 'Alias' input: 'A' output: 'B' }
      op { type: 'Negative' input: 'A' output: 'A' } op { type: 'Transpose' input: 'X' output: 'C' }
      op { type: 'SumElements' input: 'C' output: 'D' })"),
            {{"X", kX}});
  both.run(4);
  EXPECT_EQ(both.memory().values, 2);
}

TEST(NetArena, AnAliasOfAnInputIsNoValueOfTheNet) {
  Both both(net_of(R"(external_input: 'X' external_output: 'Z'
      op { type: 'Alias' input: 'X' output: 'A' } op { type: 'Exp' input: 'A' output: 'B' }
      op { type: 'SumElements' input: 'B' output: 'Z' })"),
            {{"X", kX}});
  both.run(4);
  EXPECT_EQ(both.memory().values, 1);
  EXPECT_EQ(difference(both.planned, both.plain, {"X"}), "");
}

// What is written twice is two values; between them its bytes are free.
TEST(NetArena, ABlobThatIsWrittenTwiceHasTwoValues) {
  Both both(net_of(R"(external_input: 'X' external_output: 'Y' external_output: 'Z'
      op { type: 'Exp' input: 'X' output: 'A' } op { type: 'SumElements' input: 'A' output: 'Y' }
      op { type: 'Transpose' input: 'X' output: 'B' } op { type: 'Transpose' input: 'B' output: 'A' }
      op { type: 'SumElements' input: 'A' output: 'Z' })"),
            {{"X", kX}});
  both.run(4);
  EXPECT_EQ(both.memory().values, 3);
  EXPECT_EQ(both.memory().block, 2 * kBytes);
}

TEST(NetArena, WhatOthersMaySeeStaysAsItIs) {
  const NetDef net = net_of(R"(external_input: 'X' external_output: 'Z'
      op { type: 'Exp' input: 'X' output: 'A' } op { type: 'Transpose' input: 'A' output: 'B' }
      op { type: 'Transpose' input: 'B' output: 'C' } op { type: 'SumElements' input: 'C' output: 'Z' })");
  NetRuns plain(net, {{"X", kX}}, {});
  plain.run();
  NetRuns planned(net, {{"X", kX}, {"C", kX}}, {.plan_memory = true, .keep = {"A"}});
  for (int i = 0; i < 3; ++i) {
    planned.run();
    EXPECT_EQ(difference(planned, plain, {"X", "A", "C", "Z"}), "");  // given, kept, there before, and an output
    EXPECT_EQ(planned.workspace().fetch("B").raw(), nullptr);
    EXPECT_EQ(planned.net().memory().values, 1);
  }
}

TEST(NetArena, OtherInputTypesHaveAPlanOfTheirOwn) {
  Both both(net_of(R"(external_input: 'X' external_output: 'Z'
      op { type: 'Transpose' input: 'X' output: 'A' } op { type: 'Transpose' input: 'A' output: 'B' }
      op { type: 'SumElements' input: 'B' output: 'Z' })"),
            {{"X", kX}});
  for (int turn = 0; turn < 3; ++turn) {
    for (const int64_t rows : {16, 48, 0, 1}) {
      both.feed({{"X", normal<float>({rows, 4}, 2)}});
      both.run(turn == 0 ? 1 : 3);
      if (turn == 0) continue;
      EXPECT_TRUE(both.memory().planned);
      EXPECT_EQ(both.memory().block, 2 * ((rows * 16 + 63) / 64 * 64));
      EXPECT_EQ(both.planned.allocations(), 0);
    }
    both.feed({{"X", normal<double>({16, 4}, 2)}});
    both.run(2);
  }
}

// The rows that are taken depend on values; the input types stay the same.
TEST(NetArena, ATypeThatDependsOnValuesStaysApart) {
  Both both(net_of(R"(external_input: 'X' external_input: 'S' external_output: 'Z'
      op { type: 'Tile' input: 'X' output: 'T' arg { name: 'tiles' i: 8 } arg { name: 'axis' i: 0 } }
      op { type: 'Negative' input: 'T' output: 'U' }
      op { type: 'Slice' input: 'U' input: 'S' input: 'E' output: 'A' } op { type: 'Exp' input: 'A' output: 'B' }
      op { type: 'SumElements' input: 'B' output: 'Z' } external_input: 'E')"),
            {{"X", kX}, {"S", Tensor::of<int32_t>({2}, {0, 0})}, {"E", Tensor::of<int32_t>({2}, {16, 4})}});
  both.run(3);
  EXPECT_EQ(both.memory().values, 4);
  for (const int32_t start : {3, 5, 0, 15, 2}) {
    both.feed({{"S", Tensor::of<int32_t>({2}, {start, 0})}});
    both.run();
  }
  both.run(2);
  EXPECT_TRUE(both.memory().planned);
  EXPECT_EQ(both.memory().values, 2);
}

TEST(NetArena, ValuesOfNoBytesHaveAPlace) {
  Both both(net_of(R"(external_input: 'X' external_output: 'Z'
      op { type: 'Exp' input: 'X' output: 'A' } op { type: 'Transpose' input: 'A' output: 'B' }
      op { type: 'SumElements' input: 'B' output: 'Z' })"),
            {{"X", normal<float>({0, 4})}});
  both.run(4);
  EXPECT_EQ(both.memory().values, 2);
  EXPECT_EQ(both.memory().block, 0);
}

// A body may leave its output as it is, or write it anew.
TEST(NetArena, OperatorsOnBlobsMakeTheirOwnOutputs) {
  const NetDef net = net_of(R"(external_input: 'X' external_input: 'C' external_output: 'Z'
      op { type: 'Exp' input: 'X' output: 'A' } op { type: 'Transpose' input: 'A' output: 'T' }
      op { type: 'If' input: 'C' input: 'T' input: 'A' output: 'A'
           arg { name: 'then_net' n { op { type: 'Transpose' input: 'T' output: 'A' } } } }
      op { type: 'Negative' input: 'A' output: 'B' } op { type: 'SumElements' input: 'B' output: 'Z' })");
  Both both(net, {{"X", kX}, {"C", Tensor::of<bool>({1}, {true})}});
  for (const bool taken : {true, true, true, false, false, true, false}) {
    both.feed({{"C", Tensor::of<bool>({1}, {taken})}});
    both.run();
  }
}

// What the inner net reads by name alone is alive until then.
TEST(NetArena, WhatANetInsideReadsIsKeptForIt) {
  Both both(net_of(R"(external_input: 'X' external_input: 'C' external_output: 'Y' external_output: 'Z'
      op { type: 'Exp' input: 'X' output: 'A' } op { type: 'Transpose' input: 'A' output: 'T' }
      op { type: 'Negative' input: 'T' output: 'U' } op { type: 'SumElements' input: 'U' output: 'Y' }
      op { type: 'If' input: 'C' output: 'W' arg { name: 'then_net' n { op { type: 'Negative' input: 'A' output: 'W' } } } }
      op { type: 'SumElements' input: 'W' output: 'Z' })"),
            {{"X", kX}, {"C", Tensor::of<bool>({1}, {true})}});
  both.run(4);
  EXPECT_TRUE(both.memory().planned);
}

// The output of If is large while the block would lie idle.
TEST(NetArena, WhereABlockWouldTakeMoreMemoryValuesStayApart) {
  const NetDef net = net_of(R"(external_input: 'X' external_input: 'C' external_output: 'Y' external_output: 'Z'
      op { type: 'Transpose' input: 'X' output: 'A' } op { type: 'Transpose' input: 'A' output: 'B' }
      op { type: 'SumElements' input: 'B' output: 'Y' }
      op { type: 'If' input: 'C' input: 'X' output: 'W'
           arg { name: 'then_net' n { op { type: 'Tile' input: 'X' output: 'W' arg { name: 'tiles' i: 8 } } } } }
      op { type: 'SumElements' input: 'W' output: 'Z' })");
  const Feeds feeds = {{"X", kX}, {"C", Tensor::of<bool>({1}, {true})}};
  int64_t most = 0;
  {
    NetRuns released(net, feeds, {.release_intermediates = true});
    for (int i = 0; i < 4; ++i) released.run();
    most = released.peak();
  }
  NetRuns planned(net, feeds, kPlanned);
  for (int i = 0; i < 4; ++i) planned.run();
  EXPECT_EQ(planned.net().memory().values, 2);
  EXPECT_FALSE(planned.net().memory().planned);
  EXPECT_LE(planned.peak(), most);
}

Tensor& held() {
  static Tensor tensor;
  return tensor;
}
const void*& address_seen() {
  static const void* address = nullptr;
  return address;
}
bool& holds() {
  static bool value = false;
  return value;
}

// Keeps a view of what it reads, from some run on.
REGISTER(hold_for_test) {
  return op("HoldForTest")
      .doc("Keeps a view of its input if it is told to.")
      .input("X", "any")
      .output("Y", "the same elements", like("X"))
      .cpu(+[](const Tensor& x, Tensor& y) {
        y.copy_from(x);
        address_seen() = x.raw();
        if (holds()) held() = x;
      })
      .example({"X=2"})
      .stop_gradient();
}

#if defined(__SANITIZE_ADDRESS__)
// Reads what another value's place was, at the address that it keeps.
TEST(NetArena, DeadBytesArePoisoned) {
  const NetDef net = net_of(R"(external_input: 'X' external_output: 'Z'
      op { type: 'Exp' input: 'X' output: 'A' } op { type: 'HoldForTest' input: 'A' output: 'B' }
      op { type: 'Transpose' input: 'B' output: 'C' } op { type: 'SumElements' input: 'C' output: 'Z' })");
  NetRuns runs(net, {{"X", kX}}, kPlanned);
  for (int i = 0; i < 3; ++i) runs.run();
  ASSERT_TRUE(runs.net().memory().planned);
  EXPECT_NE(__asan_region_is_poisoned(const_cast<void*>(address_seen()), kBytes), nullptr);
}
#endif

TEST(NetArena, WhatSomebodyHoldsIsNotWrittenOver) {
  Both both(net_of(R"(external_input: 'X' external_output: 'Z'
      op { type: 'Exp' input: 'X' output: 'A' } op { type: 'HoldForTest' input: 'A' output: 'B' }
      op { type: 'Negative' input: 'B' output: 'C' } op { type: 'Negative' input: 'C' output: 'D' }
      op { type: 'Negative' input: 'D' output: 'E' } op { type: 'SumElements' input: 'E' output: 'Z' })"),
            {{"X", kX}});
  both.run(3);
  EXPECT_EQ(both.memory().values, 5);
  holds() = true;
  both.planned.run();
  holds() = false;
  const Tensor kept = held().clone();
  for (int i = 0; i < 4; ++i) {
    both.feed({{"X", normal<float>({16, 4}, 50 + i)}});
    both.run();
  }
  EXPECT_EQ(compare(held(), kept, 0), "");
  both.run(2);
  EXPECT_TRUE(both.memory().planned);
  EXPECT_EQ(both.memory().values, 4);
  held() = Tensor();
}

TEST(NetArena, ARunThatFailsLeavesNothingInTheBlock) {
  const NetDef net = net_of(R"(external_input: 'X' external_input: 'I' external_output: 'Z'
      op { type: 'Exp' input: 'X' output: 'A' } op { type: 'Transpose' input: 'A' output: 'B' }
      op { type: 'Gather' input: 'B' input: 'I' output: 'C' } op { type: 'SumElements' input: 'C' output: 'Z' })");
  Both both(net, {{"X", kX}, {"I", Tensor::of<int32_t>({2}, {0, 3})}});
  both.run(2);
  both.planned.feed({{"I", Tensor::of<int32_t>({2}, {0, 4})}});
  expect_contains(error_of([&] { both.planned.run(); }), "Gather");
  EXPECT_EQ(both.planned.workspace().fetch("B").raw(), nullptr);
  both.feed({{"I", Tensor::of<int32_t>({2}, {1, 2})}});
  both.run(3);
  EXPECT_TRUE(both.memory().planned);
}

TEST(NetArena, TheBlockCanBeGivenBackBetweenRuns) {
  Both both(net_of(R"(external_input: 'X' external_output: 'Z'
      op { type: 'Transpose' input: 'X' output: 'A' } op { type: 'Transpose' input: 'A' output: 'B' }
      op { type: 'SumElements' input: 'B' output: 'Z' })"),
            {{"X", kX}});
  both.run(3);
  const int64_t with = allocator({}).counters().live;
  both.planned.net().let_go_of_memory();
  EXPECT_EQ(with - allocator({}).counters().live, 2 * kBytes);
  both.run(2);
  EXPECT_EQ(allocator({}).counters().live, with);
}

TEST(NetArena, ARunThatWasPreparedTouchesNoHeap) {
  if (!counts_heap()) GTEST_SKIP() << "a sanitizer has its own operator new";
  const NetDef net = net_of(R"(external_input: 'X' external_output: 'Z'
      op { type: 'Exp' input: 'X' output: 'A' } op { type: 'Negative' input: 'A' output: 'B' }
      op { type: 'Mul' input: 'A' input: 'B' output: 'C' } op { type: 'Sigmoid' input: 'C' output: 'Z' })");
  NetRuns runs(net, {{"X", kX}}, kPlanned);
  for (int i = 0; i < 3; ++i) runs.run();
  const int64_t before = heap_allocations();
  RunContext context;
  runs.net().run(context);
  EXPECT_EQ(heap_allocations() - before, 0);
}

TEST(NetArena, WithoutTheOptionNothingIsPlanned) {
  NetRuns runs(net_of("external_input: 'X' op { type: 'Exp' input: 'X' output: 'A' }"), {{"X", kX}}, {});
  runs.run();
  EXPECT_EQ(runs.net().memory().values, 0);
  EXPECT_EQ(runs.workspace().fetch("A").bytes(), static_cast<size_t>(kBytes));
  EXPECT_NE(runs.workspace().fetch("A").raw(), nullptr);
}

}  // namespace
}  // namespace stepnet::testing::net_arena_test
