// StepIr: a step net as slots and operators, which passes rewrite (recurrent/step/passes.h) and a StepProgram runs.
//
// Plain data, and questions about it that every pass asks; no pass and no call of a kernel stands here.
//
// Every name of the step net becomes a slot, and there is one operator instance per operator, not one per timestep:
// going to the next step moves the slots' offsets. A slot is one of
//   link      rows of a tensor outside (a state, the sequence, a gradient); never copied
//   slab      one row per timestep of a [T, ...] tensor, because the backward pass reads it
//   scratch   a buffer that all timesteps reuse, and other slots within a timestep (layout.cc)
//   external  a blob of the surrounding workspace (a parameter, lengths, an encoder's output), read only
//   timestep  the step's index, int32 [1]; on a GPU, where nothing can write it between two steps, a row of all indices
//   block     rows of a buffer of K timesteps, which other slots may use within a block
// An operator whose output another name shares (a schema's alias) costs nothing: both names are one slot.
//
// Owns: slabs and scratch. Borrows: the workspace, while it is built and bound. Threads: one at a time.
// Errors: carry the operator and the step net.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/compute/packed_weights.h"
#include "recurrent/step/counters.h"
#include "recurrent/step/inner_operator.h"
#include "recurrent/step/step_check.h"
#include "recurrent/step/step_slot.h"
#include "stepnet/bound_op.h"

namespace stepnet {

class NetObserver;

struct StepSpec {
  const NetDef* net = nullptr;
  std::string random_name;  // names the random draws, the same for a step net and its backward one
  std::string timestep;
  int64_t steps = 0;  // T
  int64_t batch = 0;  // B
  int64_t block = 1;  // K; 1: every operator runs in every timestep
  std::set<std::string> disabled_passes;
  bool backward = false;    // values are gradients: some may be deferred
  bool descending = false;  // timesteps come from the last to the first
  std::map<std::string, LinkTarget> links;
  std::map<std::string, Tensor> slabs;       // forward values that a backward step net reads, [T, ...]
  std::map<std::string, TensorType> shapes;  // forward values of which it reads the shape alone
  std::map<std::string, Tensor> contents;    // of the slabs, what follows from shapes and is the same in every timestep
  std::set<std::string> untyped;             // those whose shape depends on data, which it cannot read
  std::set<std::string> visible;             // of the slabs, those that are outputs and stay as they are
  std::set<std::string> keep;                // own values to keep per timestep in slabs
  int64_t slab_steps = 0;                    // rows of own slabs that are not visible; 0: one for each timestep
  bool keep_all = false;                     // and all others whose shapes are known, which nobody relies on
  // Own values that are added up over time, and the tensors that they are added to. One value may have several.
  struct Sum {
    std::string name;
    Tensor total;
    size_t gradient = 0;  // sums with the same number have the same total
  };
  std::vector<Sum> totals;
  Workspace* workspace = nullptr;
  MakeInner make_inner = nullptr;   // null: no operator may run a net of its own
  NetObserver* observer = nullptr;  // is shown the step net while it is compiled
  Device device;                    // of all that the program makes, and of operators that do not say their own
  std::shared_ptr<PackMemory> packs = nullptr;  // shared with programs that run in turn with this one
};

// Where the operands of a chain are in timesteps that it goes through at once.
struct ChainSteps {
  int64_t steps = 0, elements = 0;       // of a result, in one timestep
  std::span<std::byte* const> operands;  // inputs and outputs of the first timestep, then those of the second
  // May be empty: is told of elements [first, first + count) that are there in a timestep, before the next one reads
  // them. Several threads call it at once, each for elements of its own.
  std::function<void(int64_t step, int64_t first, int64_t count)> made;
};

struct StepOp {
  bool reads(int slot) const;
  bool writes(int slot) const;

