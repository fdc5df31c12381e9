// NetObservation: one run of a net watched from outside, to know which bytes its values have and for how long.
//
// Storages count, not names: what an operator shows of its input's storage is not new, whatever the operator is.
// Threads: one run at a time.
#pragma once

#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/net/net_layout.h"
#include "stepnet/device.h"

namespace stepnet {

class NetObservation {
 public:
  // `blobs`: by number. `apart`: operator and output of values that are to be left out. All must outlive the
  // observation.
  NetObservation(std::span<const NetStep> steps, const Holdings& values, std::span<Blob* const> blobs,
                 const std::set<std::pair<int, int>>& apart);

  // Whether others than the net's own blobs hold the value's bytes.
  bool is_held(int value) const;
  // Before the operator runs; after it has; and after the net has let go of a value behind it.
  void begin();
  void see(int step);
  void see_end(int step, int value);

  // After the run: the bytes that could be elsewhere, in the order in which they are made. Those that others saw or
  // held, that an operator on blobs made which does not run dry, strings, and what is not on the CPU are not among
  // them.
  std::vector<StoredValue> movable() const;
  // What operators on blobs made and nobody held; it could stay for the next run.
  std::vector<StoredValue> stayable() const;
  // The most bytes that were live at an operator, what its kernel took for itself included; and that may be in a later
  // run with `moved` in a block of so many bytes and with `staying` there all the time.
  int64_t most_live() const;
  int64_t most_live(std::span<const StoredValue> moved, int64_t block, std::span<const StoredValue> staying = {}) const;

 private:
  struct Stored {
    StoredValue value;
    std::weak_ptr<Storage> storage;
    int names = 0;  // values that show it and are still needed
    bool alive = true;
    bool apart = false;
    bool may_stay = false;
  };

  static void keep_out(Stored& stored) {
    stored.apart = true;
    stored.may_stay = false;
  }
  // Bytes at an operator: behind it, at most while it ran, and at most if all threads take as much at the same time.
  struct Live {
    int64_t behind = 0, most = 0, bound = 0;
  };

  int find(const Tensor& tensor) const;
  Live live_at(int step) const;
  int add(int step, int output, const Tensor& tensor);
  void see_output(int step, int output, int value);

  std::span<const NetStep> steps_;
  const Holdings& values_;
  std::span<Blob* const> blobs_;
  const std::set<std::pair<int, int>>& apart_;
  std::vector<Stored> stored_;
  std::vector<int> stored_of_;                          // by value of the net; -1: none yet
  std::unordered_map<const Storage*, int> by_address_;  // the latest of stored_ there
  std::vector<int> used_;                               // of stored_: what the present operator reads and writes
  std::vector<Live> live_;                              // of the CPU's allocator, by operator
  LivePeak peak_;                                       // of the present one
  int64_t before_ = 0;                                  // live before it
};

}  // namespace stepnet
