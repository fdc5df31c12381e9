// Blobs as records of a database, in the public format: saved, and loaded again.
//
// A tensor named x becomes the records "x#%0", "x#%1", ... of at most a million elements each; another object becomes
// one record under its plain name. What can be saved: tensors, std::string, DbReader, and a mutex, of which only the
// fact that it exists is kept.
// Threads: pure functions; one thread per BlobAssembler and per BlobLoader.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "core/io/db.h"
#include "core/io/tensor_proto.h"
#include "stepnet/file_place.h"
#include "stepnet/workspace.h"

namespace stepnet {

inline constexpr int64_t kChunkElements = 1'000'000;
inline constexpr std::string_view kChunkSeparator = "#%";

// Calls put(key, value) for each record. Throws Error: nothing in the blob, an object that cannot be saved, or a name
// that contains the chunk separator.
using PutRecord = std::function<void(const std::string& key, const std::string& value)>;
void serialize_blob(const Blob& blob, const std::string& name, const PutRecord& put,
                    int64_t chunk_elements = kChunkElements);

// The blob's name in a record's key.
std::string_view blob_name_of_key(std::string_view key);
BlobProto parse_blob_proto(std::string_view value);

// Puts one blob together from its records, which may come in any order. It keeps a value of its own until `move_into`,
// so that a database with gaps spoils no blob.
class BlobAssembler {
 public:
  // A new tensor's elements are taken off `element_budget`, and it is an Error if they do not fit: a database cannot
  // hold more elements than bytes, whatever the first segment of a tensor promises.
  // A database reader opens what it read when it was saved, confined to `root` unless that is null.
  void add(const BlobProto& record, int64_t& element_budget, const FileRootPtr& root = {});
  bool complete() const { return complete_; }
  // The elements that have come and that are due; for messages.
  std::string progress() const;
  // The device that the record asks for.
  Device recorded_device() const { return recorded_device_; }
  // Gives the blob its value; a tensor is moved to `device`.
  void move_into(Blob& blob, Device device);

 private:
  void add_tensor(const TensorProto& proto, int64_t& element_budget);
  void add_object(const BlobProto& record, const FileRootPtr& root);

  bool started_ = false, complete_ = false;
  Blob value_;
  TensorSegment whole_;                  // begin and end are not used
  std::map<int64_t, int64_t> segments_;  // that have come: begin to end, none of them empty
  int64_t received_ = 0;
  Device recorded_device_;
};

struct NamedBlob {
  std::string name;  // in the database
  const Blob* blob = nullptr;
};

// Writes a database aside and renames it when it is whole, so a save that fails leaves nothing behind. Throws Error:
// the target exists (lmdb), the folder is not writable, two blobs of one name, a blob that cannot be saved.
void save_blobs(const std::string& db_type, const FilePlace& place, std::span<const NamedBlob> blobs);

// The name after the first place where it contains `prefix`; the whole name if it does not.
std::string strip_prefix(const std::string& name, const std::string& prefix);

struct LoadOptions {
  std::string strip_prefix = {};  // see strip_prefix(); applied to stored names
  std::string add_prefix = {};    // then put in front of them
  bool all = false;               // make a blob for every name in the database
  bool allow_incomplete = false;  // blobs that are wanted may be missing
  bool keep_device = false;       // tensors go where they came from, not to `device`
  Device device = {};
};

// Loads blobs from the records of one or several databases.
//
//   BlobLoader loader(workspace, options);          // or loader.want("W", blob) for each
//   loader.read_all("lmdb", "model.db");
//   loader.finish();
//
// Every blob gets its value when its last record has come, so a database with gaps or damage spoils no blob.
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
