// EstimateRecorder: what each operator of a dry run does, and what every block is for. It is how estimate_session
// works.
//
// Threads: one thread at a time.
#pragma once

#include <map>
#include <vector>

#include "core/estimate/estimate.h"
#include "core/operator/observer.h"

namespace stepnet {

// The tensor that the blob holds; null if there is none.
const Tensor* tensor_of(const Blob* blob);

// An operator of the net with its blobs, looked up once.
struct BoundBlobs {
  const BoundOp* op = nullptr;
  std::vector<const Blob*> in, out;
};

class EstimateRecorder : public NetObserver {
 public:
  EstimateRecorder(const NetSession& session, DryScope& dry) : session_(session), dry_(dry) {}

  void start_run();
  void before(const BoundOp& op) override;
  void after(const BoundOp& op) override;
  // Once all operators have run: what is kept, and what was alive when; and the most of each kind.
  void finish_run(MemoryByKind& totals);

  std::vector<OpEstimate> ops;    // of the last run
  std::vector<BoundBlobs> bound;  // by operator, in order

 private:
  struct Facts {
    int op = -1;                              // that it is an output of
    bool named = false;                       // a blob shows it
    bool kept = false;                        // the backward pass reads it
    bool standing = false;                    // a blob shows it between runs
    MemoryKind kind = MemoryKind::transient;  // of a standing one
  };

  const std::vector<DryBlock>& blocks() const { return dry_.blocks(); }
  void look_up(const BoundOp& op);
  int64_t block_of(const Tensor* tensor) const;
  Facts& facts(int64_t block);
  MemoryKind kind_of(size_t b) const;
  // What stands in the session's blobs between runs, and gradients of parameters.
  void note_standing();
  void note(const std::string& name, MemoryKind kind);
  void note_reads(const BoundBlobs& b, OpEstimate& e);
  // An object, such as what a RecurrentNetwork hands to its gradient: it has what its operator made and still holds.
  void note_object(const BoundOp& op, int input);
  void note_outputs(const BoundBlobs& blobs, OpEstimate& e);
  // Blocks that it made and that are no output.
  void note_rest(OpEstimate& e);
  int64_t bytes_left(std::vector<int64_t>& of) const;
  void note_kept_inputs(const DifferentiatedOp& d);
  // Sums of what is alive, by kind, after each event.
  void go_through_events(MemoryByKind& totals);

  const NetSession& session_;
  DryScope& dry_;
  std::vector<int64_t> peak_events_;
  std::vector<Facts> facts_;  // by block
  std::map<int, std::vector<int64_t>> made_inside_;
  std::map<int, std::vector<int64_t>> workspace_of_;
  std::vector<std::vector<int64_t>> input_blocks_, output_blocks_;  // of the present run, by operator
  size_t block_before_ = 0;
  double flops_before_ = 0;
};

}  // namespace stepnet
