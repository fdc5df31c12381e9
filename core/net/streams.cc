#include "core/net/streams.h"

#include <set>

#include "stepnet/workspace.h"

namespace stepnet {
namespace {

// The bytes of a blob on an accelerator; null if there are none.
const std::shared_ptr<Storage>* storage_of(const Blob* blob) {
  if (!blob || !blob->is_tensor()) return nullptr;
  const std::shared_ptr<Storage>& storage = blob->tensor().storage();
  return storage && storage->device().kind != DeviceKind::cpu && storage->bytes() > 0 ? &storage : nullptr;
}

}  // namespace

NetStreams::NetStreams(std::vector<NetStep> steps, Device device, StreamSchedule schedule)
    : steps_(std::move(steps)), device_(device), schedule_(std::move(schedule)) {
  std::map<int, std::set<int>> streams_of;  // by blob
  const auto each_blob = [&](size_t s, const auto& fn) {
    for (const Blob* blob : steps_[s].in)
      if (blob) fn(schedule_.shared.at(blob));
    for (const Blob* blob : steps_[s].out)
      if (blob) fn(schedule_.shared.at(blob));
  };
  for (size_t s = 0; s < steps_.size(); ++s)
    each_blob(s, [&](int blob) { streams_of[blob].insert(schedule_.stream[s]); });
  for (size_t s = 0; s < steps_.size(); ++s) {
    bool notes = schedule_.stream[s] != 0;
    each_blob(s, [&](int blob) { notes = notes || streams_of[blob].size() > 1; });
    notes_uses_.push_back(notes);
  }
}

bool NetStreams::holds() const {
  std::map<const Storage*, std::pair<int, bool>> seen;
  for (const auto& [blob, number] : schedule_.shared) {
    const auto* storage = storage_of(blob);
    if (!storage || storage->use_count() == 1) continue;
    const bool is_written = schedule_.is_written.count(blob) > 0;
    const auto [it, is_new] = seen.try_emplace(storage->get(), number, is_written);
    if (is_new) continue;
    it->second.second = it->second.second || is_written;
    if (it->second.first != number && it->second.second) return false;
  }
  return true;
}

bool NetStreams::goes_on(size_t step) const {
  return schedule_.stream[step] == schedule_.stream[step - 1] && schedule_.waits[step].empty();
}

void NetStreams::start() {
  Backend& work = backend(device_.kind);
  if (!started_) {
    started_ = work.event(device_);
    events_.resize(steps_.size());
    for (size_t s = 0; s < steps_.size(); ++s)
      if (schedule_.is_waited_for[s]) events_[s] = work.event(device_);
  }
  numbers_ = {work.current_stream(device_)};
  for (int i = 1; i < schedule_.streams; ++i) numbers_.push_back(work.side_stream(device_, i - 1));
  here_ = 0;
  started_->record();
  before_ = work.keep_apart(true);
}

void NetStreams::go_to(int stream) {
  if (stream == here_) return;
  backend(device_.kind).set_stream(device_, numbers_[stream]);
  here_ = stream;
}

void NetStreams::note_uses(const NetStep& step, int number) const {
  for (const std::span<Blob* const> blobs : {step.in, step.out})
    for (const Blob* blob : blobs)
      if (const auto* storage = storage_of(blob)) backend(device_.kind).record_use(device_, (*storage)->data(), number);
}

void NetStreams::before(size_t step) {
  go_to(schedule_.stream[step]);
  for (const int first : schedule_.waits[step]) (first == StreamSchedule::kStart ? started_ : events_[first])->wait();
  if (notes_uses_[step]) note_uses(steps_[step], numbers_[here_]);
}

void NetStreams::after(size_t step) {
  if (events_[step]) events_[step]->record();
}

void NetStreams::finish() {
  go_to(0);
  for (const int last : schedule_.at_end) events_[last]->wait();
  backend(device_.kind).keep_apart(before_);
  // What stays may be read on the caller's stream.
  for (size_t s = 0; s < steps_.size(); ++s)
    if (schedule_.stream[s] != 0) note_uses({steps_[s].op, {}, steps_[s].out}, numbers_[0]);
}

void NetStreams::stop() noexcept {
  Backend& work = backend(device_.kind);
  work.keep_apart(before_);
  try {
    go_to(0);
    for (size_t t = 1; t < numbers_.size(); ++t) work.wait(device_, numbers_[0], device_, numbers_[t]);
  } catch (const Error&) {  // the device is lost: the next call on it says so
  }
}

}  // namespace stepnet
