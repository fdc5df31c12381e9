// DbReader: reads a database round and round, for nets that train on it. What CreateDB puts into a blob.
//
// With shards, a reader starts at record `shard_id` and gives every `num_shards`-th record; at the end it starts over
// the same way. There is no reading ahead: which record comes next depends on the calls alone.
// Threads: `read` may be called from several threads; each record goes to one of them.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "core/io/db.h"
#include "proto/net.pb.h"

namespace stepnet {

class DbReader {
 public:
  // Throws Error: no such database, no records, fewer records than shards ask for.
  DbReader(std::string type, FilePlace place, int64_t num_shards = 1, int64_t shard_id = 0);
  // Opens what a saved reader read, at its record if the type of database can look for it. The path that it was saved
  // with is confined to `root`, unless that is null.
  explicit DbReader(const DBReaderProto& saved, FileRootPtr root = {});

  void read(std::string& key, std::string& value);

  // Calls fn(DbCursor&) on the reader's own cursor, which may end up anywhere, the end included.
  template <class Fn>
  void with_cursor(Fn fn) {
    const std::lock_guard lock(mutex_);
    fn(*cursor_);
  }

  DBReaderProto to_proto(const std::string& name) const;
  std::string path() const { return place_.str(); }  // for messages
  uint64_t bytes() const { return db_->bytes(); }

 private:
  void to_start();

  std::string type_;
  FilePlace place_;
  int64_t num_shards_, shard_id_;
  mutable std::mutex mutex_;
  std::unique_ptr<Db> db_;
  std::unique_ptr<DbCursor> cursor_;
};

}  // namespace stepnet
