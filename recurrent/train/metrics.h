// MetricsLog: one JSON object per line about the progress of a run.
//
//   {"iteration":120,"loss":1.42,"bpc":2.05,"chars_per_second":210000,"lr":0.003,"seconds":8.1}
//   {"iteration":120,"validation_bpc":2.11}
//
// A number that is not finite is null.
//
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "core/io/file_place.h"

namespace stepnet {

class MetricsLog {
 public:
  // Starts a new file, or goes on with one after dropping all lines of iterations greater than `resumed_at`.
  // Throws Error if it cannot be written. An empty path: nothing is written.
  MetricsLog(const FilePlace& place, int64_t resumed_at);

  void training(int64_t iteration, double loss, double chars_per_second, double lr, double seconds);
  void validation(int64_t iteration, double loss);

 private:
  void line(const std::string& text);

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

double bits_per_char(double nats);

}  // namespace stepnet
