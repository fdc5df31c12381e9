// Packing and unpacking, and below the thread's side.
#include "core/autograd/saved/offload_store.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <tuple>

#include "core/autograd/saved/offload_file.h"
#include "stepnet/engine.h"
#include "stepnet/error.h"
#include "stepnet/tape.h"

namespace stepnet::autograd {

// What the store knows of one value. All but `given_up` is under the store's lock, or the thread's alone while `busy`.
struct OffloadStore::Entry {
  enum class Stage { queued, stored, failed };

  uint64_t order = 0;            // of saving
  std::vector<uint64_t> groups;  // the sequence numbers of the nodes that saved it
  std::string who;               // saved it first, for messages
  size_t bytes = 0;
  Device device;

  Stage stage = Stage::queued;
  bool busy = false;        // the thread is at it
  bool to_be_read = false;  // is in the queue of reads, or being read
  std::atomic<bool> given_up{false};

  Tensor value;                   // until it is stored
  std::weak_ptr<Storage> memory;  // where its bytes are, if that lives and has this version
  size_t offset = 0;
  uint64_t version = 0;
  bool is_original = true;         // `memory` is what was saved, not what was read
  std::shared_ptr<Storage> ahead;  // read, and not asked for yet
  Tensor host;                     // the copy in host memory, if there is no file
  OffloadFile file;                // else
  uint32_t checksum = 0;
  std::string problem;  // of the write, or of the last read

