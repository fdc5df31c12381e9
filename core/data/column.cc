#include "core/data/column.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "core/data/csv.h"
#include "core/data/sequences.h"
#include "core/io/hash.h"
#include "core/io/npy.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

size_t bytes_of(const Column& column) {
  return static_cast<size_t>(column.shape().size()) * dtype_size(column.dtype());
}

class ArrayColumn final : public Column {
 public:
  explicit ArrayColumn(const FilePlace& place) : file_(place) {
    require(file_.shape().rank() >= 1, "{} holds one value, but its first dimension must count samples", file_.path());
    if (!file_.has_rows())
      throw Error(fmt::format("{} is in Fortran order, in which samples do not stand together", file_.path()),
                  "save it with numpy.ascontiguousarray");
    shape_ = Shape(std::vector<int64_t>(file_.shape().begin() + 1, file_.shape().end()));
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

// Columns of a table, side by side.
class TableColumn final : public Column {
 public:
  TableColumn(std::string file, const std::vector<const std::vector<double>*>& columns, const Shape& shape)
      : file_(std::move(file)), shape_(shape), samples_(static_cast<int64_t>(columns.front()->size())) {
    values_.reserve(columns.size() * columns.front()->size());
    for (size_t i = 0; i < columns.front()->size(); ++i)
      for (const std::vector<double>* column : columns) values_.push_back((*column)[i]);
  }

  DType dtype() const override { return DType::float64; }
  const Shape& shape() const override { return shape_; }
  int64_t samples() const override { return samples_; }
  const std::string& file() const override { return file_; }
  void read(int64_t first, int64_t count, std::byte* to) const override {
    if (count > 0)
      std::memcpy(to, values_.data() + first * shape_.size(), static_cast<size_t>(count) * bytes_of(*this));
  }

 private:
  std::string file_;
  Shape shape_;
  int64_t samples_ = 0;
  std::vector<double> values_;
};

// How many rows each sequence has: rows that follow one another and have the same value are one.
std::vector<int64_t> runs_of(const std::vector<double>& ids, const std::string& file) {
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < ids.size(); ++i)
    if (std::isnan(ids[i]))
      fail("row {} of {} has nothing in the column by which rows are sequences", i + 1, file);
    else if (i > 0 && ids[i] == ids[i - 1])
      ++lengths.back();
    else
      lengths.push_back(1);
  return lengths;
}

std::vector<int64_t> read_lengths(const FilePlace& place) {
  const Tensor lengths = read_npy(place);
  require(lengths.rank() == 1 && !is_floating(lengths.dtype()),
          "{} must have a whole number for each sequence, its rows, but has {}", place.str(), lengths);
  std::vector<int64_t> values;
  const bool read = with_type(lengths.dtype(), [&]<class T>(T) {
    for (const T length : lengths.span<T>()) values.push_back(static_cast<int64_t>(length));
  });
  require(read, "{} must have whole numbers, but has {}", place.str(), lengths);
  return values;
}

bool is_table(const std::string& path) { return path.ends_with(".csv") || path.ends_with(".tsv"); }

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == by)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

const std::vector<double>& column_of(const Table& table, const std::string& name, const std::string& file) {
  const auto found = std::ranges::find(table.names, name);
  require(found != table.names.end(), "{} has no column \"{}\".{}", file, name, suggest(name, table.names));
  return table.columns[static_cast<size_t>(found - table.names.begin())];
}

}  // namespace

