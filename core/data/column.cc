#include "core/data/column.h"

#include <algorithm>
#include <cstring>

#include "core/data/csv.h"
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
  void read(int64_t sample, std::byte* to) const override { file_.read(sample * shape_.size(), shape_.size(), to); }

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
  void read(int64_t sample, std::byte* to) const override {
    const size_t bytes = bytes_of(*this);
    std::memcpy(to, values_.data() + sample * shape_.size(), bytes);
  }

 private:
  std::string file_;
  Shape shape_;
  int64_t samples_ = 0;
  std::vector<double> values_;
};

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

std::vector<NamedColumn> open_columns(const std::string& text) {
  const size_t equals = text.find('=');
  std::string path = text.substr(equals == text.npos ? 0 : equals + 1);
  const std::string name = equals == text.npos ? "" : text.substr(0, equals);
  std::vector<std::string> parts;
  if (const size_t colon = path.rfind(':'); colon != path.npos && is_table(path.substr(0, colon))) {
    parts = split(path.substr(colon + 1), ',');
    path.resize(colon);
  }
  const FilePlace place(path);
  if (path.ends_with(".npy") && !name.empty()) return {{name, std::make_shared<ArrayColumn>(place)}};
  if (!is_table(path) || name.empty() != parts.empty())
    throw Error(fmt::format("data are given as \"{}\"", text),
                "name an array as NAME=FILE.npy, a table as FILE.csv or FILE.tsv, or some of its columns as "
                "NAME=FILE.csv:COLUMN,COLUMN");
  const Table table = read_table(place);
  if (!parts.empty()) {
    std::vector<const std::vector<double>*> columns;
    for (const std::string& part : parts) columns.push_back(&column_of(table, part, place.str()));
    return {{name, std::make_shared<TableColumn>(place.str(), columns, Shape{static_cast<int64_t>(parts.size())})}};
  }
  std::vector<NamedColumn> all;
  for (size_t c = 0; c < table.names.size(); ++c)
    all.push_back({table.names[c], std::make_shared<TableColumn>(place.str(), std::vector{&table.columns[c]},
                                                                 Shape(std::vector<int64_t>{}))});
  return all;
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
    for (int64_t i = 0; i < rows; ++i) {
      // The first and the last row, and others evenly between them.
      const int64_t sample =
          rows == 1 ? 0 : static_cast<int64_t>(static_cast<__int128>(column.samples() - 1) * i / (rows - 1));
      column.read(sample, row.data());
      hash = hash_on(hash, row);
    }
    text += fmt::format("{}{}: {} samples of {}{}, {:016x}", text.empty() ? "" : "; ", named.name, column.samples(),
                        dtype_name(column.dtype()), column.shape(), hash);
  }
  return text;
}

}  // namespace stepnet
