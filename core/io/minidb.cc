// MiniDB: a flat file of records, to the end of the file, without header or alignment:
//
//   int32 key length > 0, int32 value length > 0, key bytes, value bytes      (little endian)
//
// Reading checks every length against what is left of the file before any memory is taken.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <limits>

#include "core/io/db.h"
#include "core/io/files.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

constexpr size_t kHeaderBytes = 2 * sizeof(int32_t);

class MiniDbCursor : public DbCursor {
 public:
  explicit MiniDbCursor(std::shared_ptr<const FileReader> file) : file_(std::move(file)) { seek_to_first(); }

  bool valid() const override { return valid_; }
  std::string_view key() const override { return key_; }
  std::string_view value() const override { return value_; }
  bool supports_seek() const override { return false; }
  void seek(std::string_view) override { fail("a minidb database cannot look for a key: {}", file_->path()); }
  void seek_to_first() override {
    next_ = 0;
    next();
  }
  void next() override;

 private:
  std::shared_ptr<const FileReader> file_;  // shared with the database and its other cursors
  uint64_t next_ = 0;
  bool valid_ = false;
  std::string key_, value_;
};

void MiniDbCursor::next() {
  const uint64_t left = file_->size() - next_;
  valid_ = false;
  if (left == 0) return;
  require(left >= kHeaderBytes, "minidb file {} is truncated: its last record, at byte {}, has {} bytes", file_->path(),
          next_, left);
  int32_t lengths[2];
  file_->read_at(next_, lengths, sizeof(lengths));
  require(lengths[0] > 0 && lengths[1] > 0,
          "minidb file {} is damaged: the record at byte {} has key length {} and value length {}", file_->path(),
          next_, lengths[0], lengths[1]);
  const uint64_t needed = kHeaderBytes + static_cast<uint64_t>(lengths[0]) + static_cast<uint64_t>(lengths[1]);
  require(needed <= left, "minidb file {} is truncated or damaged: the record at byte {} needs {} bytes, {} are left",
          file_->path(), next_, needed, left);
  key_.resize(static_cast<size_t>(lengths[0]));
  value_.resize(static_cast<size_t>(lengths[1]));
  file_->read_at(next_ + kHeaderBytes, key_.data(), key_.size());
  file_->read_at(next_ + kHeaderBytes + key_.size(), value_.data(), value_.size());
  next_ += needed;
  valid_ = true;
}

// Appends to the file; records are gathered and written in one go by commit.
class MiniDbTransaction : public DbTransaction {
 public:
  MiniDbTransaction(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  void put(std::string_view key, std::string_view value) override;
  void commit() override;

 private:
  int fd_;  // the database's
  std::string path_, pending_;
};

void MiniDbTransaction::put(std::string_view key, std::string_view value) {
  constexpr size_t kMost = std::numeric_limits<int32_t>::max();
  require(!key.empty() && key.size() <= kMost, "minidb {} cannot hold a key of {} bytes", path_, key.size());
  require(!value.empty() && value.size() <= kMost, "minidb {} cannot hold a value of {} bytes (key \"{}\")", path_,
          value.size(), key);
  const int32_t lengths[2] = {static_cast<int32_t>(key.size()), static_cast<int32_t>(value.size())};
  pending_.append(reinterpret_cast<const char*>(lengths), sizeof(lengths));
  pending_.append(key).append(value);
}

void MiniDbTransaction::commit() {
  write_whole(fd_, pending_, path_);
  pending_.clear();
  sync_file(fd_, path_);
}

class MiniDb : public Db {
 public:
  MiniDb(const FilePlace& place, DbMode mode);
  ~MiniDb() override {
    if (fd_ >= 0) ::close(fd_);
  }
  MiniDb(const MiniDb&) = delete;
  MiniDb& operator=(const MiniDb&) = delete;

  std::unique_ptr<DbCursor> cursor() override {
    // In the writing modes each cursor sees what was committed before it.
    return std::make_unique<MiniDbCursor>(fd_ < 0 ? file_ : std::make_shared<const FileReader>(place_));
  }
  std::unique_ptr<DbTransaction> transaction() override {
    require(fd_ >= 0, "the minidb database {} is open for reading only", place_);
    return std::make_unique<MiniDbTransaction>(fd_, place_.str());
  }
  uint64_t bytes() const override { return file_->size(); }

 private:
  FilePlace place_;
  int fd_ = -1;
  std::shared_ptr<const FileReader> file_;
};

MiniDb::MiniDb(const FilePlace& place, DbMode mode) : place_(place) {
  if (mode != DbMode::create) file_ = std::make_shared<const FileReader>(place_);
  if (mode == DbMode::read) return;
  struct stat info {};
  require(PlaceFolder(place_).look(info) != 0 || S_ISREG(info.st_mode), "{} exists and is not a regular file", place_);
  const int flags = mode == DbMode::create ? O_CREAT | O_TRUNC : O_APPEND;
  fd_ = open_regular(place_, O_WRONLY | flags, " for writing");
  if (!file_) file_ = std::make_shared<const FileReader>(place_);
}

}  // namespace

std::unique_ptr<Db> open_minidb(const FilePlace& place, DbMode mode) { return std::make_unique<MiniDb>(place, mode); }

}  // namespace stepnet
