// See the header; the messages themselves are in core/io/tensor_proto.h.
#include "core/io/blob_db.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <set>

#include "core/io/db.h"
#include "core/io/files.h"
#include "stepnet/error.h"
#include "stepnet/tensor.h"

namespace stepnet {
namespace {

constexpr const char* kTensorType = "Tensor";
constexpr const char* kStringType = "std::string";
constexpr const char* kReaderType = "DBReader";
constexpr size_t kNamesInMessages = 100;
constexpr const char* kMutexType = "std::unique_ptr<std::mutex>";

std::string to_bytes(const BlobProto& proto) {
  const size_t bytes = proto.ByteSizeLong();
  require(bytes <= static_cast<size_t>(std::numeric_limits<int>::max()), "its record has {} bytes, which is too many",
          bytes);
  return proto.SerializeAsString();
}

void serialize_tensor(const Tensor& tensor, const std::string& name, const PutRecord& put, int64_t chunk) {
  const Tensor host = on_device(tensor, {});
  const int64_t size = tensor.size();
  int64_t k = 0;
  // A tensor without elements has one record too.
  for (int64_t begin = 0; begin < size || k == 0; begin += chunk, ++k) {
    BlobProto proto;
    proto.set_name(name);
    proto.set_type(kTensorType);
    *proto.mutable_tensor() = tensor_segment_to_proto(host, name, begin, std::min(begin + chunk, size));
    if (tensor.device().kind == DeviceKind::cuda) {
      proto.mutable_tensor()->mutable_device_detail()->set_device_type(CUDA);
      proto.mutable_tensor()->mutable_device_detail()->set_device_id(tensor.device().index);
    }
    put(fmt::format("{}{}{}", name, kChunkSeparator, k), to_bytes(proto));
  }
}

BlobProto object_to_proto(const Blob& blob, const std::string& name) {
  BlobProto proto;
  proto.set_name(name);
  if (blob.holds<std::string>()) {
    proto.set_type(kStringType);
    proto.set_content(blob.get<std::string>());
  } else if (blob.holds<DbReader>()) {
    proto.set_type(kReaderType);
    proto.set_content(blob.get<DbReader>().to_proto(name).SerializeAsString());
  } else if (blob.holds<std::mutex>()) {
    proto.set_type(kMutexType);
    proto.set_content("");
  } else {
    fail("objects of type {} cannot be saved", blob.type_str());
  }
  return proto;
}

Device device_of_proto(const TensorProto& proto) {
  if (proto.device_detail().device_type() != CUDA) return {};
  const int32_t index = proto.device_detail().device_id();
  require(index >= 0 && index <= std::numeric_limits<int8_t>::max(), "there is no GPU {}", index);
  return {DeviceKind::cuda, static_cast<int8_t>(index)};
}

}  // namespace

void serialize_blob(const Blob& blob, const std::string& name, const PutRecord& put, int64_t chunk_elements) {
  try {
    require(!name.empty(), "its name is empty");
    require(name.find(kChunkSeparator) == std::string::npos, "its name contains \"{}\", which separates chunks",
            kChunkSeparator);
    require(!blob.empty(), "it holds nothing yet");
    if (blob.is_tensor())
      serialize_tensor(blob.tensor(), name, put, chunk_elements);
    else
      put(name, to_bytes(object_to_proto(blob, name)));
  } catch (Error& e) {
    e.prefix(fmt::format("cannot save blob \"{}\"", name));
    throw;
  }
}

std::string_view blob_name_of_key(std::string_view key) { return key.substr(0, key.find(kChunkSeparator)); }

BlobProto parse_blob_proto(std::string_view value) {
  BlobProto proto;
  // The partial form, because the other one prints what is missing.
  const bool parsed = value.size() <= static_cast<size_t>(std::numeric_limits<int>::max()) &&
                      proto.ParsePartialFromArray(value.data(), static_cast<int>(value.size())) &&
                      proto.IsInitialized();
  require(parsed, "its {} bytes are not a saved blob", value.size());
  return proto;
}

void BlobAssembler::add(const BlobProto& record, int64_t& element_budget, const FileRootPtr& root) {
  require(!complete_, "a record is there twice");
  if (record.type() != kTensorType) {
    require(!started_, "records of a tensor and of a {} have its name", record.type());
    add_object(record, root);
    complete_ = true;
  } else {
    require(record.has_tensor(), "its record has no tensor");
    add_tensor(record.tensor(), element_budget);
  }
  started_ = true;
}

void BlobAssembler::add_tensor(const TensorProto& proto, int64_t& element_budget) {
  const TensorSegment s = read_segment(proto);
  if (!started_) {
    require(s.shape.size() <= element_budget, "{}{} has more elements than there are bytes in the database",
            dtype_name(s.dtype), s.shape.str());
    element_budget -= s.shape.size();
    whole_ = s;
    recorded_device_ = device_of_proto(proto);
    value_.tensor() = Tensor::empty(s.dtype, s.shape);
  }
  require(s.dtype == whole_.dtype && s.shape == whole_.shape, "its records disagree: {}{} and {}{}",
          dtype_name(whole_.dtype), whole_.shape.str(), dtype_name(s.dtype), s.shape.str());
  if (s.begin < s.end) {
    const auto [it, fresh] = segments_.emplace(s.begin, s.end);
    const auto after = fresh ? std::next(it) : it;
    const bool apart = fresh && (it == segments_.begin() || std::prev(it)->second <= s.begin) &&
                       (after == segments_.end() || s.end <= after->first);
    require(apart, "elements {} to {} are there twice", s.begin, s.end);
  }
  copy_segment(proto, s, value_.tensor());
  received_ += s.end - s.begin;
  complete_ = received_ == whole_.shape.size();
}

void BlobAssembler::add_object(const BlobProto& record, const FileRootPtr& root) {
  require(!record.has_content_num_chunks() || record.content_num_chunks() == 1,
          "objects of type {} in {} chunks are not read", record.type(), record.content_num_chunks());
  if (record.type() == kStringType) {
    value_.emplace<std::string>(record.content());
  } else if (record.type() == kReaderType) {
    DBReaderProto reader;
    require(reader.ParseFromString(record.content()), "its record is not a database reader");
    value_.emplace<DbReader>(reader, root);
  } else if (record.type() == kMutexType) {
    value_.emplace<std::mutex>();
  } else {
    fail("objects of type \"{}\" are not read", record.type());
  }
}

std::string BlobAssembler::progress() const {
  if (!started_) return "no record";
  return fmt::format("{} of {} elements", received_, whole_.shape.size());
}

void BlobAssembler::move_into(Blob& blob, Device device) {
  if (value_.is_tensor()) value_.tensor() = on_device(value_.tensor(), device);
  blob = std::move(value_);
}

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

void BlobLoader::want(const std::string& name, Blob& blob) {
  Item& item = items_[name];
  require(!item.wanted, "the blob \"{}\" is to be loaded twice", name);
  item.blob = &blob;
  item.wanted = true;
  ++wanted_;
}

BlobLoader::Item* BlobLoader::find(const std::string& name) {
  if (const auto it = items_.find(name); it != items_.end()) return &it->second;
  if (!options_.all) {
    if (ignored_.size() < kNamesInMessages) ignored_.insert(name);
    return nullptr;
  }
  require(!name.empty(), "a record has no blob's name");
  Item& item = items_[name];
  item.blob = &workspace_.create(name);
  return &item;
}

void BlobLoader::read(DbCursor& cursor, uint64_t bytes, const std::string& source) {
  const int index = static_cast<int>(sources_.size());
  sources_.push_back(source);
  // Every element takes a byte on disk at least.
  auto element_budget = static_cast<int64_t>(bytes);
  while (cursor.valid() && !all_wanted_complete()) {
    const std::string stored(blob_name_of_key(cursor.key()));
    try {
      const std::string name = options_.add_prefix + strip_prefix(stored, options_.strip_prefix);
      if (Item* item = find(name)) {
        if (item->source < 0) item->source = index;
        require(item->source == index, "it is also in {}", sources_[static_cast<size_t>(item->source)]);
        take(*item, cursor.value(), element_budget);
      }
    } catch (Error& e) {
      e.prefix(fmt::format("blob \"{}\" in {}", stored, source));
      throw;
    }
    if (!all_wanted_complete()) cursor.next();
  }
}

void BlobLoader::take(Item& item, std::string_view value, int64_t& element_budget) {
  item.assembler.add(parse_blob_proto(value), element_budget, workspace_.file_root());
  if (!item.assembler.complete()) return;
  item.assembler.move_into(*item.blob, options_.keep_device ? item.assembler.recorded_device() : options_.device);
  if (item.wanted) ++complete_wanted_;
}

void BlobLoader::read_all(const std::string& db_type, const FilePlace& place) {
  const auto db = open_db(db_type, place, DbMode::read);
  const auto cursor = db->cursor();
  read(*cursor, db->bytes(), place.str());
}

void BlobLoader::finish() const {
  std::vector<std::string> missing;
  for (const auto& [name, item] : items_) {
    if (item.assembler.complete()) continue;
    require(item.source < 0, "blob \"{}\" in {} is incomplete: {} are there", name,
            item.source < 0 ? "" : sources_[static_cast<size_t>(item.source)], item.assembler.progress());
    missing.push_back(name);
  }
  if (missing.empty() || options_.allow_incomplete) return;
  const std::string hint = suggest(missing[0], {ignored_.begin(), ignored_.end()});
  const size_t count = missing.size();
  if (count > 3) missing.resize(3);
  throw Error(fmt::format("{} of {} blobs are not in {}: {}{}.{}", count, wanted_, fmt::join(sources_, ", "),
                          fmt::join(missing, ", "), count > 3 ? ", ..." : "", hint),
              "save them, or set allow_incomplete to 1");
}

}  // namespace stepnet
