// A chain of elementwise operators while fuse.cc puts it together. ChainPart of StepProgram.
#pragma once

#include <algorithm>

#include "recurrent/step/ir.h"
#include "stepnet/elementwise_chain.h"

namespace stepnet {

// A result's number is its instruction's; sources count from here.
constexpr int kSource = 1 << 20;

// Columns of a slot's rows. What is read may be the same for all rows, have one element that is for all columns, or
// have fewer rows than the chain (FusedOperand's each and cycle); what is written may be sums of so many rows. What has
// one element for each row may be narrow.
struct ChainPlace {
  int slot = -1;
  int64_t column = 0, row_size = 0;
  bool one_row = false, one_column = false;
  int64_t each = 1, cycle = 0;
  bool sums = false;  // is written: its one column is the sum of all
  bool narrow = false;
  int value = -1, weight = -1;  // is written as sums of rows: FusedOperand's, when the chain has ended

  int64_t stride() const { return one_row ? 0 : row_size; }  // FusedOperand's, and its step
  int64_t step() const { return one_column ? 0 : 1; }
  bool operator==(const ChainPlace&) const = default;
};

// One element for each row, as narrow instructions have it.
inline ChainPlace narrow_place(int slot) {
  return {.slot = slot, .column = 0, .row_size = 1, .one_column = true, .narrow = true};
}

// Columns of a tensor that a chain fills.
struct ChainPart {
  int value;
  int64_t column, size;
};

// What the rows of a value, `each` that follow one another, add up to.
struct ChainTotal {
  int value;
  int64_t each;
  bool narrow;
};

// A chain while it grows.
struct StepChain {
  std::vector<size_t> ops;
  Schedule::Phase phase = Schedule::Phase::step;
  DType dtype = DType::undefined;
  int64_t rows = 0, width = 0;
  std::vector<ChainPlace> sources;
  std::vector<FusedInstruction> code;            // operands: numbers of instructions, or kSource + source
  std::map<int, int> values;                     // what the slot holds now
  std::map<int, int> columns;                    // the same of narrow ones
  std::map<int, int> spread;                     // by narrow instruction: what has it in all columns
  std::map<int, int> sums;                       // what it holds the sums of, of rows that are in several pieces
  std::map<int, ChainTotal> totals;              // what it holds when the chain has ended
  std::map<int, std::vector<ChainPart>> padded;  // slots that are zero but for some columns
  std::map<int, std::vector<ChainPart>> filled;  // slots that parts make up

  int source(const ChainPlace& place) {
    const auto known = std::ranges::find(sources, place);
    if (known != sources.end()) return kSource + static_cast<int>(known - sources.begin());
    sources.push_back(place);
    return kSource + static_cast<int>(sources.size()) - 1;
  }
  bool writes(int slot) const {
    return values.count(slot) > 0 || columns.count(slot) > 0 || sums.count(slot) > 0 || totals.count(slot) > 0 ||
           padded.count(slot) > 0 || filled.count(slot) > 0;
  }
  bool makes_vectors_alone() const { return values.empty() && !(columns.empty() && totals.empty()); }
  bool reads(int slot) const {
    return std::ranges::any_of(sources, [&](const ChainPlace& p) { return p.slot == slot; });
  }
  bool reads_columns_of(int slot) const {
    return std::ranges::any_of(sources, [&](const ChainPlace& p) { return p.slot == slot && p.row_size != width; });
  }
};

// Puts one operator in the place of the chain's last one; the others are removed by the caller. False if the chain is
// no operator.
bool close_chain(StepIr& ir, StepChain& chain);

inline int64_t last_dim(const Tensor& t) { return t.rank() > 0 ? t.dim(t.rank() - 1) : 1; }

}  // namespace stepnet
