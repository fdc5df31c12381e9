// OffloadStore: the values of an OffloadScope and the thread that writes and reads them.
//
// A value is queued, written, and then stored. The tensor goes when it is stored; a read puts it into memory again, for
// whoever takes it. Whoever holds a Ticket holds the store, so the thread ends after the last value.
// Threads: everything is under one lock, which is not held while bytes are moved; the thread in the background runs no
// code but that of this file, and lets go of no ticket.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <thread>
#include <vector>

#include "stepnet/offload.h"

namespace stepnet::autograd {

class OffloadStore : public std::enable_shared_from_this<OffloadStore> {
 public:
  struct Entry;
  struct Place {  // of bytes in memory
    const Storage* storage;
    size_t offset, bytes;
    auto operator<=>(const Place&) const = default;
  };
  // A value in the store, which goes with its last holder.
  class Ticket {
   public:
    Ticket(std::shared_ptr<OffloadStore> store, std::shared_ptr<Entry> entry, Place place)
        : store_(std::move(store)), entry_(std::move(entry)), place_(place) {}
    ~Ticket() { store_->drop(entry_, place_); }
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    // The value's bytes as that type.
    Tensor get(DType dtype, const Shape& shape) const { return store_->get(entry_, dtype, shape); }
    const std::shared_ptr<Entry>& entry() const { return entry_; }

   private:
    std::shared_ptr<OffloadStore> store_;
    std::shared_ptr<Entry> entry_;
    Place place_;
  };

  explicit OffloadStore(OffloadOptions options);
  ~OffloadStore();
  OffloadStore(const OffloadStore&) = delete;
  OffloadStore& operator=(const OffloadStore&) = delete;

  // A number for values that are saved together, and not by a node.
  uint64_t new_group();
  // Whether a value goes here at all.
  bool takes(const Tensor& value);
  // `node`: which saves it, or null.
  std::shared_ptr<Ticket> put(const Tensor& value, const Node* node, uint64_t group = 0);
  OffloadCounters counters() const;
  void wait();
  void wait_for(const Storage* storage);  // until none of its bytes wait to be written

 private:
  using Lock = std::unique_lock<std::mutex>;

  void check_lost() const;
  void no_longer_pending(Entry& entry);
  Tensor get(const std::shared_ptr<Entry>& entry, DType dtype, const Shape& shape);
  std::shared_ptr<Storage> read(const std::shared_ptr<Entry>& entry, Lock& lock);
  void drop(const std::shared_ptr<Entry>& entry, const Place& place);

  void add_to_group(const std::shared_ptr<Entry>& entry, const Node* node, uint64_t group);
  uint64_t group_before(uint64_t group) const;
  void plan_reads(uint64_t asking);
  bool read_ahead(const std::shared_ptr<Entry>& entry, bool hold);
  void drop_passed(uint64_t asking);
  int64_t bytes_in_memory();
  void let_go_at_end_of_pass();
  void forget_read_ahead();

  void start_thread();
  void work();
  void write_next(Lock& lock);
  void write_bytes(Entry& entry) const;
  void read_next(Lock& lock);
  std::shared_ptr<Storage> read_bytes(const Entry& entry) const;
  std::string path_of(const Entry& entry) const;

  struct HandedOut {
    std::weak_ptr<Storage> storage;
    int64_t bytes;
  };

  const OffloadOptions options_;
  bool made_folder_ = false;
  uint64_t number_ = 0;  // of the store, in file names
  mutable std::mutex mutex_;
  std::condition_variable work_, changed_;
  std::deque<std::shared_ptr<Entry>> writes_, reads_;
  std::shared_ptr<Entry> writing_;
  std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<Entry>> by_group_;  // and order of saving
  std::map<Place, std::weak_ptr<Ticket>> known_;                              // what was packed from there
  std::weak_ptr<Entry> lost_;                                                 // the first that could not be written
  std::vector<HandedOut> handed_out_;                                         // what was read
  std::vector<std::weak_ptr<Entry>> ahead_;                                   // what was read and not asked for
  uint64_t saved_ = 0;
  int64_t pending_bytes_ = 0, reading_bytes_ = 0, largest_ = 0;
  int pending_ = 0;
  OffloadCounters counters_;
  bool stop_ = false;
  std::atomic<uint64_t> last_pass_{0};
  std::thread thread_;
};

}  // namespace stepnet::autograd