  BoundOp op;
  Schedule::Phase phase = Schedule::Phase::step;
  int stage = 0;
  std::string profile_name;
  std::vector<const Tensor*> block_in;  // before and after: stacked timesteps, or what does not change
  std::vector<Tensor*> block_out;
  const Kernel* kernel = nullptr;  // null: infer and choose in every step
  std::vector<int> in_slots, out_slots;
  std::vector<const Tensor*> in;
  std::vector<Tensor*> out;
  uint32_t accumulate = 0;
  OpMeaning meaning;
  std::unique_ptr<Kernel> fused;                       // of several operators
  std::string fused_types;                             // theirs, joined by +
  std::vector<Schedule::Op> parts;                     // these
  std::vector<BoundOp> part_ops;                       // and what they are
  std::function<void(const ChainSteps&)> fused_steps;  // null: elements cannot go through timesteps by themselves
  bool scans = false;                                  // they do
  bool flops_known = false;                            // they are part of step_flops
  bool plain_copy = false;  // an alias that must be written because its destination is linked
  std::unique_ptr<InnerOperator> nested;
};
struct StepTotal {
  size_t gradient = 0;
  int slot = -1;
  Tensor tensor;
};

// Who reads and writes each slot, found once for a pass. A pass that changes operators' slots keeps that up to date
// or asks about others alone.
struct SlotUses {
  // The linked slots that show one tensor.
  struct Links {
    int slots = 0, written = 0;   // how many there are, and how many of them operators write
    int last_stage = -1;          // of those operators
    bool rows_known = true;       // of those that are written, all show single rows that follow one another
    int64_t first = 0, last = 0;  // these rows at timestep 0, if there are any
  };
  std::vector<std::vector<size_t>> writers, users;  // operators, in order
  std::vector<int> uses;                            // as often as an operator has it
  std::map<const void*, Links> links;               // by storage
};

struct StepIr {
  int slot_of(const std::string& name) const;
  int add_slot(StepSlot slot);
  SlotUses find_uses() const;
  int uses_of(int slot) const;
  const std::vector<size_t>& writers(int slot) const;
  const std::vector<size_t>& users(int slot) const;
  const SlotUses::Links& links_like(int slot) const;
  bool shares_storage(int slot) const;
  bool varies(int slot) const;
  bool is_total(int slot) const;
  TensorType type_of(int slot) const;  // of a timestep; unknown before the first one if it depends on data
  bool is_accumulator(int slot) const;
  int64_t first_row(int slot) const;
  bool kernels_fit(const StepOp& op) const;
  size_t output_of(const StepOp& op, int slot) const;
  bool can_stack(const StepOp& op) const;
  bool can_stack(const StepOp& op, int64_t steps) const;
  std::vector<int64_t> columns_of(const StepOp& op, bool puts) const;
  std::map<const void*, int> stages_of_storages() const;
  Schedule schedule() const;
  void add_place(Error& error, const StepOp& op) const;
  bool runs_pass(const std::string& pass) const { return spec.disabled_passes.count(pass) == 0; }

  StepSpec spec;                            // its net is null once compiled
  std::unique_ptr<Workspace> nested_blobs;  // of operators that run nets of their own
  std::string net_name;
  std::map<std::string, int> slots_by_name;
  std::vector<std::unique_ptr<StepSlot>> slots;
  const SlotUses* known_uses = nullptr;  // while a KnownUses lives
  std::vector<std::unique_ptr<StepOp>> ops;
  std::vector<StepTotal> totals;
  std::set<std::string> written;
  std::set<std::string> writes;  // all names that some operator writes
  RecurrentCounters copied;
  double step_flops = 0;  // of a timestep, of operators whose shapes are known
  bool overwrites = false;
  bool placed = false;  // what crosses blocks or stages has a row for each timestep
  int stages = 1;
  int64_t ring = 1;          // how many timesteps have rows in the slots of blocks: K for each stage
  int64_t after_block = 0;   // how many timesteps wait for what runs after them
  bool after_last = false;   // they all wait for the last
  SymbolicResults expected;  // of the step net as it was written
};

// For a scope: who reads and writes each slot is found once. A pass that changes operators' slots meanwhile does the
// same to slots().
class KnownUses {
 public:
  explicit KnownUses(StepIr& ir) : ir_(ir), uses_(ir.find_uses()) { ir_.known_uses = &uses_; }
  ~KnownUses() { ir_.known_uses = nullptr; }
  KnownUses(const KnownUses&) = delete;
  KnownUses& operator=(const KnownUses&) = delete;
  SlotUses& slots() { return uses_; }

 private:
  StepIr& ir_;
  SlotUses uses_;
};

// How many timesteps operators take at once that need not wait for any: together some 128 rows, which is what matrix
// products need to be fast, and twice as many where they add up over rows, as a total is read and written each time.
// Where stages hand blocks to each other and the batch is small, half as many, so that a stage need not wait long for
// the first. Each is a multiple of the next smaller, so that a segment of whole deferred blocks is one of all of them.
// The result does not depend on it but for rounding.
int64_t hoisted_block(int64_t batch);
int64_t deferred_block(int64_t batch);
int64_t staged_block(int64_t batch, int64_t block);  // at most `block`

// Returns a StepIr as text, for people and for the tests of passes: what runs for a block of timesteps, what runs in
// each of them and why, and where values lie. A line on the whole, one for each operator in the order in which they
// run, and one for each slot that is used.
//
//   step net "rnn/step": T 6, B 2, block 6, 1 stage
//     before  xw = FC(x, W, b)
//     step    h, t = fused Tanh+Mul(h_prev, xw); reads "h_prev", a state that timesteps write
//     link     "h_prev" float[1, 2, 9] of [7, 2, 9]
//     external "W" float[9, 9]
std::string to_text(const StepIr& ir);

}  // namespace stepnet
