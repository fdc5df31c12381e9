// Databases as columns: a record is a TensorProtos, as the operator TensorProtosDBInput reads them.
//
// Of a database that can look for a key, records stay where they are, and only their keys are kept; of another, all
// tensors are. Each record is decoded once when the column is opened, so that what does not fit is known then.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "core/data/sources.h"
#include "core/io/db.h"
#include "core/io/tensor_proto.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

class DatabaseColumn final : public Column {
 public:
  DatabaseColumn(const std::string& type, const std::string& path, int index)
      : db_(open_db(type, path, DbMode::read)), cursor_(db_->cursor()), path_(path), index_(index) {
    for (cursor_->seek_to_first(); cursor_->valid(); cursor_->next()) add(decode());
    require(!lengths_.empty(), "the database {} has no records", path_);
    std::vector<int64_t> dims(first_.begin(), first_.end());
    if (varies_) dims[0] = *std::ranges::max_element(lengths_);
    shape_ = Shape(dims);
  }

  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }
  int64_t samples() const override { return static_cast<int64_t>(lengths_.size()); }
  const std::string& file() const override { return path_; }
  bool varies() const override { return varies_; }
  int64_t length(int64_t sample) const override { return lengths_[static_cast<size_t>(sample)]; }
  void read(int64_t first, int64_t count, std::byte* to) const override {
    const std::lock_guard lock(mutex_);
    for (int64_t i = first; i < first + count; ++i) {
      const Tensor tensor = tensors_.empty() ? found(static_cast<size_t>(i)) : tensors_[static_cast<size_t>(i)];
      if (tensor.bytes() > 0) std::memcpy(to, tensor.raw(), tensor.bytes());
      to += tensor.bytes();
    }
  }

 private:
  std::string shown() const { return fmt::format("record \"{}\" of {}", cursor_->key(), path_); }

  // The tensor of the record that the cursor stands on.
  Tensor decode() const {
    const std::string_view value = cursor_->value();
    TensorProtos record;
    const bool parsed = value.size() <= static_cast<size_t>(std::numeric_limits<int>::max()) &&
                        record.ParsePartialFromArray(value.data(), static_cast<int>(value.size())) &&
                        record.IsInitialized();
    require(parsed, "{} is not a TensorProtos message", shown());
    require(index_ < record.protos_size(), "{} has {} tensors, but tensor {} (from 0) is asked for", shown(),
            record.protos_size(), index_);
    try {
      return tensor_from_proto(record.protos(index_));
    } catch (Error& e) {
      e.prefix(fmt::format("tensor {} of {}", index_, shown()));
      throw;
    }
  }

  void add(Tensor tensor) {
    const Shape& shape = tensor.shape();
    if (lengths_.empty()) {
      first_ = shape;
      dtype_ = tensor.dtype();
      require(dtype_ != DType::string, "tensor {} of {} is of texts, which are no data", index_, shown());
    }
    const bool same = tensor.dtype() == dtype_ && shape.rank() == first_.rank() &&
                      (shape.rank() == 0 || shape.from(1) == first_.from(1));
    require(same, "tensor {} of {} is {}, but that of the first record is {}{}", index_, shown(), tensor,
            dtype_name(dtype_), first_);
    lengths_.push_back(shape.rank() > 0 ? shape[0] : 1);
    varies_ = varies_ || lengths_.back() != lengths_.front();
    if (cursor_->supports_seek())
      keys_.emplace_back(cursor_->key());
    else
      tensors_.push_back(std::move(tensor));
  }

  Tensor found(size_t record) const {
    cursor_->seek(keys_[record]);
    require(cursor_->valid() && cursor_->key() == keys_[record], "the database {} has lost record \"{}\"", path_,
            keys_[record]);
    Tensor tensor = decode();
    const bool same =
        tensor.dtype() == dtype_ && tensor.rank() == first_.rank() &&
        (tensor.rank() == 0 || (tensor.dim(0) == lengths_[record] && tensor.shape().from(1) == first_.from(1)));
    require(same, "{} is another one than it was", shown());
    return tensor;
  }

  std::unique_ptr<Db> db_;
  std::unique_ptr<DbCursor> cursor_;
  mutable std::mutex mutex_;
  std::string path_;
  int index_ = 0;
  DType dtype_ = DType::undefined;
  Shape first_, shape_;
  bool varies_ = false;
  std::vector<int64_t> lengths_;
  std::vector<std::string> keys_;  // or, of a database that cannot look for them,
  std::vector<Tensor> tensors_;
};

}  // namespace

std::vector<NamedColumn> open_database(const SourceName& source) {
  const size_t begin = source.path.find(':'), end = source.path.rfind(':');
  int index = -1;
  if (end > begin) {
    const char* const last = source.path.data() + source.path.size();
    const auto [rest, error] = std::from_chars(source.path.data() + end + 1, last, index);
    if (error != std::errc() || rest != last) index = -1;
  }
  if (source.name.empty() || index < 0)
    throw Error(fmt::format("data are given as \"{}\"", source.text),
                "name the tensors of a database as NAME=TYPE:PLACE:INDEX, such as x=lmdb:train.lmdb:0");
  return {{source.name, std::make_shared<DatabaseColumn>(source.path.substr(0, begin),
                                                         source.path.substr(begin + 1, end - begin - 1), index)}};
}

}  // namespace stepnet
