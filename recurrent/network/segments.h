// Segments: what a RecurrentNetwork holds that runs its timesteps by segments, the actions of its SegmentPlan, and the
// run itself, forward and backward.
//
// A segment is a range of timesteps in the order of the forward run. States that nobody outside sees, and what the
// forward step net keeps per timestep, have rows for the segment at work alone. What a segment leaves is handed on to
// the next one, held in full, put away by a TensorPacker, or run again from a checkpoint of the states. The bits of all
// results are those of a run in one piece: segments begin where blocks of operators do that run for several timesteps.
// Threads: one run at a time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/operator/tensor_packer.h"
#include "recurrent/form/spec.h"
#include "recurrent/network/segment_plan.h"
#include "recurrent/step/program.h"
#include "stepnet/op_spec.h"

namespace stepnet {

struct RecurrentScratch;  // recurrent/network/kept.h, which has Segments

// Which segments a network runs by.
struct SegmentChoice {
  int64_t steps = 0;  // of a segment, rounded up to whole blocks; 0: in one piece
  int64_t room = -1;  // bytes for what is held beside the segment at work; less than 0: no bound
  bool operator==(const SegmentChoice&) const = default;
};

// By name: what the forward program keeps, and states; both with rows from the segment's first timestep on.
struct SegmentValues {
  std::map<std::string, Tensor> slabs, states;
};

struct Segments {
  // A state of which only a segment's rows are there.
  struct State {
    int64_t rows = 0;  // T + L
    int64_t lead = 0;  // L
  };
  // What the backward step net knows a slab as.
  struct View {
    std::string slab;
    Shape shape;
  };

  bool used = false;
  int64_t steps = 0;  // of a segment
  int64_t total = 0;  // T
  int64_t room = -1;
  Device device;
  bool reverse = false;
  bool packs = false;     // there is a packer
  bool rebuilds = false;  // states alone have a segment's rows, and are made again (recurrent/network/rebuild.h)
  std::map<std::string, State> states;
  std::map<std::string, View> views;
  SegmentPlan plan;
  size_t next = 0;     // action
  SegmentValues work;  // of the segment at work
  std::map<int64_t, SegmentValues> held;
  std::map<int64_t, std::unique_ptr<PackedTensors>> packed;
  std::map<int64_t, std::map<std::string, Tensor>> checkpoints;

  int64_t count() const { return (total + steps - 1) / steps; }
  StepRange range(int64_t segment) const;
  // The state's rows that the segment starts from, or leaves.
  Tensor rows_before(const SegmentValues& values, const std::string& state, int64_t segment) const;
  Tensor rows_after(const SegmentValues& values, const std::string& state, int64_t segment) const;
  int64_t kept_bytes() const;  // of slabs

  // Makes a plan for what `work` has at present.
  void plan_for(int64_t room);
  // Before a forward run: the first rows of the states in `work` are written.
  void start();
  // Every action but a backward one. The program runs forward, or makes states again.
  void act(const SegmentAction& action, StepProgram& program, const std::vector<Link>& links, RunContext& run,
           bool again);
  // What the segment kept; with `keep` it stays for another backward run.
  SegmentValues take(int64_t segment, bool keep);
  // All that is held here and not packed.
  void add_tensors(std::vector<Tensor*>& tensors);
  // After a backward run: lets go of everything, or with `keep` prepares for another one.
  void finish(bool keep);

 private:
  void bind(StepProgram& program, const std::vector<Link>& links, int64_t segment) const;
  void enter(int64_t segment);
  void save(int64_t segment);
  void load(int64_t segment);
  void stash(int64_t segment, TensorPacker* packer);
  void make_room();
  void run_segment(StepProgram& program, RunContext& run, int64_t segment, bool again);

  std::map<std::string, TensorType> slab_types_, state_types_;  // of `work`
  int64_t ready_ = -1;  // the segment whose first states are where it reads them
  int64_t left_ = -1;   // the segment that has just run
  // What a dry run of a whole segment was: it need not be done again where no more is live than there was.
  struct DryRun {
    int64_t live = -1;
    double flops = 0, product_flops = 0;
  };
  DryRun dry_run_;  // since the pass began
};

// The step blobs and tensors that the forward links lead to, with the segment at work for those of its states.
std::map<std::string, LinkTarget> forward_links(const RecurrentScratch& scratch, const Workspace& workspace);

// Whether this run goes by segments, and by which: as the arguments say, or where a packer takes what is kept. False if
// a program that was compiled before does not fit any more.
bool choose_segments(RecurrentScratch& scratch, const BlobCall& call, int64_t steps, int64_t batch);

// After the forward program was compiled: takes its slabs, and plans.
void plan_segments(RecurrentScratch& scratch);

// The forward pass.
void run_segments_forward(RecurrentScratch& scratch, RunContext& run);

// The backward pass: `back` runs the backward program over a range of timesteps with what the forward run kept of it;
// `first` the first time.
using RunBack = std::function<void(const SegmentValues& values, const StepRange& range, bool first)>;
void run_segments_backward(RecurrentScratch& scratch, Workspace& workspace, RunContext& run, const RunBack& back);

}  // namespace stepnet
