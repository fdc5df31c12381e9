// StepProgram: a step net compiled for fixed shapes, run once per timestep.
//
// Every name of the step net becomes a slot, and there is one operator instance per operator, not one per timestep:
// going to the next step moves the slots' offsets. A slot is one of
//   link      rows of a tensor outside (a state, the sequence, a gradient); never copied
//   slab      one row per timestep of a [T, ...] tensor, because the backward pass reads it
//   scratch   a buffer that all timesteps reuse, and other slots within a timestep (step_layout.cc)
//   external  a blob of the surrounding workspace (a parameter, lengths, an encoder's output), read only
//   timestep  the step's index, int32 [1]; on a GPU, where nobody can write it between two steps, a row of all indices
//   block     rows of a buffer of K timesteps, which other slots may use within a block
// An operator whose output another name shares (a schema's alias) costs nothing: both names are one slot.
// Operators that no timestep waits for run for a block of K timesteps at once (step_blocks.cc), on tensors whose rows
// are those of K timesteps: what depends on the sequence alone before the block (hoisting), what only adds to totals or
// to the sequence's gradient after it (deferring). A block runs in stages, the cells of a stack one after the other
// (step_stages.cc), or several at once on blocks that follow each other (step_schedule.cc). Blocks are aligned to
// timestep 0, whatever the direction. Kernels are chosen and shapes inferred once; an operator whose shapes depend on
// data is inferred in every step.
//
// Owns: slabs and scratch. Borrows: the workspace, while compiling and binding.
// Threads: one run at a time.
// Errors: carry the operator, the step net and the timestep.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/compute/device_work.h"
#include "core/compute/packed_weights.h"
#include "core/net/liveness.h"
#include "core/operator/bound_op.h"
#include "recurrent/step/counters.h"
#include "recurrent/step/inner_operator.h"
#include "recurrent/step/step_check.h"
#include "recurrent/step/step_slot.h"

namespace stepnet {

// Timesteps [first, first + count).
struct StepRange {
  int64_t first = 0, count = 0;
};

struct StepProgramSpec {
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
  MakeInner make_inner = nullptr;  // null: no operator may run a net of its own
  Device device;                   // of all that the program makes, and of operators that do not say their own
  std::shared_ptr<PackMemory> packs = nullptr;  // shared with programs that run in turn with this one
};

// to += from, of one dtype and size; on the CPU `from` may be of a half type where `to` is float32.
void add_elements(const Tensor& from, Tensor to);

// After the timestep t, row t + shift of `to` [rows, B, ...] gets row t + shift - start of `from` added, if that has
// it. `to` may have the latest rows alone, as a link's tensor.
struct RowSum {
  Tensor from, to;
  int64_t start = 0, shift = 0;
  void add(int64_t t, int64_t first, int64_t samples) const;  // of these samples
};

class StepProgram {
 public:
  explicit StepProgram(StepProgramSpec spec);

  // Points links to other tensors of the same shapes (their storage may have changed since the last run), or to all
  // rows where the latest were given.
  void rebind_link(const std::string& internal, const LinkTarget& link);
  void rebind_total(size_t gradient, const Tensor& total);
  // `whole` begins with the row of timestep `origin`.
  void rebind_slab(const std::string& name, const Tensor& whole, int64_t origin = 0);
  // False if a blob outside has changed its type or shape, so that the program does not fit any more.
  bool rebind_externals();

  // All timesteps, or these; the first and, but for the last of all, the end must be multiples of segment_unit().
  // `row_sums` are in timesteps of the whole. Matrices that earlier ranges have packed are packed again only if
  // `again`, or if another program has used the memory for them meanwhile.
  void run(RunContext& run, const std::vector<RowSum>& row_sums = {});
  void run_range(RunContext& run, const std::vector<RowSum>& row_sums, const StepRange& range, bool again);
  int64_t segment_unit() const { return std::max(spec_.block, after_block_); }
  // The own slab that is not visible and that the name is one of; "" if there is none.
  std::string own_slab_of(const std::string& name) const;
  // All of them, as they are without the shape that the last operator gave them.
  std::map<std::string, Tensor> own_slabs() const;
  // Lets go of the bytes that links to this tensor show, until they are bound again.
  void let_go_of(const Tensor& linked);
  // The same of all links, totals and blobs outside, behind a run: else they would stay while the next run's are made.
  void let_go_of_outside();
  // Binds a link again that was let go of, if the tensor is like the one before.
  void bring_back(const std::string& internal, const LinkTarget& link);
  // Lets go of the bytes of all links and slabs that show rows of a segment, until they are bound again.
  void let_go_of_segment();

