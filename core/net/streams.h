// A run of a net on several streams of a device, as core/net/stream_schedule.h has planned it.
//
// Results have the same bits as on one stream. Memory that one stream has freed is not taken by another meanwhile, as
// that would make it wait: the device's cache grows by what streams need at the same time.
// Threads: one run at a time.
#pragma once

#include <memory>
#include <vector>

#include "core/compute/backend.h"
#include "core/net/stream_schedule.h"

namespace stepnet {

class NetStreams {
 public:
  NetStreams(std::vector<NetStep> steps, Device device, StreamSchedule schedule);

  // Whether no blobs share bytes but those of which the schedule knows, as somebody outside may have made them do.
  bool holds() const;
  // Whether the operator waits for nothing but the one before it, on its stream.
  bool goes_on(size_t step) const;

  // Around a run, and around each of its operators. A run that fails is ended by stop().
  void start();
  void before(size_t step);
  void after(size_t step);
  void finish();
  void stop() noexcept;

 private:
  void go_to(int stream);
  void note_uses(const NetStep& step, int number) const;

  std::vector<NetStep> steps_;
  Device device_;
  StreamSchedule schedule_;
  std::vector<bool> notes_uses_;                      // by operator: it works on what other streams may have made
  std::vector<std::unique_ptr<DeviceEvent>> events_;  // by operator, where one is waited for
  std::unique_ptr<DeviceEvent> started_;
  std::vector<int> numbers_;  // of the streams, for the device; the caller's comes first
  int here_ = 0;              // the current one
  bool before_ = false;       // of keep_apart
};

}  // namespace stepnet
