// What a thread of a kernel for all timesteps does between two points where blocks wait for each other: products, in
// which all threads of a block take part, operators on whole rows, of which they find the numbers, and statements for
// one head, one row and one unit.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/runtime/loop_plan.h"

namespace stepnet::gpu {

// An element of a head, row and unit: of a tensor that moves, or of a constant with a column for each unit.
struct LoopElement {
  int place = -1, constant = -1;  // one of them
  int64_t shift = 0;              // elements from the place to the group's first column, or to the part
  int64_t head_stride = 0;        // elements from head to head
  int64_t stride = 0, step = 1;   // and from row to row, and from unit to unit: 1, or 0 of what has one for a row
  bool is_int32 = false;
};

struct LoopStatement {
  enum class Kind {
    load,     // variable = element
    sum,      // variable = what the product `op` has found for the group, plus the variables `added`
    number,   // variable = a number that the operator on rows `op` has found for a part of the row
    round,    // variable = a as it is stored
    compute,  // variable = code(a, b, value)
    write,    // element = a; of what has one for a row, by the thread of the first unit
  };
  Kind kind = Kind::load;
  int variable = -1;
  LoopElement element = {};
  int op = -1;  // of the plan
  int64_t group = 0;
  int64_t number = 0;  // kRowNumbers times the part, and which of it
  std::vector<int> added = {};
  FusedInstruction instruction = {};  // of variables
};

// Variables are numbered through all stretches of a timestep.
struct LoopStretch {
  bool waits = false;                      // for the blocks of its group, behind what is read early
  std::vector<int> products = {};          // operators of the plan
  std::vector<int> rows = {};              // others, on whole rows
  std::vector<LoopStatement> early = {};   // reads of what no other thread touches on either side
  std::vector<LoopStatement> values = {};  // other reads, and arithmetic
  std::vector<LoopStatement> shared = {};  // writes that others may read after the next point
  std::vector<LoopStatement> rest = {};    // other writes, which may come after the thread has said that it is there
  int first_variable = 0, end_variable = 0;
  bool next_waits = false;
};

std::vector<LoopStretch> loop_stretches(const LoopPlan& plan);

}  // namespace stepnet::gpu