  // The slab [T, ...] of a kept value; undefined if the step net does not write that name.
  Tensor slab(const std::string& name) const;
  std::map<std::string, TensorType> types() const;  // of all typed slots
  // What the step net's blobs held in timestep t of the last run, as far as that is still there: links, slabs, the
  // timestep.
  std::map<std::string, Tensor> blobs(int64_t t) const;
  int64_t slab_bytes() const;
  bool is_seen_in_blocks(const Tensor& linked) const;  // operators that run once per block see rows of the tensor
  bool overwrites() const { return overwrites_; }      // a run leaves other values in the slabs that it was given
  const RecurrentCounters& copied() const { return copied_; }  // per timestep
  // How many operators run once per block, and how many in every timestep.
  int block_operators() const;
  int step_operators() const { return static_cast<int>(ops_.size()) - block_operators(); }
  int stages() const { return stages_; }  // in which a block runs

 private:
  using Phase = Schedule::Phase;
  struct Op {
    BoundOp op;
    Phase phase = Phase::step;
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
    std::unique_ptr<Kernel> fused;    // of several operators
    std::vector<Schedule::Op> parts;  // these
    bool flops_known = false;         // they are part of step_flops_
    bool plain_copy = false;          // an alias that must be written because its destination is linked
    std::unique_ptr<InnerOperator> nested;
  };
  struct Total {
    size_t gradient = 0;
    int slot = -1;
    Tensor tensor;
    bool accumulated_by_kernel = false;
  };

  // A stage's operators, a part of the batch, and what they see of it; see step_lanes.cc.
  struct Lane {
    struct Moving {
      Tensor* tensor;
      const StepSlot* slot;
      size_t before;  // bytes of the samples of other lanes in front
    };
    struct Operator {
      const Op* op;
      std::vector<const Tensor*> in;
      std::vector<Tensor*> out;
    };
    explicit Lane(WeightPacks& weights) : packs(weights) {}

    int stage = 0;
    int64_t first = 0, samples = 0;
    std::vector<bool> used;       // by slot
    std::vector<Tensor> tensors;  // by slot
    std::vector<Moving> moving;
    Tensor* timestep = nullptr;  // its own, because lanes are not at the same one
    std::vector<Operator> ops;
    WeightPacks packs;
    Products products;
    std::exception_ptr error;
  };

  bool kernels_fit(const Op& op) const;
  int slot_of(const std::string& name) const;
  int add_slot(StepSlot slot);
  void keep_sources_of_aliases();
  void add_given_slots();
  void show_timesteps(StepSlot& slot) const;
  void add_op(int index);
  bool share_slot(const Op& op);
  int input_slot(const std::string& name);
  int output_slot(const std::string& name);
  void infer(Op& op);
  void fit_output(int slot, const TensorType& type);
  void forget_shape(StepSlot& slot) const;
  // Who reads and writes each slot, found once for a pass. A pass that changes operators' slots keeps that up to date
  // or asks about others alone.
  struct SlotUses {
    std::vector<std::vector<size_t>> writers, users;  // operators, in order
    std::vector<int> uses;                            // as often as an operator has it
    std::map<const void*, std::vector<int>> links;    // by storage: linked slots that show it
  };
  class KnownUses {
   public:
    explicit KnownUses(StepProgram& program) : program_(program), uses_(program.find_uses()) {
      program_.uses_ = &uses_;
    }
    ~KnownUses() { program_.uses_ = nullptr; }
    KnownUses(const KnownUses&) = delete;
    KnownUses& operator=(const KnownUses&) = delete;
    SlotUses& slots() { return uses_; }

