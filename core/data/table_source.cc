// Tables as columns.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/data/csv.h"
#include "core/data/sequences.h"
#include "core/data/sources.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

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
      std::memcpy(to, values_.data() + first * shape_.size(), static_cast<size_t>(count) * sample_bytes(*this));
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

const std::vector<double>& column_of(const Table& table, const std::string& name, const std::string& file) {
  const auto found = std::ranges::find(table.names, name);
  require(found != table.names.end(), "{} has no column \"{}\".{}", file, name, suggest(name, table.names));
  return table.columns[static_cast<size_t>(found - table.names.begin())];
}

}  // namespace

std::vector<NamedColumn> open_table(const SourceName& source) {
  if (source.name.empty() != source.parts.empty()) refuse_source(source);
  const FilePlace file(source.path);
  const Table table = read_table(file);
  const std::vector<int64_t> lengths =
      source.id.empty() ? std::vector<int64_t>() : runs_of(column_of(table, source.id, file.str()), file.str());
  const auto as_asked = [&](std::shared_ptr<const Column> column) {
    return source.id.empty() ? column
                             : sequences(std::move(column), lengths, fmt::format("{} by {}", source.text, source.id));
  };
  std::vector<NamedColumn> all;
  if (!source.parts.empty()) {
    std::vector<const std::vector<double>*> columns;
    for (const std::string& part : split_source(source.parts, ','))
      columns.push_back(&column_of(table, part, file.str()));
    const Shape shape{static_cast<int64_t>(columns.size())};
    all.push_back({source.name, as_asked(std::make_shared<TableColumn>(file.str(), columns, shape))});
    return all;
  }
  for (size_t c = 0; c < table.names.size(); ++c)
    if (table.names[c] != source.id)
      all.push_back({table.names[c], as_asked(std::make_shared<TableColumn>(file.str(), std::vector{&table.columns[c]},
                                                                            Shape(std::vector<int64_t>{})))});
  return all;
}

}  // namespace stepnet
