// StepProgram: runs a step net that has been compiled for fixed shapes (recurrent/step/ir.h), once per timestep.
//
// Operators that no timestep waits for run for a block of K timesteps at once, on tensors whose rows are those of K
// timesteps: what depends on the sequence alone before the block (hoisting), what only adds to totals or to the
// sequence's gradient after it (deferring). A block runs in stages, the cells of a stack one after the other, or
// several at once on blocks that follow each other. Blocks are aligned to timestep 0, whatever the direction. Kernels
// are chosen and shapes inferred once; an operator whose shapes depend on data is inferred in every step.
//
// Owns: what the step net owns. Borrows: the workspace, while binding.
// Threads: one run at a time.
// Errors: carry the operator, the step net and the timestep.
#pragma once

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/compute/backend.h"
#include "core/compute/packed_weights.h"
#include "core/net/liveness.h"
#include "recurrent/step/ir.h"
#include "recurrent/step/row_sum.h"

namespace stepnet {

// Timesteps [first, first + count).
struct StepRange {
  int64_t first = 0, count = 0;
};

class StepProgram {
 public:
  // A step net that passes have made ready (compile_step).
  explicit StepProgram(StepIr ir);

  // Points links to other tensors of the same shapes (their storage may have changed since the last run), or to all
  // rows where the latest were given.
  void rebind_link(const std::string& internal, const LinkTarget& link);
  void rebind_totals(const std::vector<Tensor>& totals);  // by the numbers of their gradients
  // `whole` begins with the row of timestep `origin`.
  void rebind_slab(const std::string& name, const Tensor& whole, int64_t origin = 0);
  // False if a blob outside has changed its type or shape, so that the program does not fit any more.
  bool rebind_externals();

  // All timesteps, or these; the first and, but for the last of all, the end must be multiples of segment_unit().
  // `row_sums` are in timesteps of the whole. Matrices that earlier ranges have packed are packed again only if
  // `again`, or if another program has used the memory for them meanwhile.
  void run(RunContext& run, const std::vector<RowSum>& row_sums = {});
  void run_range(RunContext& run, const std::vector<RowSum>& row_sums, const StepRange& range, bool again);
  // Whether of timesteps that a dry run would see as alike one may stand for others.
  bool steps_are_alike() const;
  int64_t segment_unit() const { return std::max(ir_.spec.block, ir_.after_block); }
  // The own slab that is not visible and that the name is one of; "" if there is none.
  std::string own_slab_of(const std::string& name) const;
  // All of them, as they are without the shape that the last operator gave them.
  std::map<std::string, Tensor> own_slabs() const;
  // Lets go of the bytes that links to these storages show, until they are bound again.
  void let_go_of(const std::set<const void*>& storages);
  // The same of all links, totals and blobs outside, behind a run: else they would stay while the next run's are made.
  void let_go_of_outside();
  // Binds a link again that was let go of, if the tensor is like the one before.
  void bring_back(const std::string& internal, const LinkTarget& link);
  // Lets go of the bytes of all links and slabs that show rows of a segment, until they are bound again.
  void let_go_of_segment();

  // The slab [T, ...] of a kept value; undefined if the step net does not write that name.
  Tensor slab(const std::string& name) const;
  // Of all typed slots; with a value, which lives as long as the program, where it follows from shapes.
  std::map<std::string, TensorType> types() const;
  // What the step net's blobs held in timestep t of the last run, as far as that is still there: links, slabs, the
  // timestep.
  std::map<std::string, Tensor> blobs(int64_t t) const;
  int64_t slab_bytes() const;
  std::set<const void*> links_in_blocks() const;      // storages that operators that run once per block see rows of
  bool overwrites() const { return ir_.overwrites; }  // a run leaves other values in the slabs that it was given
  const RecurrentCounters& copied() const { return ir_.copied; }  // per timestep
  // How many operators run once per block, and how many in every timestep.
  int block_operators() const;
  int step_operators() const { return static_cast<int>(ir_.ops.size()) - block_operators(); }
  int stages() const { return ir_.stages; }  // in which a block runs
  // Whether they run at the same time, so that they wait for each other at both ends of a range of timesteps.
  bool has_wavefront() const { return has_wavefront(threads_here(), lanes_for(threads_here())); }
  const StepIr& ir() const { return ir_; }

 private:
  using Block = StepRange;
  using Phase = Schedule::Phase;

  // A stage's operators, a part of the batch, and what they see of it; see "Lanes" in program.cc.
  struct Lane {
    struct Moving {
      Tensor* tensor;
      const StepSlot* slot;
      size_t before;  // bytes of the samples of other lanes in front
    };
    struct Operator {
      const StepOp* op;
      std::vector<const Tensor*> in;
      std::vector<Tensor*> out;
    };
    explicit Lane(WeightPacks& weights) : packs(weights) {}
    Tensor* find(int slot);  // null if its operators do not use it
    const Tensor* find(int slot) const;
    bool uses(int slot) const { return std::ranges::binary_search(slots, slot); }

