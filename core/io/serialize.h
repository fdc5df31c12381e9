// Blobs as records of a database, in the public format.
//
// A tensor named x becomes the records "x#%0", "x#%1", ... of at most a million elements each; another object becomes
// one record under its plain name. What can be saved: tensors, std::string, DbReader, and a mutex, of which only the
// fact that it exists is kept.
// Threads: pure functions; one thread per BlobAssembler.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "core/io/file_place.h"
#include "core/io/tensor_proto.h"
#include "core/tensor/workspace.h"

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

}  // namespace stepnet
