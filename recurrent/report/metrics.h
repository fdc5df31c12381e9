// MetricsLog: one JSON object per line about the progress of a run.
//
//   {"iteration":120,"loss":1.42,"bpc":2.05,"chars_per_second":210000,"lr":0.003,"seconds":8.1}
//   {"iteration":120,"validation_bpc":2.11}
//
// and of samples in place of bytes of a text
//
//   {"iteration":120,"loss":0.42,"samples_per_second":9100,"lr":0.003,"seconds":8.1}
//   {"iteration":120,"validation_loss":0.51,"validation_accuracy":0.83}
//
// A number that is not finite is null.
//
// A line that cannot be written is no Error at once, for it is not lost: the lines that the disk may not have yet are
// to be saved with the run's checkpoint, and complete the file when the run goes on.
//
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stepnet/error.h"
#include "stepnet/file_place.h"

namespace stepnet {

enum class Unit { byte, sample };  // that a loss is a mean over

class MetricsLog {
 public:
  // Starts a new file, or goes on with one after dropping all lines of iterations greater than `resumed_at` and what is
  // no whole line; `unsynced` is what a log before had to say of itself, and is in the file afterwards.
  // Throws Error if it cannot be written. An empty path: nothing is written.
  MetricsLog(const FilePlace& place, int64_t resumed_at, std::string_view unsynced = "", Unit unit = Unit::byte);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  void training(int64_t iteration, double loss, double units_per_second, double lr, double seconds);
  void validation(int64_t iteration, double loss, const std::vector<std::pair<std::string, double>>& scores = {});

  // Waits until the lines so far would survive a loss of power. What fails is in failure().
  void sync();
  // The lines since the last sync that did not fail.
  const std::string& unsynced() const { return unsynced_; }
  // Why a line could not be written, or synced; after that, lines are only kept in unsynced().
  const std::optional<Error>& failure() const { return failure_; }

 private:
  void line(const std::string& text);

  std::string name_;  // for messages
  Unit unit_;
  int fd_ = -1;
  std::string unsynced_;
  std::optional<Error> failure_;
};

double bits_per_char(double nats);

}  // namespace stepnet
