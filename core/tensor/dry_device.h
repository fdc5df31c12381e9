// DryScope: while one is alive, the tensors that its thread makes have types, shapes and storages, but no bytes.
//
// Nets, step programs and the tape run as they are, but for their kernels, which are left out; each new storage is
// counted as the allocator of the device that the scope claims would count it, so the scope's counters are those that a
// real run would have. What a kernel takes beside its outputs, it says by OpBuilder::workspace; what needs the elements
// of a dry tensor is an Error, never a guess.
// Tensors may outlive their scope; its counters then still go down as they go.
// Threads: a scope belongs to the thread that made it, which does all work meanwhile.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <typeindex>
#include <vector>

#include "stepnet/device.h"
#include "stepnet/shape.h"

namespace stepnet {

// One storage's life. Times are events: that a block is made, or goes, is one.
struct DryBlock {
  const void* place = nullptr;  // what Storage::data() says; no two that live at once have the same
  int64_t bytes = 0;            // as the device's allocator counts them
  int64_t made = 0, gone = -1;  // -1: it is still there
  MemoryCategory category = MemoryCategory::value;
};

struct DryMemory;

class DryScope {
 public:
  explicit DryScope(DeviceKind claims = DeviceKind::cpu);
  ~DryScope();
  DryScope(const DryScope&) = delete;
  DryScope& operator=(const DryScope&) = delete;
  static DryScope* now() { return innermost; }  // the calling thread's innermost; null if there is none

  DeviceKind claims() const { return claims_; }
  MemoryCounters counters() const;
  void reset_peak();
  int64_t peak_event() const;  // when the peak since the last reset was reached first
  int64_t events() const;      // so far
  int64_t workspace() const;   // live bytes of it
  MemoryByCategory categories() const;
  const std::vector<DryBlock>& blocks() const;
  int64_t block_at(const void* place) const;  // the latest one there; -1 if there is none

  // Types of blobs whose shapes depend on data: their largest.
  std::map<std::string, std::pair<DType, Shape>> bounds;
  double flops = 0;          // of all operators so far, as their registrations say
  double product_flops = 0;  // of all matrix products so far
  double times = 1;          // how often what runs now would run: of many timesteps that are alike, few run dry
  bool counts_flops = true;
  bool skips_steps = true;  // of many that are alike; false where each writes numbers that are read later

  // For Storage: a block, which goes with the last copy of the result. `place` gets its address; null for no bytes. So
  // few bytes that they may be a shape are really there, for what is known without data; of whole numbers as many as
  // are a shape for each of many timesteps.
  std::shared_ptr<void> take(size_t bytes, std::byte** place);
  static constexpr size_t kMostKnown = 1024, kMostWhole = size_t{1} << 20;
  static bool has_bytes(const void* place);  // whether that address is one of such bytes
  class WholeNumbers {                       // alive while a block for whole numbers is taken, if there is a dry run
   public:
    explicit WholeNumbers(bool whole) : scope_(whole ? now() : nullptr) {
      if (scope_) scope_->most_known_ = kMostWhole;
    }
    ~WholeNumbers() {
      if (scope_) scope_->most_known_ = kMostKnown;
    }
    WholeNumbers(const WholeNumbers&) = delete;
    WholeNumbers& operator=(const WholeNumbers&) = delete;

   private:
    DryScope* scope_;
  };
  // For kernels that are asked what they take: dry tensors let them compute addresses, which lead nowhere.
  bool gives_addresses() const { return in_workspace_; }
  class Workspace {  // alive while a kernel is asked
   public:
    explicit Workspace(DryScope& scope) : scope_(scope), before_(scope.in_workspace_) { scope.in_workspace_ = true; }
    ~Workspace() { scope_.in_workspace_ = before_; }
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

   private:
    DryScope& scope_;
    bool before_;
  };
  // An object of the scope's.
  template <class T>
  T& own() {
    std::shared_ptr<void>& object = objects_[typeid(T)];
    if (!object) object = std::make_shared<T>();
    return *static_cast<T*>(object.get());
  }

 private:
  friend class DryAtOnce;
  inline static constinit thread_local DryScope* innermost = nullptr;

  DeviceKind claims_;
  DryScope* before_;
  std::shared_ptr<DryMemory> memory_;  // shared with the blocks, which tell it when they go
  std::map<std::type_index, std::shared_ptr<void>> objects_;
  bool in_workspace_ = false;
  size_t most_known_ = kMostKnown;
};

// Those of the calling thread's dry run, or if there is none, of the CPU's allocator.
MemoryCounters memory_counters();

// The steps of a loop over many that are alike: all of them, but in a dry run the first and the last few, which meet
// every size, and one that stands for those between.
//
//   for (StepsAlike i(steps, 2); i.more(); i.next()) run(*i);
class StepsAlike {
 public:
  StepsAlike(int64_t steps, int64_t at_each_end)
      : steps_(steps), end_(at_each_end), dry_(steps > 2 * at_each_end + 1 ? DryScope::now() : nullptr) {
    if (dry_ && !dry_->skips_steps) dry_ = nullptr;
    if (dry_) before_ = dry_->times;
  }
  ~StepsAlike() {
    if (dry_) dry_->times = before_;
  }
  StepsAlike(const StepsAlike&) = delete;
  StepsAlike& operator=(const StepsAlike&) = delete;
  bool more() const { return step_ < steps_; }
  int64_t operator*() const { return step_; }
  void next() {
    step_ = dry_ && step_ == end_ ? steps_ - end_ : step_ + 1;
    if (dry_) dry_->times = step_ == end_ ? before_ * static_cast<double>(steps_ - 2 * end_) : before_;
  }

 private:
  int64_t steps_, end_, step_ = 0;
  DryScope* dry_;
  double before_ = 1;
};

// Parts of work that threads do at the same time, which a dry run does one after the other: its peak is what they take
// together, if each is at its own peak.
//
//   DryAtOnce at_once;
//   for (Part& part : parts) at_once.next(), part.run();
class DryAtOnce {
 public:
  DryAtOnce();
  ~DryAtOnce();
  DryAtOnce(const DryAtOnce&) = delete;
  DryAtOnce& operator=(const DryAtOnce&) = delete;
  void next();  // before each part

 private:
  void end_part();

  std::shared_ptr<DryMemory> memory_;             // null: the run is not dry
  int64_t live_ = 0, peak_ = 0, peak_event_ = 0;  // before all of them
  int64_t part_live_ = 0;                         // before the present one
  int64_t together_ = 0, highest_ = 0, highest_event_ = 0;
};

}  // namespace stepnet