namespace {

// What follows the path of `NAME=PATH:PARTS@ID`.
struct Place {
  std::string name, path, parts, id;
};

// The path before a colon, if that is one of a file that has parts.
std::string without_parts(const std::string& path) {
  const std::string before = path.substr(0, path.rfind(':'));
  return is_table(before) || before.ends_with(".npy") ? before : path;
}

Place place_of(const std::string& text) {
  Place place;
  const size_t equals = text.find('=');
  place.path = text.substr(equals == text.npos ? 0 : equals + 1);
  if (equals != text.npos) place.name = text.substr(0, equals);
  const size_t at = place.path.rfind('@');
  if (at != text.npos && is_table(without_parts(place.path.substr(0, at)))) {
    place.id = place.path.substr(at + 1);
    place.path.resize(at);
  }
  const std::string path = without_parts(place.path);
  if (path != place.path) place.parts = place.path.substr(path.size() + 1);
  place.path = path;
  return place;
}

std::vector<NamedColumn> open_table(const Place& place, const std::string& text) {
  const FilePlace file(place.path);
  const Table table = read_table(file);
  const std::vector<int64_t> lengths =
      place.id.empty() ? std::vector<int64_t>() : runs_of(column_of(table, place.id, file.str()), file.str());
  const auto as_asked = [&](std::shared_ptr<const Column> column) {
    return place.id.empty() ? column : sequences(std::move(column), lengths, fmt::format("{} by {}", text, place.id));
  };
  std::vector<NamedColumn> all;
  if (!place.parts.empty()) {
    std::vector<const std::vector<double>*> columns;
    for (const std::string& part : split(place.parts, ',')) columns.push_back(&column_of(table, part, file.str()));
    const Shape shape{static_cast<int64_t>(columns.size())};
    all.push_back({place.name, as_asked(std::make_shared<TableColumn>(file.str(), columns, shape))});
    return all;
  }
  for (size_t c = 0; c < table.names.size(); ++c)
    if (table.names[c] != place.id)
      all.push_back({table.names[c], as_asked(std::make_shared<TableColumn>(file.str(), std::vector{&table.columns[c]},
                                                                            Shape(std::vector<int64_t>{})))});
  return all;
}

}  // namespace

Shape shape_of(const Column& column, int64_t sample) {
  if (!column.varies()) return column.shape();
  std::vector<int64_t> dims(column.shape().begin(), column.shape().end());
  dims[0] = column.length(sample);
  return Shape(dims);
}

int64_t features_of(const Column& column) {
  const Shape& shape = column.shape();
  return shape.rank() > (column.has_time() ? 1 : 0) ? shape[shape.rank() - 1] : 1;
}

std::vector<NamedColumn> open_columns(const std::string& text) {
  const Place place = place_of(text);
  if (is_table(place.path) && place.name.empty() == place.parts.empty()) return open_table(place, text);
  if (!place.path.ends_with(".npy") || place.name.empty())
    throw Error(fmt::format("data are given as \"{}\"", text),
                "name an array as NAME=FILE.npy, a table as FILE.csv or FILE.tsv, or some of its columns as "
                "NAME=FILE.csv:COLUMN,COLUMN");
  std::shared_ptr<const Column> rows = std::make_shared<ArrayColumn>(FilePlace(place.path));
  if (!place.parts.empty()) {
    const FilePlace lengths(place.parts);
    rows = sequences(std::move(rows), read_lengths(lengths), lengths.str());
  }
  return {{place.name, std::move(rows)}};
}

std::string fingerprint_of(const std::vector<NamedColumn>& columns) {
  constexpr size_t kMostBytes = 1 << 23;  // of one column
  std::string text;
  for (const NamedColumn& named : columns) {
    const Column& column = *named.column;
    const size_t bytes = bytes_of(column);
    const auto most = static_cast<int64_t>(std::max<size_t>(64, kMostBytes / std::max<size_t>(bytes, 1)));
    const int64_t rows = std::min(column.samples(), most);
    std::vector<std::byte> row(bytes);
    uint64_t hash = kEmptyHash;
    if (column.varies())
      for (int64_t i = 0; i < column.samples(); ++i) {
        const int64_t length = column.length(i);
        hash = hash_on(hash, std::as_bytes(std::span(&length, 1)));
      }
    for (int64_t i = 0; i < rows; ++i) {
      // The first and the last row, and others evenly between them.
      const int64_t sample =
          rows == 1 ? 0 : static_cast<int64_t>(static_cast<__int128>(column.samples() - 1) * i / (rows - 1));
      column.read(sample, 1, row.data());
      hash = hash_on(hash, std::span(row).first(static_cast<size_t>(shape_of(column, sample).size()) *
                                                dtype_size(column.dtype())));
    }
    text += fmt::format("{}{}: {} samples of {}{}, {:016x}", text.empty() ? "" : "; ", named.name, column.samples(),
                        dtype_name(column.dtype()), column.shape(), hash);
  }
  return text;
}

}  // namespace stepnet
