// Schedules on symbols: what passes may do keeps every result's number, and what they must not shows.
#include "recurrent/step/step_check.h"

#include <gtest/gtest.h>

#include "stepnet/error.h"

namespace stepnet::testing::step_check_test {
namespace {

using Phase = Schedule::Phase;
using Kind = StepSlot::Kind;

// x and y are rows of sequences, h_prev and h those of a state before and after a timestep, v and w scratch.
enum Slots { x, h_prev, h, y, v, w };

struct Program {
  std::vector<StepSlot> slots;
  Schedule schedule;
};

StepSlot link(const char* name, const Tensor& whole, int64_t offset) {
  StepSlot slot;
  slot.name = name;
  slot.kind = Kind::link;
  slot.typed = true;
  slot.lead_to({.whole = whole, .offset = offset});
  slot.row = whole.shape().with(0, 1);
  return slot;
}

Schedule::Op op(uint64_t number, std::vector<int> in, std::vector<int> out) {
  Schedule::Op made;
  made.meaning.number = number;
  made.in = std::move(in);
  made.out = std::move(out);
  return made;
}

Schedule::Op sum(std::vector<int> in, int out) {
  Schedule::Op made = op(0, std::move(in), {out});
  made.meaning.sums = true;
  return made;
}

// v = f(x), w = g(h_prev), h = v + w, y = k(h).
Program program(int64_t steps = 5) {
  Program p;
  const Tensor sequence = Tensor::zeros(DType::float32, {steps, 2, 3}), shown = sequence.clone(),
               state = Tensor::zeros(DType::float32, {steps + 1, 2, 3});
  p.slots = {link("x", sequence, 0), link("h_prev", state, 0), link("h", state, 1), link("y", shown, 0)};
  for (const char* name : {"v", "w"}) {
    StepSlot scratch;
    scratch.name = name;
    scratch.typed = true;
    scratch.tensor.set_type(DType::float32, {1, 2, 3});
    p.slots.push_back(scratch);
  }
  p.schedule.steps = steps;
  p.schedule.block = p.schedule.after_block = p.schedule.ring = 2;
  p.schedule.ops = {op(1, {x}, {v}), op(2, {h_prev}, {w}), sum({v, w}, h), op(3, {h}, {y})};
  return p;
}

SymbolicResults results(Program& p, bool wave = false) {
  p.schedule.slots.clear();
  for (const StepSlot& slot : p.slots) p.schedule.slots.push_back(&slot);
  return run_on_symbols(p.schedule, wave);
}

// What is different from the program as it was written; "" if nothing is.
std::string difference(Program& p, bool wave = false) {
  Program written = program(p.schedule.steps);
  // Tensors have numbers by the slot that shows them first, so that two programs agree.
  const SymbolicResults expected = results(written);
  const SymbolicResults found = results(p, wave);
  try {
    check_results(p.schedule, expected, found, "some pass");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(StepCheck, BlocksBeforeAndAfterKeepResults) {
  Program p = program();
  EXPECT_EQ(difference(p), "");
  p.schedule.ops[0].phase = Phase::before;
  p.schedule.ops[3].phase = Phase::after;
  EXPECT_EQ(difference(p), "");
  p.schedule.after_last = true;
  EXPECT_EQ(difference(p), "");
}

TEST(StepCheck, AValueOfABlockNeedsARowForEachTimestep) {
  Program p = program();
  p.schedule.ops[0].phase = Phase::before;
  p.schedule.placed = true;
  EXPECT_NE(difference(p).find("after the pass some pass, \"h_prev\" at byte"), std::string::npos);
  p.slots[v].kind = Kind::block;
  EXPECT_EQ(difference(p), "");
  p.schedule.ring = 1;
  EXPECT_NE(difference(p), "");
}

TEST(StepCheck, AnOperatorOnBlocksNeedsTheRowsOfTheBlock) {
  Program p = program();
  p.schedule.ops[0].phase = Phase::before;
  p.schedule.ops[0].one_timestep = {true};
  EXPECT_NE(difference(p), "");
}

TEST(StepCheck, WhatAStateDependsOnStaysInItsTimestep) {
  Program p = program();
  p.schedule.ops[1].phase = Phase::before;
  EXPECT_NE(difference(p), "");
  p = program();
  std::swap(p.schedule.ops[1], p.schedule.ops[2]);
  EXPECT_NE(difference(p), "");
}

TEST(StepCheck, SumsMayBeMadeInOnePlace) {
  Program p = program();
  p.schedule.ops = {op(1, {x}, {h}), op(2, {h_prev}, {h}), op(3, {h}, {y})};
  p.schedule.ops[1].accumulate = 1;
  EXPECT_EQ(difference(p), "");
  std::swap(p.schedule.ops[0], p.schedule.ops[1]);
  EXPECT_NE(difference(p), "");
  p.schedule.ops.erase(p.schedule.ops.begin());
  EXPECT_NE(difference(p), "");
}

TEST(StepCheck, StagesHandBlocksOn) {
  Program p = program();
  for (const int later : {3}) p.schedule.ops[later].stage = 1;
  p.schedule.stages = 2;
  p.schedule.ring = 4;
  EXPECT_EQ(difference(p), "");
  EXPECT_EQ(difference(p, true), "");
  p.schedule.ops[2].stage = p.schedule.ops[1].stage = 1;  // v crosses
  EXPECT_EQ(difference(p), "");
  EXPECT_EQ(difference(p, true), "");
  p.schedule.ops[1].stage = 0;  // a state goes back
  EXPECT_NE(difference(p), "");
}

// Both have their rows in one arena.
TEST(StepCheck, ValuesThatAreAliveAtOnceShareNoByte) {
  Program p = program();
  p.schedule.placed = true;
  p.schedule.ops[0].phase = Phase::before;
  const Tensor arena = Tensor::zeros(DType::float32, {4, 2, 3});
  const auto lay_out = [&](int slot, int64_t first) {
    StepSlot& s = p.slots[slot];
    s.kind = Kind::block;
    s.row = {1, 2, 3};
    s.whole = arena.rows(first, 2);
    s.base = s.whole.offset();
    s.stride = 24;
  };
  lay_out(v, 0);
  lay_out(w, 2);
  EXPECT_EQ(difference(p), "");
  lay_out(w, 1);
  EXPECT_NE(difference(p), "");
}

// What is wrong with the bytes of v and w in a timestep; "" if nothing is.
std::string scratch_difference(Program& p, ScratchPlace at_v, ScratchPlace at_w, int stage = 0) {
  results(p);  // points to the slots
  try {
    check_scratch(p.schedule, stage, {{v, at_v}, {w, at_w}});
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(StepCheck, ScratchOfATimestepIsReadWhereItIsStillThere) {
  Program p = program();
  EXPECT_EQ(scratch_difference(p, {0, 24}, {24, 24}), "");
  EXPECT_NE(scratch_difference(p, {0, 24}, {20, 24}).find("\"v\" does not have its bytes from 0 to 24"),
            std::string::npos);
  EXPECT_EQ(scratch_difference(p, {0, 24}, {20, 0}), "");
  p.schedule.ops = {op(1, {x}, {v}), op(3, {v}, {y}), op(2, {h_prev}, {w}), op(2, {w}, {h})};
  EXPECT_EQ(scratch_difference(p, {0, 24}, {0, 24}), "");
  p.schedule.totals = {{v, 0, false}};
  EXPECT_NE(scratch_difference(p, {0, 24}, {0, 24}), "");
  p.schedule.totals[0].by_kernel = true;
  EXPECT_EQ(scratch_difference(p, {0, 24}, {0, 24}), "");
}

TEST(StepCheck, AnOperatorWritesNoScratchThatItReads) {
  Program p = program();
  p.schedule.ops = {op(1, {x}, {v}), op(2, {v}, {w}), op(3, {w}, {y})};
  EXPECT_EQ(scratch_difference(p, {0, 24}, {24, 24}), "");
  EXPECT_NE(scratch_difference(p, {0, 24}, {0, 24}), "");
  p.schedule.ops = {op(1, {x}, {v}), op(2, {v}, {v}), op(3, {v}, {y})};
  EXPECT_EQ(scratch_difference(p, {0, 24}, {24, 24}), "");
  p.schedule.ops = {op(1, {x}, {v, w}), op(3, {w}, {y})};
  EXPECT_NE(scratch_difference(p, {0, 24}, {0, 24}), "");
}

TEST(StepCheck, NoScratchIsReadOrAddedToBeforeItIsWritten) {
  Program p = program();
  p.schedule.ops = {op(3, {v}, {y}), op(1, {x}, {v})};
  EXPECT_NE(scratch_difference(p, {0, 24}, {24, 24}), "");
  p.schedule.ops = {op(1, {x}, {v}), op(3, {v}, {y})};
  p.schedule.ops[0].accumulate = 1;
  EXPECT_NE(scratch_difference(p, {0, 24}, {24, 24}), "");
  p.schedule.ops[0].accumulate = 0;
  p.schedule.ops[1].stage = 1;
  EXPECT_EQ(scratch_difference(p, {0, 24}, {24, 24}), "");
  EXPECT_NE(scratch_difference(p, {0, 24}, {24, 24}, 1), "");
}

TEST(StepCheck, SumsOverTimeHaveOneNumber) {
  Program p = program();
  p.schedule.totals = {{v, 0, false}};
  const SymbolicResults expected = results(p);
  p.schedule.totals[0].by_kernel = true;
  p.schedule.ops = {op(1, {x}, {v})};
  const std::pair<int, size_t> total = {-1, 0};
  EXPECT_EQ(results(p).at(total), expected.at(total));
  p.schedule.ops[0].phase = Phase::after;
  EXPECT_EQ(results(p).at(total), expected.at(total));
  p.schedule.steps -= 1;
  EXPECT_NE(results(p).at(total), expected.at(total));
}

}  // namespace
}  // namespace stepnet::testing::step_check_test
