// The table of sources, and what all columns share. A new source is one row here and a file beside this one.
#include "core/data/column.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/data/sources.h"
#include "core/io/db.h"
#include "core/io/hash.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

struct Opener {
  std::string_view ending;
  std::vector<NamedColumn> (*open)(const SourceName& source);
};
constexpr Opener kOpeners[] = {
    {".npy", open_array},      {".npz", open_archive},     {".csv", open_table},  {".tsv", open_table},
    {".wav", open_recordings}, {".flac", open_recordings}, {".list", open_files}, {".txt", open_lines},
    {".h5", open_hdf5},        {".hdf5", open_hdf5},
};

const Opener* opener_of(std::string_view path) {
  for (const Opener& opener : kOpeners)
    if (path.ends_with(opener.ending)) return &opener;
  return nullptr;
}

// A database stands as TYPE:PLACE:INDEX.
bool is_database(const std::string& rest) {
  return std::ranges::any_of(db_types(), [&](const std::string& type) { return rest.starts_with(type + ":"); });
}

// Where the path ends: behind the first ending that is known, if what follows it says more than a path.
size_t end_of_path(const std::string& rest) {
  for (size_t at = 0; at < rest.size(); ++at)
    if ((rest[at] == ':' || rest[at] == '@') && opener_of(std::string_view(rest).substr(0, at))) return at;
  return rest.size();
}

SourceName parse(const std::string& text) {
  SourceName source{.text = text, .name = {}, .path = {}, .parts = {}, .id = {}};
  const size_t equals = text.find('=');
  const std::string rest = text.substr(equals == text.npos ? 0 : equals + 1);
  if (equals != text.npos) source.name = text.substr(0, equals);
  if (is_database(rest)) {
    source.path = rest;
    return source;
  }
  const size_t end = end_of_path(rest);
  source.path = rest.substr(0, end);
  if (end == rest.size()) return source;
  const std::string more = rest.substr(end + 1);
  // What stands behind @ in a path of its own may have a colon, but a column's name no @.
  const size_t at = rest[end] == '@' ? 0 : more.rfind('@');
  if (rest[end] == ':') source.parts = more.substr(0, at);
  if (rest[end] == '@')
    source.id = more;
  else if (at != more.npos)
    source.id = more.substr(at + 1);
  const bool has_id = rest[end] == '@' || at != more.npos, has_parts = rest[end] == ':';
  if ((has_id && source.id.empty()) || (has_parts && source.parts.empty())) refuse_source(source);
  return source;
}

}  // namespace

void refuse_source(const SourceName& source) {
  throw Error(fmt::format("data are given as \"{}\"", source.text),
              "name an array as NAME=FILE.npy, a table as FILE.csv or FILE.tsv, or some of its columns as "
              "NAME=FILE.csv:COLUMN,COLUMN; docs/training.md has all forms");
}

std::vector<std::string> split_source(const std::string& text, char by) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == by)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

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

size_t sample_bytes(const Column& column) {
  return static_cast<size_t>(column.shape().size()) * dtype_size(column.dtype());
}

std::vector<NamedColumn> open_columns(const std::string& text) {
  const SourceName source = parse(text);
  if (is_database(source.path)) return open_database(source);
  if (has_wildcard(source.path)) return open_files(source);
  const Opener* opener = opener_of(source.path);
  if (!opener) refuse_source(source);
  return opener->open(source);
}

std::string fingerprint_of(const std::vector<NamedColumn>& columns) {
  constexpr size_t kMostBytes = 1 << 23;  // of one column
  std::string text;
  for (const NamedColumn& named : columns) {
    const Column& column = *named.column;
    const size_t bytes = sample_bytes(column);
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
