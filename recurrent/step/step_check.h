// Schedule: what a step program runs, as plain data, and a run of it on symbols that shows whether a pass changed it.
//
// In place of each value stands a number made from the operator and the numbers that it reads, so that two schedules
// that give every result the same number compute the same from the same. A sum's number is the sum of its terms', a
// copy's that of what it copies; any other operator mixes its inputs'. Values lie where the program lets them lie: a
// row that is read too early, too late, after another value has taken its bytes, or in another timestep's place shows
// as another number. What it does not see: the arithmetic of kernels, and the bytes of scratch within a timestep, which
// are laid out later, for each lane; these have a check of their own.
//
// The program checks itself so after each pass in builds with assertions. Threads: pure functions.
// Errors: Error with the names of the pass and of the results that differ; it is a bug of the pass.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "recurrent/step/step_slot.h"
#include "stepnet/bound_op.h"

namespace stepnet {

#ifdef NDEBUG
inline constexpr bool kChecksPasses = false;
#else
inline constexpr bool kChecksPasses = true;
#endif

// What an operator computes, as far as passes may rely on it.
struct OpMeaning {
  uint64_t number = 0;       // of its type and arguments
  bool sums = false;         // its output is the sum of its inputs
  bool copies = false;       // its output is its input
  bool by_timestep = false;  // what it makes depends on the timestep itself
  // By input: only its shape is read, so that its value need not be there. A chain is not given what its parts read so.
  std::vector<bool> shape_only = {};
};

OpMeaning meaning_of(const BoundOp& op);

struct Schedule {
  enum class Phase { step, before, after };  // of the block
  struct Op {
    OpMeaning meaning;
    std::vector<int> in, out;  // slots; -1: absent
    uint32_t accumulate = 0;
    Phase phase = Phase::step;
    int stage = 0;
    std::vector<Op> parts = {};           // of a chain, in order; `in` and `out` are what it reads and writes outside
    std::vector<bool> one_timestep = {};  // by input, of an operator on blocks: it is given one timestep's tensor
  };
  struct Total {
    int slot = -1;
    size_t gradient = 0;
    bool by_kernel = false;
  };
  std::vector<const StepSlot*> slots;
  std::vector<Op> ops;
  std::vector<Total> totals;
  std::vector<std::pair<int, int>> changing;  // slots that show a tensor to which others add, with the stage that waits
  int64_t steps = 0, block = 1, after_block = 1, ring = 1;
  int stages = 1;
  bool after_last = false, descending = false, wave = false;
  bool placed = false;  // slots that cross blocks or stages have their rows
};

// The numbers of rows of links and of kept values, by the first slot that shows their tensor and the byte there; of
// totals by -1 less their gradient.
using SymbolicResults = std::map<std::pair<int, size_t>, uint64_t>;

// `wave`: stages run at the same time, as far apart as they can.
SymbolicResults run_on_symbols(const Schedule& schedule, bool wave);

// The bytes of a slot in the arena of a timestep's scratch.
struct ScratchPlace {
  size_t at = 0, size = 0;
};

// Throws Error if, in a timestep of the stage, an operator reads a slot that is not written yet or of which another one
// has taken bytes, writes over what it reads itself, or a sum over time finds its slot so in the end. `places`: by
// slot.
void check_scratch(const Schedule& schedule, int stage, const std::map<int, ScratchPlace>& places);

// Throws Error if a result that is expected is missing or another.
void check_results(const Schedule& schedule, const SymbolicResults& expected, const SymbolicResults& found,
                   const std::string& pass);

}  // namespace stepnet
