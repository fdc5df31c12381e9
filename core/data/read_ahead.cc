#include "core/data/read_ahead.h"

#include <utility>

namespace stepnet {

ReadAhead::ReadAhead(std::unique_ptr<BatchSource> source)
    : source_(std::move(source)), position_(source_->position()), thread_([this] { run(); }) {}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ReadAhead::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return asked_ || ends_; });
    if (ends_) return;
    lock.unlock();
    std::exception_ptr failure;
    try {
      source_->next(ready_);
    } catch (...) {
      failure = std::current_exception();
    }
    const int64_t position = source_->position();
    lock.lock();
    failure_ = failure;
    ready_position_ = position;
    asked_ = false;
    read_ = true;
    changed_.notify_all();
  }
}

void ReadAhead::wait_until_read(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return !asked_; });
}

// What was read goes out, and the tensors that came in are what the next batch is read into.
void ReadAhead::next(Batch& batch) {
  std::unique_lock lock(mutex_);
  if (!read_ && !asked_) {
    asked_ = true;
    changed_.notify_all();
  }
  wait_until_read(lock);
  read_ = false;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  std::swap(batch, ready_);
  position_ = ready_position_;
  asked_ = true;
  changed_.notify_all();
}

void ReadAhead::set_position(int64_t position) {
  std::unique_lock lock(mutex_);
  wait_until_read(lock);
  read_ = false;
  failure_ = nullptr;
  source_->set_position(position);
  position_ = position;
}

}  // namespace stepnet
