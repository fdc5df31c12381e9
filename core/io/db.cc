// The table of database types, and the reader of all of them. A new type is one row here and a file beside this one.
#include "core/io/db.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>

#include "core/io/files.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

struct Type {
  std::string_view name, other_name;
  bool replaces;
  std::unique_ptr<Db> (*open)(const FilePlace& place, DbMode mode);
};
constexpr Type kTypes[] = {
    {"lmdb", "LMDB", false, open_lmdb},
    {"minidb", "MiniDB", true, open_minidb},
};
// Types of the public format that this build leaves out.
constexpr std::string_view kAbsent[] = {"leveldb", "LevelDB", "rocksdb", "protodb", "ProtoDB", "zmqdb", "ZmqDB"};

const Type& find_type(const std::string& name) {
  for (const Type& t : kTypes)
    if (name == t.name || name == t.other_name) return t;
  const std::string known = fmt::format("{}", fmt::join(db_types(), ", "));
  if (std::find(std::begin(kAbsent), std::end(kAbsent), name) != std::end(kAbsent))
    throw Error(fmt::format("database type \"{}\" is not supported in this build", name),
                fmt::format("set the database type to one of: {}", known));
  fail("there is no database type \"{}\"; there are: {}", name, known);
}

}  // namespace

std::unique_ptr<Db> open_db(const std::string& type, const FilePlace& place, DbMode mode) {
  const Type& t = find_type(type);
  require(!place.path().empty(), "the path of the {} database is empty", t.name);
  return t.open(place, mode);
}

std::vector<std::string> db_types() {
  std::vector<std::string> names;
  for (const Type& t : kTypes) names.emplace_back(t.name);
  return names;
}

void check_db_type(const std::string& type) { find_type(type); }

bool db_replaces(const std::string& type) { return find_type(type).replaces; }

void check_db_target(const std::string& type, const FilePlace& place) {
  const Type& t = find_type(type);
  require(!place.path().empty(), "the path of the {} database is empty", t.name);
  struct stat info {};
  const PlaceFolder folder(place);
  if (::fstatat(folder.fd(), folder.name().c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    if (!t.replaces)
      throw Error(fmt::format("the {} database {} already exists", t.name, place), "remove it, or choose another path");
    require(S_ISREG(info.st_mode) || (S_ISLNK(info.st_mode) && !place.confined()),
            "{} exists and is not a file, so no {} database can replace it", place, t.name);
  }
  require_writable_folder_of(place);
}

DbReader::DbReader(std::string type, FilePlace place, int64_t num_shards, int64_t shard_id)
    : type_(std::move(type)), place_(std::move(place)), num_shards_(num_shards), shard_id_(shard_id) {
  require(num_shards_ >= 1, "the number of shards must be at least 1, but is {}", num_shards_);
  require(shard_id_ >= 0 && shard_id_ < num_shards_, "the shard must be one of 0 to {}, but is {}", num_shards_ - 1,
          shard_id_);
  db_ = open_db(type_, place_, DbMode::read);
  cursor_ = db_->cursor();
  to_start();
}

DbReader::DbReader(const DBReaderProto& saved, FileRootPtr root)
    : DbReader(saved.db_type(), FilePlace(std::move(root), saved.source())) {
  if (!saved.has_key() || !cursor_->supports_seek()) return;
  cursor_->seek(saved.key());
  if (!cursor_->valid()) to_start();
}

void DbReader::to_start() {
  cursor_->seek_to_first();
  require(cursor_->valid(), "the database {} has no records", place_);
  for (int64_t skipped = 0; skipped < shard_id_; ++skipped) {
    cursor_->next();
    require(cursor_->valid(), "the database {} has {} records, so shard {} of {} has none", place_, skipped + 1,
            shard_id_, num_shards_);
  }
}

void DbReader::read(std::string& key, std::string& value) {
  const std::lock_guard lock(mutex_);
  if (!cursor_->valid()) to_start();
  key = cursor_->key();
  value = cursor_->value();
  for (int64_t i = 0; i < num_shards_; ++i) {
    cursor_->next();
    if (!cursor_->valid()) return to_start();
  }
}

DBReaderProto DbReader::to_proto(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  DBReaderProto proto;
  proto.set_name(name);
  proto.set_source(place_.path());
  proto.set_db_type(type_);
  if (cursor_->supports_seek() && cursor_->valid()) proto.set_key(std::string(cursor_->key()));
  return proto;
}

}  // namespace stepnet
