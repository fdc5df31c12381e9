// SegmentProfile: the bytes of one segment of a net over time, for RerunCosts.
//
// Three stretches of time count: while the segment runs in the forward part, while it runs again, and while backward
// operators read its values. What segments before it keep is not counted, apart from what of it is counted twice or is
// not needed any more.
// Threads: none shared. Borrows all that it is made from.
#pragma once

#include <utility>
#include <vector>

#include "core/passes/rerun_segments.h"

namespace stepnet {

// A few values of many that have small numbers, in the order in which they came.
template <class T>
class NumberedTable {
 public:
  explicit NumberedTable(size_t keys) : places_(keys, -1) {}
  T* find(int key) { return places_[key] < 0 ? nullptr : &entries_[places_[key]].second; }
  T& get(int key, const T& first = {}) {
    if (places_[key] < 0) {
      places_[key] = static_cast<int>(entries_.size());
      entries_.emplace_back(key, first);
    }
    return entries_[places_[key]].second;
  }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::vector<int> places_;
  std::vector<std::pair<int, T>> entries_;
};

class SegmentProfile {
 public:
  // `crossing`: values that operators before the segment write, and that it or later ones read.
  SegmentProfile(const MemoryValues& net, const Segment& segment, const Rerun& rerun, const std::vector<int>& crossing);

  // Bytes that stay because of the segment.
  int64_t kept() const;
  // Peaks; `live` has the bytes, per operator, that are there beside what stays or is made again.
  int64_t forward_peak(const std::vector<int64_t>& live) const;
  int64_t backward_peak(const std::vector<int64_t>& live, int begin, int end) const;  // of operators begin to end
  int64_t rerun_peak(int64_t live) const;

 private:
  // A storage that is there in the segment's time, by operators of the forward part and of the rest, and if it is not
  // there until Rerun::before, by the last position in Rerun::ops that reads it.
  struct Held {
    int64_t bytes = 0;
    int first = 0, last_forward = 0, last = -1, last_again = -1;
  };
  // A storage of the second run, by positions in Rerun::ops, and the last backward operator that reads it.
  struct Fresh {
    int64_t bytes = 0;
    int first = 0, last = 0, last_backward = -1;
  };

  void find_fresh();
  void hold_kept();
  void find_crossing(const std::vector<int>& crossing);
  Held held_storage(int storage) const;
  static Held longer(Held held, const Held& other);
  void hold(int value, const Held& time);
  void read_backward(Fresh& fresh, int value) const;
  void extend(int value, int at);
  void extend_source(int value);
  bool runs_again(int op) const;
  int root_of(int value) const;  // what a name that is made again is a name of

  const MemoryValues& net_;
  const Segment& segment_;
  const Rerun& rerun_;
  NumberedTable<Held> sources_;   // by value: how long it stays for the second run
  NumberedTable<Held> kept_;      // by storage: what stays because of this segment
  NumberedTable<Held> crossing_;  // by storage: what stays because of segments before, and is read here
  NumberedTable<Fresh> fresh_;    // by storage that it stands in for
};

// Changes from point to point: adds bytes to all points from first to last.
void add_between(std::vector<int64_t>& changes, int first, int last, int64_t bytes);

}  // namespace stepnet
