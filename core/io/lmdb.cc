// LMDB: a folder with data.mdb (and lock.mdb while it is written to); records in the order of their keys.
//
// LMDB believes what the file says and crashes where it lies, so core/io/lmdb_check.h looks at it first. It maps the
// file, and a page that another process cuts off later is a SIGBUS: the size is looked at before each record, which
// leaves the moment between the look and the copy of a value.
#include <lmdb.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/io/db.h"
#include "core/io/files.h"
#include "core/io/lmdb_check.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

// The address space that a growing database may use. The largest is the public format's; a process whose address space
// is limited gets the largest that can be had.
constexpr size_t kMapSizes[] = {size_t{1} << 40, size_t{1} << 36, size_t{1} << 33, size_t{1} << 30};
constexpr mdb_mode_t kFileMode = 0664;
constexpr const char* kDataFile = "data.mdb";

class OpenFile {
 public:
  explicit OpenFile(int fd) : fd_(fd) {}
  ~OpenFile() { ::close(fd_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

void check(int code, const std::string& path) {
  require(code != MDB_MAP_FULL, "the LMDB database {} is full: no more address space can be had for it", path);
  require(code == MDB_SUCCESS, "LMDB database {}: {}", path, mdb_strerror(code));
}

// LMDB opens by path, which is the folder's, or of an open data file its own (MDB_NOSUBDIR). `path` is for messages.
class Environment {
 public:
  Environment(const std::string& path, const std::string& opened, unsigned flags, size_t map_size) : path_(path) {
    code_ = mdb_env_create(&env_);
    if (code_ == MDB_SUCCESS) code_ = mdb_env_set_mapsize(env_, map_size);
    if (code_ == MDB_SUCCESS) code_ = mdb_env_open(env_, opened.c_str(), flags, kFileMode);
  }
  ~Environment() { mdb_env_close(env_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  int code() const { return code_; }  // of opening
  // Of a database that is only read: its pages are mapped, and a page that a writer has cut off kills whoever reads it.
  void expect_bytes(uint64_t bytes) { bytes_ = bytes; }
  void check_bytes() const {
    if (bytes_ == 0) return;
    mdb_filehandle_t file = -1;
    struct stat info {};
    check(mdb_env_get_fd(env_, &file), path_);
    if (::fstat(file, &info) != 0) fail("cannot read the LMDB database {}: {}", path_, system_text(errno));
    require(static_cast<uint64_t>(info.st_size) >= bytes_,
            "the LMDB database {} had {} bytes when it was opened, and has {} now: somebody has cut it off", path_,
            bytes_, info.st_size);
  }
  MDB_env* get() const { return env_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  MDB_env* env_ = nullptr;
  uint64_t bytes_ = 0;  // that there must be; 0: that does not matter
  int code_ = 0;
};

// A transaction with the main database open in it.
class Txn {
 public:
  Txn(std::shared_ptr<Environment> env, unsigned flags) : env_(std::move(env)), flags_(flags) { begin(); }
  ~Txn() {
    if (txn_) mdb_txn_abort(txn_);
  }
  Txn(const Txn&) = delete;
  Txn& operator=(const Txn&) = delete;

  void check_bytes() const { env_->check_bytes(); }
  void begin() {
    check_bytes();
    check(mdb_txn_begin(env_->get(), nullptr, flags_, &txn_), path());
    const int code = mdb_dbi_open(txn_, nullptr, 0, &dbi_);
    if (code != MDB_SUCCESS) mdb_txn_abort(std::exchange(txn_, nullptr));
    check(code, path());
  }
  void commit() { check(mdb_txn_commit(std::exchange(txn_, nullptr)), path()); }
  MDB_txn* get() const { return txn_; }
  MDB_dbi dbi() const { return dbi_; }
  const std::string& path() const { return env_->path(); }

 private:
  std::shared_ptr<Environment> env_;  // shared with the database and its other transactions
  unsigned flags_;
  MDB_txn* txn_ = nullptr;
  MDB_dbi dbi_ = 0;
};

std::string_view view(const MDB_val& v) { return {static_cast<const char*>(v.mv_data), v.mv_size}; }
MDB_val val(std::string_view s) { return {s.size(), const_cast<char*>(s.data())}; }

class LmdbCursor : public DbCursor {
 public:
  explicit LmdbCursor(std::shared_ptr<Environment> env) : txn_(std::move(env), MDB_RDONLY) {
    MDB_cursor* made = nullptr;
    check(mdb_cursor_open(txn_.get(), txn_.dbi(), &made), txn_.path());
    cursor_.reset(made);
    seek_to_first();
  }

  bool valid() const override { return valid_; }
  std::string_view key() const override { return view(key_); }
  std::string_view value() const override { return view(value_); }
  void next() override { move(MDB_NEXT); }
  void seek_to_first() override { move(MDB_FIRST); }
  bool supports_seek() const override { return true; }
  void seek(std::string_view key) override {
    if (key.empty()) return seek_to_first();
    key_ = val(key);
    move(MDB_SET_RANGE);
  }

 private:
  struct Close {
    void operator()(MDB_cursor* cursor) const { mdb_cursor_close(cursor); }
  };
  void move(MDB_cursor_op op) {
    txn_.check_bytes();
    const int code = mdb_cursor_get(cursor_.get(), &key_, &value_, op);
    valid_ = code == MDB_SUCCESS;
    if (code != MDB_NOTFOUND) check(code, txn_.path());
  }

  Txn txn_;
  std::unique_ptr<MDB_cursor, Close> cursor_;
  MDB_val key_{}, value_{};
  bool valid_ = false;
};

class LmdbTransaction : public DbTransaction {
 public:
  explicit LmdbTransaction(std::shared_ptr<Environment> env) : env_(std::move(env)), txn_(env_, 0) {}

  void put(std::string_view key, std::string_view value) override {
    const size_t longest = static_cast<size_t>(mdb_env_get_maxkeysize(env_->get()));
    require(!key.empty() && key.size() <= longest,
            "LMDB database {}: the key \"{}\" has {} bytes; 1 to {} are possible", env_->path(), key, key.size(),
            longest);
    MDB_val k = val(key), v = val(value);
    check(mdb_put(txn_.get(), txn_.dbi(), &k, &v, 0), env_->path());
  }
  void commit() override {
    txn_.commit();
    txn_.begin();
  }

 private:
  std::shared_ptr<Environment> env_;
  Txn txn_;
};

class LmdbDb : public Db {
 public:
  LmdbDb(std::shared_ptr<Environment> env, bool writable, uint64_t bytes)
      : env_(std::move(env)), writable_(writable), bytes_(bytes) {}

  std::unique_ptr<DbCursor> cursor() override { return std::make_unique<LmdbCursor>(env_); }
  std::unique_ptr<DbTransaction> transaction() override {
    require(writable_, "the LMDB database {} is open for reading only", env_->path());
    return std::make_unique<LmdbTransaction>(env_);
  }
  uint64_t bytes() const override { return bytes_; }

 private:
  std::shared_ptr<Environment> env_;  // shared with cursors and transactions, which may outlive this
  bool writable_;
  uint64_t bytes_;
};

std::shared_ptr<Environment> open_growing(const std::string& path, const std::string& opened, unsigned flags,
                                          uint64_t at_least) {
  std::shared_ptr<Environment> env;
  for (const size_t size : kMapSizes) {
    if (size < at_least) break;
    env.reset();  // closed before it is opened again
    env = std::make_shared<Environment>(path, opened, flags, size);
    if (env->code() != ENOMEM) break;
  }
  require(env != nullptr, "the LMDB database {} has {} bytes, which is too many to add to it", path, at_least);
  check(env->code(), path);
  return env;
}

// A file that is open already, as a path: LMDB then follows no link that was put in its place.
std::string path_of_open(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

std::unique_ptr<Db> create(const FilePlace& place) {
  const std::string path = place.str();
  const PlaceFolder above(place);
  if (::mkdirat(above.fd(), above.name().c_str(), 0755) != 0)
    fail("cannot create the LMDB database {}: {}", path, system_text(errno));
  // Nobody else can have it open yet, so it needs no locks.
  constexpr unsigned kFlags = MDB_NOTLS | MDB_NOLOCK;
  if (!place.confined()) return std::make_unique<LmdbDb>(open_growing(path, path, kFlags, 0), true, 0);
  const OpenFile data(open_regular(place.in_folder(kDataFile), O_RDWR | O_CREAT | O_EXCL));
  auto env = open_growing(path, path_of_open(data.fd()), kFlags | MDB_NOSUBDIR, 0);
  return std::make_unique<LmdbDb>(std::move(env), true, 0);
}

void require_folder(const FilePlace& place) {
  struct stat info {};
  if (PlaceFolder(place).look(info) != 0) fail("cannot open the LMDB database {}: {}", place, system_text(errno));
  require(!S_ISLNK(info.st_mode), "cannot open the LMDB database {}: it is a link, and links are not followed", place);
  require(S_ISDIR(info.st_mode), "{} is not an LMDB database, which is a folder with a file data.mdb", place);
}

}  // namespace

std::unique_ptr<Db> open_lmdb(const FilePlace& place, DbMode mode) {
  if (mode == DbMode::create) return create(place);
  const std::string path = place.str();
  require_folder(place);
  const FileReader data(place.in_folder(kDataFile));
  const uint64_t bytes = check_lmdb_file(data).file_bytes;
  if (mode == DbMode::write) {
    require(!place.confined(), "the LMDB database {} can only be read or made anew by a confined net", path);
    return std::make_unique<LmdbDb>(open_growing(path, path, MDB_NOTLS, bytes), true, bytes);
  }
  constexpr unsigned kFlags = MDB_RDONLY | MDB_NOTLS | MDB_NOLOCK;
  auto env = place.confined()
                 ? std::make_shared<Environment>(path, path_of_open(data.fd()), kFlags | MDB_NOSUBDIR, bytes)
                 : std::make_shared<Environment>(path, path, kFlags, bytes);
  check(env->code(), path);
  env->expect_bytes(bytes);
  return std::make_unique<LmdbDb>(std::move(env), false, bytes);
}

}  // namespace stepnet