    int stage = 0;
    int64_t first = 0, samples = 0;
    std::vector<int> slots;       // that its operators use, rising
    std::vector<Tensor> tensors;  // by these
    std::vector<Moving> moving;
    Tensor* timestep = nullptr;  // its own, because lanes are not at the same one
    std::vector<Operator> ops;
    WeightPacks packs;
    Products products;
    std::exception_ptr error;
  };

  // What runs together, and the slots that have to show its timesteps.
  struct Part {
    std::vector<StepOp*> ops;
    std::vector<StepSlot*> slots;
  };

  void bind_pointers();
  void find_parts();
  static constexpr size_t kPhases = 3;
  static size_t part_index(Phase phase, int stage) {
    return static_cast<size_t>(stage) * kPhases + static_cast<size_t>(phase);
  }
  void drop_bytes(size_t slot);
  bool packs_weights(int64_t products) const;
  void start_run(bool again);
  void run_step(int stage, int64_t t, RunContext& run);
  void add_step_place(Error& error, const StepOp& op, int64_t t) const;
  void call(StepOp& op, RunContext& run);
  static void run_untyped(StepOp& op, RunContext& run);
  static void run_kernel(const StepOp& op, Call& call);
  void call_nested(StepOp& op, const RunContext& run);
  void check_outputs(const StepOp& op);
  void add_totals();
  void bind_block(StepOp& op);
  void run_block(Phase phase, int stage, const Block& block, RunContext& run);
  Shape shape_in(const Lane* lane, int slot) const;
  std::vector<Lifetime> scratch_lifetimes(const std::vector<int>& slots, const Lane* lane) const;
  void lay_out_scratch();
  void check_places(const Lane* lane) const;
  int64_t timestep_at(const Block& block, int64_t i) const;
  Block block_at(int64_t size, int64_t i) const;
  void prepare_row_sums(const std::vector<RowSum>& row_sums);
  void run_steps(int stage, const Block& block, RunContext& run);
  void run_lanes(int stage, const Block& block, const RunContext& run);
  bool scans() const;
  const StepOp* scan_of(int stage) const;
  void run_scan(const StepOp& op, int stage, const Block& block, RunContext& run);
  void run_in_turn(const Block& block, RunContext& run);
  void run_after(RunContext& run, const Block& block);
  void run_wave(int64_t turn, RunContext& run);
  void run_blocks(RunContext& run);
  const StepOp* op_without_graph() const;
  bool may_capture(const RunContext& run) const;
  void show_loop(const RunContext& run, int stage, const TimestepsOutcome& outcome) const;
  void note_addresses();
  void run_captured(RunContext& run);
  Shape lane_shape(int slot, int64_t samples) const;
  bool works_on_samples(const StepOp& op, int64_t samples) const;
  bool works_on_samples(const BoundOp& op, const std::vector<int>& in_slots, const std::vector<int>& out_slots,
                        int64_t samples) const;
  int samples_dim(int slot) const;
  size_t step_weight_bytes() const;
  bool may_use_lanes() const;
  int lanes_for(int threads) const;
  void bind_lane(Lane& lane);
  std::unique_ptr<Lane> make_lane(int stage, int index, int count);
  static int threads_here();
  bool has_wavefront(int threads, int lanes) const;
  void prepare_lanes();
  void run_lane(Lane& lane, const Block& block, const RunContext& run);
  int64_t blocks_of(int64_t size) const { return (range_.count + size - 1) / size; }

  StepIr ir_;
  std::vector<Part> parts_;  // by stage and phase
  WeightPacks packs_;
  std::vector<const void*> constants_;
  std::vector<std::unique_ptr<Lane>> lanes_;   // stage by stage, the same number in each
  int threads_ = 0;                            // that the lanes were made for
  bool wave_ = false;                          // stages work at the same time
  StepRange range_;                            // of the present run
  std::vector<std::vector<RowSum>> row_sums_;  // of the present run, by stage
  std::vector<std::byte*> scan_operands_;      // of the present block, see ChainSteps
  // On a GPU: the loop at these addresses, and addresses at which it has run without one; the latest are the last.
  struct Captured {
    std::vector<const void*> addresses;
    std::unique_ptr<DeviceGraph> graph;
  };
  std::vector<const void*> addresses_;  // of the present run
  std::vector<Captured> captured_;
  std::vector<std::vector<const void*>> seen_addresses_;
  bool graph_refused_ = false;
};

}  // namespace stepnet
