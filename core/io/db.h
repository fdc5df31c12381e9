// Databases of key-value records, opened by the name of their type.
//
//   minidb, MiniDB   one flat file, records in the order in which they were written
//   lmdb, LMDB       a folder with an LMDB file, records in the order of their keys; its pages are mapped, so nobody
//                    may cut it off while it is read: an Error if it is seen in time, else a SIGBUS
//
// Nothing in a database file can crash the process: damage is an Error that names the file.
// Threads: one thread per cursor or transaction; a Db may hand out cursors to several threads, and a
// DbReader be used by them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "stepnet/file_place.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

enum class DbMode {
  read,
  write,   // adds to a database that exists
  create,  // the format's NEW: minidb replaces an existing file, lmdb throws Error if the path exists
};

// Stands on a record, or is not valid at the end. Starts on the first record. Keeps the database's files open.
class DbCursor {
 public:
  virtual ~DbCursor() = default;
  virtual bool valid() const = 0;
  virtual std::string_view key() const = 0;  // until the cursor moves; the cursor must be valid
  virtual std::string_view value() const = 0;
  virtual void next() = 0;  // the cursor must be valid
  virtual void seek_to_first() = 0;
  virtual bool supports_seek() const = 0;
  virtual void seek(std::string_view key) = 0;  // first key not before `key`; throws Error if not supported
};

// What was not committed may be lost. A transaction can be used on after a commit.
class DbTransaction {
 public:
  virtual ~DbTransaction() = default;
  virtual void put(std::string_view key, std::string_view value) = 0;
  virtual void commit() = 0;  // the records are on disk afterwards
};

class Db {
 public:
  virtual ~Db() = default;
  virtual std::unique_ptr<DbCursor> cursor() = 0;
  virtual std::unique_ptr<DbTransaction> transaction() = 0;  // not in mode read
  virtual uint64_t bytes() const = 0;                        // size on disk when it was opened
};

// Throws Error: unknown type, missing or damaged files, an existing target that must not be replaced.
std::unique_ptr<Db> open_db(const std::string& type, const FilePlace& place, DbMode mode);

// The types of this build, under one name each.
std::vector<std::string> db_types();
// Throws Error with the types that exist.
void check_db_type(const std::string& type);
// Throws Error if a database cannot be created at `place`, so that it is known before the work of filling it starts.
void check_db_target(const std::string& type, const FilePlace& place);
// Whether mode create puts a new database in an old one's place.
bool db_replaces(const std::string& type);

// What open_db calls for each type; in a file of its own each.
std::unique_ptr<Db> open_minidb(const FilePlace& place, DbMode mode);
std::unique_ptr<Db> open_lmdb(const FilePlace& place, DbMode mode);

// Reads a database round and round, for nets that train on it. What CreateDB puts into a blob.
//
// With shards, a reader starts at record `shard_id` and gives every `num_shards`-th record; at the end it starts over
// the same way. There is no reading ahead: which record comes next depends on the calls alone.
// `read` may be called from several threads; each record goes to one of them.
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
