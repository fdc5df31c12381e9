// StepSlot: a value of a step net, and where each timestep finds it. For the kinds of slots see
// recurrent/step/ir.h.
//
// Threads: value types.
#pragma once

#include <string>

#include "stepnet/tensor.h"
#include "stepnet/workspace.h"

namespace stepnet {

// A link, with the tensor that it leads to.
struct LinkTarget {
  Tensor whole;
  int64_t offset = 0, window = 1;
  bool read_only = false;  // what it leads to belongs to others
  bool changes = false;    // others add to row t after timestep t: the gradient of a state
  // The number of rows if `whole` has the first `kept`, and behind them the latest in turn. If it `changes`, operators
  // are planned as if all rows were there, see is_seen_in_blocks.
  int64_t rows = 0, kept = 0;
  // > 0: `whole` has rows of a tensor of so many, from row `origin` on; timesteps that need others are not run.
  int64_t segment_of = 0, origin = 0;
};

struct StepSlot {
  enum class Kind { link, slab, scratch, external, timestep, block };
  std::string name;
  Kind kind = Kind::scratch;
  Tensor tensor;            // what operators see in the present timestep
  Tensor content;           // what it always holds, where that follows from shapes
  bool typed = false;       // dtype and shape are known before the first step
  bool reshaped = false;    // its shape, not its size, changes within a step
  bool unused = false;      // no operator reads or writes it any more
  bool shape_only = false;  // scratch of which nobody reads the elements
  bool laid_out = false;    // scratch: has a part of an arena, which is made when the lanes are known
  bool total = false;       // is added up over time
  bool grows = false;       // total: a kernel adds to it instead of writing the slot
  size_t base = 0;          // link, slab and block: byte offset at timestep 0
  size_t stride = 0;        // link, slab and block: bytes from one timestep to the next
  Shape row;                // link, slab and block: what one timestep holds, a link's whole window
  Shape made;               // what the last operator that writes it makes of a timestep
  Tensor whole;             // link: the tensor outside; slab: [T, ...]; block: [K, ...]
  Blob* blob = nullptr;     // external
  bool changes = false;     // link: see LinkTarget
  bool read_only = false;   // link: see LinkTarget
  int64_t cycle = 0;        // link: rows of `whole` that are taken in turn; 0: rows follow one another
  int64_t kept = 0;         // link with a cycle: rows in front of it that are not
  int64_t first = 0;        // link with a cycle: its row at timestep 0, where `base` is that of row 0
  bool in_segment = false;  // link and slab: `whole` has the rows of some timesteps alone
  Tensor stacked;           // what operators see that run for a block of timesteps

  void lead_to(const LinkTarget& link);                // link: lets it be rows of that tensor
  void take_slab(const Tensor& rows, int64_t origin);  // slab: lets it be these, the first that of timestep `origin`
  void show(
      int64_t t);  // link, slab and block: lets `tensor` be the timestep's part of `whole`; t of a block is below K
  // Bytes from the start of the storage to what a link or slab shows at timestep t. With rows from an origin on `base`
  // may be before that start, which is less than 0 but for 2^64.
  size_t place(int64_t t) const { return base + static_cast<size_t>(cycle > 0 ? in_turn(t + first) : t) * stride; }
  int64_t in_turn(int64_t r) const { return r < kept ? r : kept + (r - kept) % cycle; }
  size_t row_bytes() const;          // of a row of `whole`
  Shape stack(int64_t steps) const;  // the shape of so many timesteps one after the other
};

}  // namespace stepnet
