// See the header.
#include "core/io/db_reader.h"

#include "core/error.h"

namespace stepnet {

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
