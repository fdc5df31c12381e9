// Arrays as columns: .npy files, those in .npz archives, and those in memory.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/data/sequences.h"
#include "core/data/sources.h"
#include "core/io/npy.h"
#include "core/io/zip.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

// The shape of one of the samples that the first dimension counts.
Shape sample_shape(const Shape& all, const std::string& name) {
  require(all.rank() >= 1, "{} holds one value, but its first dimension must count samples", name);
  return Shape(std::vector<int64_t>(all.begin() + 1, all.end()));
}

class ArrayColumn final : public Column {
 public:
  explicit ArrayColumn(ByteSourcePtr bytes)
      : file_(std::move(bytes)), shape_(sample_shape(file_.shape(), file_.path())) {
    if (!file_.has_rows())
      throw Error(fmt::format("{} is in Fortran order, in which samples do not stand together", file_.path()),
                  "save it with numpy.ascontiguousarray");
  }

  DType dtype() const override { return file_.dtype(); }
  const Shape& shape() const override { return shape_; }
  int64_t samples() const override { return file_.shape()[0]; }
  const std::string& file() const override { return file_.path(); }
  void read(int64_t first, int64_t count, std::byte* to) const override {
    file_.read(first * shape_.size(), count * shape_.size(), to);
  }

 private:
  NpyFile file_;
  Shape shape_;
};

class TensorColumn final : public Column {
 public:
  TensorColumn(Tensor values, std::string name)
      : values_(std::move(values)), name_(std::move(name)), shape_(sample_shape(values_.shape(), name_)) {}

  DType dtype() const override { return values_.dtype(); }
  const Shape& shape() const override { return shape_; }
  int64_t samples() const override { return values_.dim(0); }
  const std::string& file() const override { return name_; }
  void read(int64_t first, int64_t count, std::byte* to) const override {
    const size_t bytes = sample_bytes(*this);
    if (bytes > 0)
      std::memcpy(to, values_.raw() + static_cast<size_t>(first) * bytes, static_cast<size_t>(count) * bytes);
  }

 private:
  Tensor values_;
  std::string name_;
  Shape shape_;
};

std::vector<int64_t> read_lengths(const ByteSourcePtr& bytes) {
  const Tensor lengths = read_npy(NpyFile(bytes));
  require(lengths.rank() == 1 && !is_floating(lengths.dtype()),
          "{} must have a whole number for each sequence, its rows, but has {}", bytes->name(), lengths);
  std::vector<int64_t> values;
  const bool read = with_type(lengths.dtype(), [&]<class T>(T) {
    for (const T length : lengths.span<T>()) values.push_back(static_cast<int64_t>(length));
  });
  require(read, "{} must have whole numbers, but has {}", bytes->name(), lengths);
  return values;
}

std::shared_ptr<const Column> open_ragged(const ByteSourcePtr& rows, const ByteSourcePtr& lengths) {
  return sequences(std::make_shared<ArrayColumn>(rows), read_lengths(lengths), lengths->name());
}

constexpr std::string_view kEnding = ".npy";  // of members

// The names of an archive's arrays, as numpy.savez was given them.
std::vector<std::string> arrays_in(const ZipFile& archive) {
  std::vector<std::string> names;
  for (const std::string& name : archive.names())
    if (name.ends_with(kEnding)) names.push_back(name.substr(0, name.size() - kEnding.size()));
  return names;
}

ByteSourcePtr open_member(const ZipFile& archive, const std::string& array) {
  const std::vector<std::string> names = arrays_in(archive);
  require(std::ranges::count(names, array) > 0, "{} has no array \"{}\".{}", archive.path(), array,
          suggest(array, names));
  return archive.open(array + std::string(kEnding));
}

}  // namespace

NamedColumn array_column(const std::string& name, const Tensor& values) {
  require(values.defined() && values.dtype() != DType::string, "\"{}\" is {}, which has no numbers", name, values);
  return {name, std::make_shared<TensorColumn>(on_device(values, {}), fmt::format("the array \"{}\"", name))};
}

std::vector<NamedColumn> open_array(const SourceName& source) {
  if (source.name.empty() || !source.id.empty()) refuse_source(source);
  const ByteSourcePtr rows = file_bytes(source.path);
  if (source.parts.empty()) return {{source.name, std::make_shared<ArrayColumn>(rows)}};
  return {{source.name, open_ragged(rows, file_bytes(source.parts))}};
}

std::vector<NamedColumn> open_archive(const SourceName& source) {
  if (source.name.empty() != source.parts.empty() || !source.id.empty()) refuse_source(source);
  const ZipFile archive(source.path);
  if (!source.parts.empty()) {
    const std::vector<std::string> parts = split_source(source.parts, ':');
    if (parts.size() > 2) refuse_source(source);
    const ByteSourcePtr rows = open_member(archive, parts[0]);
    if (parts.size() == 1) return {{source.name, std::make_shared<ArrayColumn>(rows)}};
    return {{source.name, open_ragged(rows, open_member(archive, parts[1]))}};
  }
  std::vector<NamedColumn> all;
  for (const std::string& array : arrays_in(archive)) try {
      all.push_back({array, std::make_shared<ArrayColumn>(open_member(archive, array))});
    } catch (const Error& e) {
      throw Error(e.fact(), fmt::format("give the arrays that are samples one by one, as NAME={}:ARRAY", source.path));
    }
  require(!all.empty(), "{} has no arrays", archive.path());
  return all;
}

}  // namespace stepnet