  std::shared_ptr<Storage> in_memory() const {
    std::shared_ptr<Storage> storage = memory.lock();
    return storage && storage->version() == version ? storage : nullptr;
  }
};

namespace {

std::atomic<uint64_t> g_stores{0};
constexpr uint64_t kWithoutNode = uint64_t{1} << 63;  // marks groups that are no node's

// As which of the nodes that saved a value the running one reads it: itself, or the region that is run again for it.
uint64_t asking_group(const std::vector<uint64_t>& groups) {
  const Node* running = tape_state().running;
  uint64_t best = 0;
  for (const uint64_t g : groups)
    if (running && g <= running->sequence()) best = std::max(best, g);
  return best > 0 ? best : groups.front();
}

std::string saver_text(const Node* node) {
  return node ? fmt::format("a value of {}, which ran forward at {}", node->name(), node->place().str())
              : "a saved value";
}

}  // namespace

OffloadStore::OffloadStore(OffloadOptions options) : options_(std::move(options)), number_(++g_stores) {
  require(options_.at_least >= 0 && options_.most_pending >= 0 && options_.most_read >= 0,
          "offload: sizes in bytes cannot be negative");
  if (!options_.folder.empty()) made_folder_ = prepare_offload_folder(options_.folder);
}

bool OffloadStore::takes(const Tensor& value) {
  const bool elsewhere = !options_.folder.empty() || value.device().kind != DeviceKind::cpu;
  const bool takes = elsewhere && value.storage() && value.dtype() != DType::string && value.size() > 0 &&
                     static_cast<int64_t>(value.bytes()) >= options_.at_least && !is_parameter(value);
  const std::lock_guard lock(mutex_);
  if (!takes) ++counters_.kept;
  return takes;
}

void OffloadStore::check_lost() const {
  const std::shared_ptr<Entry> entry = lost_.lock();
  if (!entry || entry->given_up) return;
  throw Error(entry->problem).add("for", entry->who);
}

uint64_t OffloadStore::new_group() {
  const std::lock_guard lock(mutex_);
  return (saved_ + 1) | kWithoutNode;
}

std::shared_ptr<OffloadStore::Ticket> OffloadStore::put(const Tensor& value, const Node* node, uint64_t group) {
  const Place place{value.storage().get(), value.offset(), value.bytes()};
  const auto size = static_cast<int64_t>(place.bytes);
  std::shared_ptr<Ticket> before, ticket;  // if let go of, then after the lock
  Lock lock(mutex_);
  if (const auto it = known_.find(place); it != known_.end()) before = it->second.lock();
  if (before && before->entry()->in_memory() == value.storage()) {
    ++counters_.shared;
    add_to_group(before->entry(), node, group);
    return before;
  }
  changed_.wait(lock, [&] { return pending_ == 0 || pending_bytes_ + size <= options_.most_pending; });
  check_lost();
  start_thread();
  const auto entry = std::make_shared<Entry>();
  entry->order = ++saved_;
  entry->who = saver_text(node);
  entry->bytes = place.bytes;
  entry->device = value.device();
  entry->version = value.version();
  entry->value = value;
  entry->memory = value.storage();
  entry->offset = value.offset();
  ticket = std::make_shared<Ticket>(shared_from_this(), entry, place);
  known_[place] = ticket;
  add_to_group(entry, node, group);
  ++pending_;
  pending_bytes_ += size;
  largest_ = std::max(largest_, size);
  writes_.push_back(entry);
  work_.notify_one();
  return ticket;
}

// A node's number, or the given one, or one of its own for a value that no node is known to save.
void OffloadStore::add_to_group(const std::shared_ptr<Entry>& entry, const Node* node, uint64_t group) {
  if (node) group = node->sequence();
  if (group == 0) group = entry->order | kWithoutNode;
  if (!by_group_.emplace(std::pair(group, entry->order), entry).second) return;
  entry->groups.push_back(group);
}

void OffloadStore::drop(const std::shared_ptr<Entry>& entry, const Place& place) {
  Lock lock(mutex_);
  entry->given_up = true;
  for (const uint64_t group : entry->groups) by_group_.erase({group, entry->order});
  if (const auto it = known_.find(place); it != known_.end() && it->second.expired()) known_.erase(it);
  if (const auto it = std::find(reads_.begin(), reads_.end(), entry); it != reads_.end()) reads_.erase(it);
  if (const auto it = std::find(writes_.begin(), writes_.end(), entry); it != writes_.end()) {
    writes_.erase(it);
    no_longer_pending(*entry);
  }
  changed_.wait(lock, [&] { return !entry->busy; });
  entry->ahead.reset();
  entry->host = {};
  entry->file = {};
}

Tensor OffloadStore::get(const std::shared_ptr<Entry>& entry, DType dtype, const Shape& shape) {
  let_go_at_end_of_pass();
  Lock lock(mutex_);
  const uint64_t asking = asking_group(entry->groups);
  drop_passed(asking);
  std::shared_ptr<Storage> storage = read(entry, lock);
  entry->ahead.reset();
  const size_t offset = entry->offset;
  plan_reads(asking);
  return Tensor::view(storage, offset, dtype, shape);
}

std::shared_ptr<Storage> OffloadStore::read(const std::shared_ptr<Entry>& entry, Lock& lock) {
  for (;;) {
    if (std::shared_ptr<Storage> storage = entry->in_memory()) return storage;
    if (entry->stage == Entry::Stage::failed) throw Error(entry->problem);
    if (entry->stage == Entry::Stage::stored && !entry->to_be_read) {
      entry->to_be_read = true;
      reads_.push_front(entry);
      work_.notify_one();
    }
    changed_.wait(lock, [&] { return entry->stage != Entry::Stage::queued && !entry->to_be_read; });
    if (entry->stage == Entry::Stage::stored && !entry->problem.empty()) throw Error(std::exchange(entry->problem, ""));
  }
}

// Of the node that backward comes to next; the same if there is none.
uint64_t OffloadStore::group_before(uint64_t group) const {
  const auto it = by_group_.lower_bound({group, 0});
  return it == by_group_.begin() ? group : std::prev(it)->first.first;
}

// Lets go of what was read ahead for nodes that the pass has left behind, or out.
void OffloadStore::drop_passed(uint64_t asking) {
  const uint64_t next = group_before(asking);
  std::erase_if(ahead_, [&](const std::weak_ptr<Entry>& weak) {
    const std::shared_ptr<Entry> e = weak.lock();
    if (!e || !e->ahead) return true;
    const bool wanted =
        std::any_of(e->groups.begin(), e->groups.end(), [&](uint64_t g) { return g == asking || g == next; });
    if (!wanted) e->ahead.reset();
    return !wanted;
  });
}

// First what else the asking node will read, then what the one before it will, from the last saved on.
void OffloadStore::plan_reads(uint64_t asking) {
  const uint64_t next = group_before(asking);
  for (auto it = by_group_.upper_bound({asking, UINT64_MAX}); it != by_group_.begin();) {
    --it;
    const uint64_t group = it->first.first;
    if ((group != asking && group != next) || !read_ahead(it->second, group != asking)) return;
  }
}

// False if there is no room for it. `hold`: if it is in memory, it stays there for the next node.
bool OffloadStore::read_ahead(const std::shared_ptr<Entry>& entry, bool hold) {
  if (entry->stage != Entry::Stage::stored || entry->to_be_read) return true;
  if (std::shared_ptr<Storage> storage = entry->in_memory()) {
    if (hold && !entry->ahead && !entry->is_original) {
      entry->ahead = std::move(storage);
      ahead_.push_back(entry);
    }
    return true;
  }
  const int64_t most = options_.most_read > 0 ? options_.most_read : 2 * largest_;
  if (bytes_in_memory() + static_cast<int64_t>(entry->bytes) > most) return false;
  entry->to_be_read = true;
  ++counters_.read_ahead;
  reads_.push_back(entry);
  work_.notify_one();
  return true;
}

int64_t OffloadStore::bytes_in_memory() {
  std::erase_if(handed_out_, [](const HandedOut& h) { return h.storage.expired(); });
  int64_t bytes = pending_bytes_;
  for (const HandedOut& h : handed_out_) bytes += h.bytes;
  for (const std::shared_ptr<Entry>& e : reads_) bytes += static_cast<int64_t>(e->bytes);
  return bytes + reading_bytes_;
}

// What was read ahead and nobody asked for.
void OffloadStore::forget_read_ahead() {
  const std::lock_guard lock(mutex_);
  for (const std::weak_ptr<Entry>& weak : ahead_)
    if (const std::shared_ptr<Entry> e = weak.lock()) e->ahead.reset();
  ahead_.clear();
}

void OffloadStore::let_go_at_end_of_pass() {
  const uint64_t pass = running_pass();
  if (pass == 0 || last_pass_.exchange(pass) == pass) return;
  const std::shared_ptr<void> guard(nullptr, [weak = weak_from_this()](void*) {
    if (const auto store = weak.lock()) store->forget_read_ahead();
  });
  when_done([guard] {});  // goes with the pass, whether it ends well or not
}

OffloadCounters OffloadStore::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void OffloadStore::wait() {
  Lock lock(mutex_);
  changed_.wait(lock, [&] { return pending_ == 0; });
}

void OffloadStore::wait_for(const Storage* storage) {
  Lock lock(mutex_);
  changed_.wait(lock, [&] {
    return (!writing_ || writing_->value.storage().get() != storage) &&
           std::none_of(writes_.begin(), writes_.end(),
                        [&](const std::shared_ptr<Entry>& e) { return e->value.storage().get() == storage; });
  });
}

std::string OffloadStore::path_of(const Entry& entry) const {
  return fmt::format("{}/stepnet-saved-{}-{}-{}", options_.folder, ::getpid(), number_, entry.order);
}

// The thread of an OffloadStore: writes, and reads, which come first as somebody waits for them.

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
