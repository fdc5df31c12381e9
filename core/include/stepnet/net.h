// Net: a NetDef bound to a workspace, run in order.
//
// Building it checks every operator against its schema, and every input against the external inputs, earlier outputs
// and the workspace, and asks each what it can say before it runs. A run infers shapes with the values at hand,
// allocates outputs and calls kernels.
//
// On a GPU, chains of operators that do not depend on each other run at the same time, on up to four streams, if there
// are at least two operators in each (core/net/stream_schedule.h); the net's argument `streams` says how many streams
// at most, 1 for none but the caller's. A run that is observed or profiled has one. Results have the same bits.
//
// Threads: one run at a time per net; nets on one workspace may run at the same time if they share no written blob.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "stepnet/bound_op.h"

namespace stepnet {

class Dataflow;
class NetArena;
class NetStreams;

struct NetOptions {
  // Drop the tensor of an intermediate after its last reader in the net, so that it does not stay until the next run.
  // Kept: external inputs and outputs, blobs that existed before the net was built, and `keep`.
  bool release_intermediates = false;
  // Do so, and from the second run with the same types of inputs on give intermediates fixed places in one block of
  // memory where they share bytes (core/net/net_arena.h). Results have the same bits.
  bool plan_memory = false;
  std::set<std::string> keep = {};
  // Run what asks for an accelerator on the CPU.
  bool force_cpu = false;
  std::vector<std::string>* warnings = nullptr;  // filled while building
};

// What the intermediates of a net take whose memory is planned (core/net/net_arena.h), in bytes.
struct NetMemory {
  bool planned = false;      // they are in the block
  int64_t values = 0;        // that have a place
  int64_t written_over = 0;  // of these, that take the place of an input that they are computed from
  int64_t apart = 0;         // the sum of all, each by itself
  int64_t most_alive = 0;    // the largest sum of those alive at one operator: no block is smaller
  int64_t block = 0;
};

class Net {
 public:
  Net(const NetDef& def, Workspace& workspace, const NetOptions& options = {});
  ~Net();
  Net(const Net&) = delete;
  Net& operator=(const Net&) = delete;

  // Runs all operators; throws Error with operator and net. `run.iteration` is taken from runs().
  void run(RunContext& run);

  const NetDef& def() const { return def_; }
  const std::string& name() const { return def_.name(); }
  int64_t runs() const { return runs_; }
  void set_runs(int64_t runs) { runs_ = runs; }  // a resumed run goes on counting
  Workspace& workspace() const { return workspace_; }

  // Of the latest run, with plan_memory; zeros otherwise.
  NetMemory memory() const;
  // Gives the block of planned memory back until the next run, for whoever runs another net in between.
  void let_go_of_memory();

 private:
  struct Step;
  void run_step(Step& step, RunContext& run);
  void run_steps(RunContext& run);
  void run_on_streams(RunContext& run);
  static void drop_released(const Step& step);
  void check_twins() const;
  void plan_release(const Dataflow& flow);
  void plan_streams(const Dataflow& flow);
  bool runs_on_streams(const RunContext& run) const;

  NetDef def_;
  Workspace& workspace_;
  std::vector<std::unique_ptr<Step>> steps_;
  std::unique_ptr<NetArena> arena_;      // null: memory is not planned
  std::unique_ptr<NetStreams> streams_;  // null: all runs on the caller's stream
  int64_t runs_ = 0;
};

// Builds, runs once and drops a net.
void run_net_once(const NetDef& def, Workspace& workspace, RunContext& run, const NetOptions& options = {});

// Checks of a net without running it. Throws Error at the first mistake.
// Schema, arguments, in-place rules, undefined inputs, external outputs that nobody writes; with `available`, names
// that exist before the net runs (null: only a net that lists external inputs is checked for undefined inputs).
void check_net(const NetDef& def, const std::set<std::string>* available, std::vector<std::string>* warnings = nullptr);

// Asks every operator what can be said before it runs (a Save whose target is already there). Throws Error.
void preflight_net(const NetDef& def, const Workspace& workspace);

struct TypedOp {
  BoundOp op;
  std::vector<TensorType> in, out;
};

// The types of what each operator reads and writes, as far as they can be known without data. `known`: of the blobs so
// far; afterwards those that the net leaves. `bounds`: what later operators are to find where a type cannot be known.
// Throws Error where shapes do not fit.
std::vector<TypedOp> infer_ops(const NetDef& def, std::map<std::string, TensorType>& known,
                               const std::map<std::string, TensorType>& bounds = {});

// Types of every blob that can be known without data, from those given. Throws Error where shapes do not fit.
std::map<std::string, TensorType> infer_net(const NetDef& def, std::map<std::string, TensorType> known);

}  // namespace stepnet
