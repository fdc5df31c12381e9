// What recurrent operators copy, in bytes since the process started, and what they keep.
//
// Threads: may be read and written from any thread.
#pragma once

#include <cstdint>

namespace stepnet {

struct RecurrentCounters {
  // Between state or state-gradient rows and other blobs. 0 for nets that the builder made, but for what a network in a
  // step net gives to the outer one's states.
  int64_t copied = 0;
  int64_t initial = 0;  // the one write of the initial states into their first rows
  int64_t spread = 0;   // a gradient with several destinations: written once more for each but the first
  int64_t kept = 0;     // the most that was kept for backward passes at once, beside states, inputs and outputs
};

RecurrentCounters recurrent_counters();
void count_recurrent(const RecurrentCounters& more);  // `kept` is not looked at

// Bytes that are kept for a backward pass, as long as this lives.
class KeptBytes {
 public:
  KeptBytes() = default;
  ~KeptBytes() { set(0); }
  KeptBytes(const KeptBytes&) = delete;
  KeptBytes& operator=(const KeptBytes&) = delete;
  void set(int64_t bytes);

 private:
  int64_t bytes_ = 0;
};

// The name of operators that the builder emits for `spread` writes.
inline constexpr const char* kSpreadName = "stepnet/spread";

}  // namespace stepnet
