// The table of database types. A new type is one row here and a file beside this one.
#include "core/io/db.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>

#include "core/error.h"
#include "core/io/atomic_file.h"
#include "core/io/db_backends.h"

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

}  // namespace stepnet
