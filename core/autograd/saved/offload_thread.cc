// The thread of an OffloadStore: writes, and reads, which come first as somebody waits for them.
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <tuple>

#include "core/autograd/saved/offload_entry.h"
#include "core/autograd/saved/offload_file.h"
#include "core/error.h"

namespace stepnet::autograd {

OffloadStore::~OffloadStore() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_one();
  if (thread_.joinable()) thread_.join();
  std::error_code ignored;
  if (made_folder_) std::filesystem::remove(options_.folder, ignored);  // if it is empty
}

void OffloadStore::start_thread() {
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& e) {
    fail("offload: there can be no thread in the background: {}", e.what());
  }
}

void OffloadStore::work() {
  Lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stop_ || !reads_.empty() || !writes_.empty(); });
    if (!reads_.empty())
      read_next(lock);
    else if (!writes_.empty())
      write_next(lock);
    else
      return;
    changed_.notify_all();
  }
}

void OffloadStore::no_longer_pending(Entry& entry) {
  entry.value = {};
  --pending_;
  pending_bytes_ -= static_cast<int64_t>(entry.bytes);
}

void OffloadStore::write_next(Lock& lock) {
  const std::shared_ptr<Entry> entry = std::move(writes_.front());
  writes_.pop_front();
  writing_ = entry;
  entry->busy = true;
  std::string problem;
  lock.unlock();
  try {
    write_bytes(*entry);
  } catch (const std::exception& e) {
    problem = e.what();
  }
  lock.lock();
  if (problem.empty() && entry->value.version() != entry->version) {
    problem =
        fmt::format("{} was written to behind the tape's back while it waited to be offloaded", entry->value.str());
    entry->file = {};
  }
  entry->busy = false;
  entry->stage = problem.empty() ? Entry::Stage::stored : Entry::Stage::failed;
  if (!problem.empty()) {
    entry->problem = std::move(problem);
    if (const auto lost = lost_.lock(); !lost || lost->given_up) lost_ = entry;
  } else {
    ++counters_.written;
    counters_.written_bytes += static_cast<int64_t>(entry->bytes);
  }
  writing_.reset();
  no_longer_pending(*entry);
}

void OffloadStore::write_bytes(Entry& entry) const {
  const bool on_host = entry.device.kind == DeviceKind::cpu;
  Tensor host = entry.value;
  if (!on_host) {
    host = Tensor::empty(entry.value.dtype(), entry.value.shape());
    host.copy_from(entry.value);
  }
  if (options_.folder.empty())
    entry.host = std::move(host);
  else
    std::tie(entry.file, entry.checksum) = write_offload_file(path_of(entry), host.raw(), entry.bytes, entry.given_up);
}

void OffloadStore::read_next(Lock& lock) {
  const std::shared_ptr<Entry> entry = std::move(reads_.front());
  reads_.pop_front();
  reading_bytes_ = static_cast<int64_t>(entry->bytes);
  entry->busy = true;
  std::shared_ptr<Storage> storage;
  std::string problem;
  lock.unlock();
  try {
    storage = read_bytes(*entry);
  } catch (const std::exception& e) {
    problem = e.what();
  }
  lock.lock();
  reading_bytes_ = 0;
  entry->busy = false;
  entry->to_be_read = false;
  entry->problem = std::move(problem);
  if (!storage) return;
  ++counters_.read;
  handed_out_.push_back({storage, static_cast<int64_t>(entry->bytes)});
  entry->memory = storage;
  entry->offset = 0;
  entry->version = storage->version();
  entry->is_original = false;
  entry->ahead = std::move(storage);
  ahead_.push_back(entry);
}

std::shared_ptr<Storage> OffloadStore::read_bytes(const Entry& entry) const {
  auto storage = std::make_shared<Storage>(entry.bytes, entry.device);
  const auto count = static_cast<int64_t>(entry.bytes);
  const bool on_host = entry.device.kind == DeviceKind::cpu;
  Tensor host = entry.host;
  if (!host.defined())
    host = on_host ? Tensor::view(storage, 0, DType::uint8, {count}) : Tensor::empty(DType::uint8, {count});
  if (!options_.folder.empty()) entry.file.read(host.raw(), entry.bytes, entry.checksum);
  if (!on_host) Tensor::view(storage, 0, host.dtype(), host.shape()).copy_from(host);
  return storage;
}

}  // namespace stepnet::autograd
