// See the header.
#include "core/io/save_blobs.h"

#include <filesystem>
#include <set>

#include "core/error.h"
#include "core/io/atomic_file.h"
#include "core/io/db.h"
#include "core/io/serialize.h"

namespace stepnet {
namespace {

constexpr size_t kBytesPerCommit = size_t{64} << 20;  // bounds the memory that a transaction holds

// Removes what was written aside, unless it got its name before.
class Aside {
 public:
  explicit Aside(const std::string& path) : path_(unused_sibling(path)) {}
  ~Aside() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void write_records(const std::string& db_type, const std::string& path, std::span<const NamedBlob> blobs) {
  const auto db = open_db(db_type, path, DbMode::create);
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

void save_blobs(const std::string& db_type, const std::string& path, std::span<const NamedBlob> blobs) {
  std::set<std::string> names;
  for (const NamedBlob& b : blobs)
    require(names.insert(b.name).second, "two blobs would be saved under the name \"{}\"", b.name);
  check_db_target(db_type, path);
  const Aside aside(path);
  write_records(db_type, aside.path(), blobs);
  if (std::filesystem::is_directory(aside.path())) sync_folder(aside.path());
  rename_into_place(aside.path(), path, db_replaces(db_type) ? IfExists::replace : IfExists::fail);
}

std::string db_path(const Workspace& workspace, const std::string& db, bool absolute) {
  require(!db.empty(), "the path of the database is empty");
  return absolute ? db : workspace.root_folder + "/" + db;
}

std::string strip_prefix(const std::string& name, const std::string& prefix) {
  const size_t at = prefix.empty() ? std::string::npos : name.find(prefix);
  return at == std::string::npos ? name : name.substr(at + prefix.size());
}

}  // namespace stepnet
