// NetArena: the intermediates of a net at fixed places of one block of memory, where values that are not alive at the
// same time share bytes.
//
// The first two runs with given types of what the net reads from outside are observed: each value has memory of its
// own, and goes after its last reader. What had the same storage, was held by others or is not on the CPU is known
// then, whatever the operators' rules say, and by the second run what operators keep for later ones is there. The next
// run with these types has all other values in the block, which stays until let_go(), so that it allocates nothing for
// them. If that would take more memory at a time than the second run, what kernels take while they run included, there
// is no block.
//
// Not in the block: values that others may see, outputs of operators on blobs that cannot run dry (they may keep or
// replace them), strings, and what changed its type between runs of the same input types. If somebody holds a value
// beyond its last reader in a later run, no more values of that run are put into the block, and the value has memory of
// its own from then on. What somebody holds beyond its last reader stays in its blob between runs, as it would be made
// anew beside what is held; outputs of operators on blobs do so, too, where this takes at most a thousandth more
// memory. In a build with the address sanitizer, bytes of the block that hold no value are poisoned. Threads: one run
// at a time.
#pragma once

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "core/net/net_layout.h"
#include "core/net/net_observation.h"
#include "stepnet/net.h"

namespace stepnet {

class NetArena {
 public:
  NetArena(std::vector<NetStep> steps, const Dataflow& flow);
  ~NetArena();

  // Around a run, and around each of its operators. A run that fails is ended by stop().
  void start();
  void before(size_t step);
  void after(size_t step);
  void finish();
  void stop() noexcept;

  void let_go();             // of the block, until the next run
  NetMemory memory() const;  // of a dry run, which has no block: what the same run would have with data

 private:
  struct Plan;
  using Types = std::vector<std::pair<DType, Shape>>;

  bool types_are(const Types& types) const;
  Types types() const;
  void check_made(int step);
  void check_ended(int step);
  void make_plan();

  std::vector<NetStep> steps_;
  Holdings values_;
  std::vector<Blob*> blobs_;             // by number
  std::vector<Blob*> from_outside_;      // what the net reads before it writes it
  std::vector<std::vector<int>> ends_;   // by operator: the values that nobody needs behind it
  std::vector<bool> stays_;              // by value: somebody holds its bytes anyway
  std::set<std::pair<int, int>> apart_;  // operator and output of values that have their own memory
  std::vector<std::unique_ptr<Plan>> plans_;
  Plan* plan_ = nullptr;  // of the present or latest run
  Types types_at_start_;  // of an observed run
  std::unique_ptr<NetObservation> observation_;
  bool in_block_ = false;     // values are being put into the block
  bool is_mistaken_ = false;  // the plan was wrong about something
};

}  // namespace stepnet
