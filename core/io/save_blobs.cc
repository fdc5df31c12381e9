// See the header.
#include "core/io/save_blobs.h"

#include <set>

#include "core/error.h"
#include "core/io/atomic_file.h"
#include "core/io/db.h"
#include "core/io/file_io.h"
#include "core/io/serialize.h"

namespace stepnet {
namespace {

constexpr size_t kBytesPerCommit = size_t{64} << 20;  // bounds the memory that a transaction holds

// Removes what was written aside, unless it got its name before.
class Aside {
 public:
  explicit Aside(const FilePlace& place) : place_(unused_sibling(place)) {}
  ~Aside() { remove_aside(place_); }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;
  const FilePlace& place() const { return place_; }

 private:
  FilePlace place_;
};

void write_records(const std::string& db_type, const FilePlace& place, std::span<const NamedBlob> blobs) {
  const auto db = open_db(db_type, place, DbMode::create);
  const auto transaction = db->transaction();
  size_t pending = 0;
  for (const NamedBlob& b : blobs) {
    serialize_blob(*b.blob, b.name, [&](const std::string& key, const std::string& value) {
      transaction->put(key, value);
      pending += key.size() + value.size();
      if (pending < kBytesPerCommit) return;
      transaction->commit();
      pending = 0;
    });
  }
  transaction->commit();
}

}  // namespace

void save_blobs(const std::string& db_type, const FilePlace& place, std::span<const NamedBlob> blobs) {
  std::set<std::string> names;
  for (const NamedBlob& b : blobs)
    require(names.insert(b.name).second, "two blobs would be saved under the name \"{}\"", b.name);
  check_db_target(db_type, place);
  const Aside aside(place);
  write_records(db_type, aside.place(), blobs);
  struct stat info {};
  if (look_at(aside.place(), info) && S_ISDIR(info.st_mode)) sync_folder(aside.place());
  rename_into_place(aside.place(), place, db_replaces(db_type) ? IfExists::replace : IfExists::fail);
}

std::string strip_prefix(const std::string& name, const std::string& prefix) {
  const size_t at = prefix.empty() ? std::string::npos : name.find(prefix);
  return at == std::string::npos ? name : name.substr(at + prefix.size());
}

}  // namespace stepnet
