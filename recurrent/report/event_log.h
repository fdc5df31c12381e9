// EventLog: the progress of a run as an event file, which TensorBoard shows.
//
// A file is new for each run and each time that a run goes on. It begins by saying where, so that a viewer drops what
// an earlier file has of later iterations. Records are those of TensorFlow: each an Event, with checksums.
//
//   train/loss, train/bits_per_char, train/learning_rate, train/samples_per_second, train/chars_per_second
//   validation/loss, validation/bits_per_char, validation/METRIC
//   parameters/NAME, gradients/NAME
//                        a histogram, of values that are finite
//
// and the net as a graph (event_graph.h).
//
// A record that cannot be written is no Error at once: what follows is not written either, and failure() says why.
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recurrent/report/metrics.h"
#include "stepnet/error.h"
#include "stepnet/tensor.h"

namespace stepnet {

class EventLog {
 public:
  // Makes a file in the folder, and the folder if it is not there. Throws Error if it cannot.
  EventLog(const std::string& folder, int64_t resumed_at, Unit unit);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  const std::string& path() const { return path_; }
  void training(int64_t iteration, double loss, double units_per_second, double lr);
  void validation(int64_t iteration, double loss, const std::vector<std::pair<std::string, double>>& scores);
  void parameter(int64_t iteration, const std::string& name, const Tensor& values);
  void gradient(int64_t iteration, const std::string& parameter, const Tensor& values);
  void graph(const std::string& graph_def);
  const std::optional<Error>& failure() const { return failure_; }

 private:
  void histogram(int64_t iteration, const std::string& tag, const Tensor& tensor);
  void scalars(int64_t iteration, const std::vector<std::pair<std::string, double>>& values);
  void write(const std::string& event);

  std::string path_;
  Unit unit_;
  int fd_ = -1;
  std::optional<Error> failure_;
};

// Of the polynomial of Castagnoli, as the records have it.
// Source: G. Castagnoli, S. Braeuer, M. Herrmann, Optimization of cyclic redundancy-check codes, 1993.
uint32_t crc32c_of(std::string_view bytes);

}  // namespace stepnet
