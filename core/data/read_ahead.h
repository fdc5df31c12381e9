// ReadAhead: the next batch is read on a thread of its own while the one before is used.
//
// The batches, their order and the position are those of the source; memory for one batch more is taken.
// Threads: one thread at a time.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "core/data/batch_source.h"

namespace stepnet {

class ReadAhead final : public BatchSource {
 public:
  explicit ReadAhead(std::unique_ptr<BatchSource> source);
  ~ReadAhead() override;
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Throws what reading this batch threw.
  void next(Batch& batch) override;
  int64_t position() const override { return position_; }
  void set_position(int64_t position) override;

 private:
  void run();
  void wait_until_read(std::unique_lock<std::mutex>& lock);

  const std::unique_ptr<BatchSource> source_;
  int64_t position_ = 0;  // after the batch that was taken last

  std::mutex mutex_;  // guards what follows, and the source while `asked_`
  std::condition_variable changed_;
  bool asked_ = false, ends_ = false;
  bool read_ = false;  // ready_ is the batch that follows
  Batch ready_;
  int64_t ready_position_ = 0;
  std::exception_ptr failure_;
  std::thread thread_;  // last, as it uses all the others
};

}  // namespace stepnet
