// BlobLoader: blobs from the records of one or several databases, as the operator Load and the command read them.
//
//   BlobLoader loader(workspace, options);          // or loader.want("W", blob) for each
//   loader.read_all("lmdb", "model.db");
//   loader.finish();
//
// Every blob gets its value when its last record has come, so a database with gaps or damage spoils no blob.
// Threads: one thread per loader.
#pragma once

#include <map>
#include <set>
#include <string>

#include "core/io/db.h"
#include "core/io/serialize.h"

namespace stepnet {

struct LoadOptions {
  std::string strip_prefix = {};  // see strip_prefix() in core/io/save_blobs.h; applied to stored names
  std::string add_prefix = {};    // then put in front of them
  bool all = false;               // make a blob for every name in the database
  bool allow_incomplete = false;  // blobs that are wanted may be missing
  bool keep_device = false;       // tensors go where they came from, not to `device`
  Device device = {};
};

class BlobLoader {
 public:
  explicit BlobLoader(Workspace& workspace, LoadOptions options = {})
      : workspace_(workspace), options_(std::move(options)) {}

  // A blob to load; `name` is the stored one, after stripping and prefixing.
  void want(const std::string& name, Blob& blob);

  // Reads from where the cursor stands to the end, or until everything that is wanted has come; then the cursor stays
  // on the last record that was read. `source` is for messages, `bytes` the size of the database.
  void read(DbCursor& cursor, uint64_t bytes, const std::string& source);
  void read_all(const std::string& db_type, const FilePlace& place);
  // Throws Error if a blob came in part, or not at all without allow_incomplete.
  void finish() const;

 private:
  struct Item {
    Blob* blob = nullptr;
    BlobAssembler assembler;
    int source = -1;  // the database that it comes from
    bool wanted = false;
  };
  Item* find(const std::string& name);
  void take(Item& item, std::string_view value, int64_t& element_budget);
  bool all_wanted_complete() const { return !options_.all && complete_wanted_ == wanted_; }

  Workspace& workspace_;
  LoadOptions options_;
  std::map<std::string, Item> items_;
  std::set<std::string> ignored_;  // names that are stored but not wanted, for messages; the first hundred
  std::vector<std::string> sources_;
  int wanted_ = 0, complete_wanted_ = 0;
};

}  // namespace stepnet