   private:
    StepProgram& program_;
    SlotUses uses_;
  };
  SlotUses find_uses() const;
  int uses_of(int slot) const;
  struct Overwrites;
  bool may_overwrite(const Overwrites& known, const Op& op, int slab, int output) const;
  void replace_slot(SlotUses& uses, int old, int by);
  void overwrite_slabs();
  void plan_totals();
  void plan_blocks();
  void plan_block_size();
  class Orders;
  const std::vector<size_t>& users(int slot) const;
  void order_slot(Orders& orders, int slot) const;
  bool is_earlier_row(int slot, int than) const;
  void order_rows(Orders& orders, const std::vector<int>& same_tensor) const;
  Orders orders() const;
  bool may_hoist(const Op& op) const;
  bool carries(const Op& op) const;
  int number_stages(const Orders& orders);
  void plan_stages();
  void widen_between_stages();
  void widen(int slot);
  bool runs_pass(const std::string& pass) const { return spec_.disabled_passes.count(pass) == 0; }
  struct Chain;
  struct Place;
  struct Part;
  std::vector<int64_t> columns_of(const Op& op, bool puts) const;
  bool has_rows(const Chain& chain, int slot, int64_t width) const;
  int operand_of(Chain& chain, int slot) const;
  bool add_elementwise(Chain& chain, const Op& op) const;
  bool add_taken_columns(Chain& chain, const Op& op) const;
  bool is_summed_next(size_t index, int slot) const;
  bool add_put_columns(Chain& chain, size_t index) const;
  bool fill(Chain& chain, int to, std::vector<Part> parts) const;
  int chain_begin(const Op& op) const;
  bool add_filled(Chain& chain, const Op& op) const;
  bool add_to_chain(Chain& chain, size_t index) const;
  bool is_seen(const Chain& chain, int slot) const;
  void place_results(Chain& chain, std::vector<Place>& results) const;
  bool is_shared(const std::vector<Place>& places, const Place& result) const;
  bool close_chain(Chain& chain);
  std::vector<bool> close_chains();
  void fuse_chains();
  void keep_slices_in_steps();
  void move_slices_to_readers();
  class Folds;
  void fold_sums();
  size_t output_of(const Op& op, int slot) const;
  void place(size_t op, Phase phase);
  int64_t first_row(int slot) const;
  bool is_made_earlier(size_t op, int slot) const;
  bool runs_before(size_t op) const;
  bool runs_after(size_t op) const;
  bool read_before(size_t op, int slot) const;
  bool read_after(size_t op, int slot) const;
  bool written_after(int slot) const;
  bool can_stack(const Op& op) const;
  bool can_stack(const Op& op, int64_t steps) const;
  bool varies(int slot) const;
  bool is_total(int slot) const;
  bool is_accumulator(int slot) const;
  Schedule schedule() const;
  void check_pass(const std::string& pass, bool placed = true);
  const std::vector<size_t>& writers(int slot) const;
  const std::vector<int>& links_to(const void* storage) const;
  bool shares_storage(int slot) const;
  int stage_of_storage(const void* storage) const;
  bool packs_weights(int64_t products) const;
  void start_run(bool again);
  void drop_bytes(size_t slot);
  int lanes_for(int threads) const;
  bool may_use_lanes() const;
  void prepare_lanes();
  void prepare_row_sums(const std::vector<RowSum>& row_sums);
  Shape lane_shape(int slot, int64_t samples) const;
  bool works_on_samples(const Op& op, int64_t samples) const;
  size_t step_weight_bytes() const;
  std::unique_ptr<Lane> make_lane(int stage, int index, int count);
  void bind_lane(Lane& lane);
  bool has_steps(int stage) const;
  using Block = StepRange;
  int64_t timestep_at(const Block& block, int64_t i) const;
  Block block_at(int64_t size, int64_t i) const;
  int64_t blocks_of(int64_t size) const { return (range_.count + size - 1) / size; }
  void run_lane(Lane& lane, const Block& block, const RunContext& run);
  void run_lanes(int stage, const Block& block, const RunContext& run);
  void run_steps(int stage, const Block& block, RunContext& run);
  void run_step(int stage, int64_t t, RunContext& run);
  void run_block(Phase phase, int stage, const Block& block, RunContext& run);
  void run_in_turn(const Block& block, RunContext& run);
  void run_wave(int64_t turn, RunContext& run);
  void run_after(RunContext& run, const Block& block);
  void run_blocks(RunContext& run);
  bool may_capture(const RunContext& run) const;
  std::vector<const void*> addresses() const;
  void run_captured(RunContext& run);
  void bind_pointers();
  bool may_lay_out(int slot) const;
  Lifetime block_lifetime(int slot) const;
  void lay_out_blocks();
  void allocate_scratch();
  Shape shape_in(const Lane* lane, int slot) const;
  std::vector<Lifetime> scratch_lifetimes(const std::vector<int>& slots, const Lane* lane) const;
  void lay_out_scratch();
  void bind_block(Op& op);
  void call(Op& op, RunContext& run);
  static void run_kernel(const Op& op, Call& call);
  void call_nested(Op& op, const RunContext& run);
  void check_outputs(const Op& op);
  void add_totals();
  void add_place(Error& error, const Op& op) const;
  void add_step_place(Error& error, const Op& op, int64_t t) const;

  StepProgramSpec spec_;                     // its net is null once compiled
  std::unique_ptr<Workspace> nested_blobs_;  // of operators that run nets of their own
  std::string net_name_;
  std::map<std::string, int> slots_by_name_;
  std::vector<std::unique_ptr<StepSlot>> slots_;
  const SlotUses* uses_ = nullptr;  // while a KnownUses lives
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<Total> totals_;
  std::set<std::string> written_;
  std::set<std::string> writes_;  // all names that some operator writes
  RecurrentCounters copied_;
  WeightPacks packs_;
  std::vector<const void*> constants_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // stage by stage, the same number in each
  int threads_ = 0;                           // that the lanes were made for
  bool wave_ = false;                         // stages work at the same time
  double step_flops_ = 0;                     // of a timestep, of operators whose shapes are known
  bool overwrites_ = false;
  int stages_ = 1;
  int64_t ring_ = 1;                           // how many timesteps have rows in the slots of blocks: K for each stage
  int64_t after_block_ = 0;                    // how many timesteps wait for what runs after them
  bool after_last_ = false;                    // they all wait for the last
  StepRange range_;                            // of the present run
  std::vector<std::vector<RowSum>> row_sums_;  // of the present run, by stage
  std::unique_ptr<DeviceGraph> graph_;         // on a GPU: the loop at these addresses
  std::vector<const void*> graph_addresses_, last_addresses_;
  SymbolicResults expected_;  // of the step net as it was written
  bool graph_refused_ = false;
};

}  // namespace stepnet
