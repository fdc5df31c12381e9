// Several files as one column of sequences. At any time one of them is open, so there may be any number.
#include <fnmatch.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "core/data/sequences.h"
#include "core/data/sources.h"
#include "core/io/byte_source.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

// The rows of one file; how many there are a second, 0 where they have no times.
Recording open_rows(const std::string& path) {
  if (path.ends_with(".wav") || path.ends_with(".flac")) return open_recording(path);
  require(path.ends_with(".npy"), "{} is neither .npy nor .wav nor .flac, of which files of sequences are", path);
  return {open_columns("rows=" + path).front().column, 0};
}

// The rows of all files, one after another.
class FilesColumn final : public Column {
 public:
  FilesColumn(std::vector<std::string> paths, std::string name) : paths_(std::move(paths)), name_(std::move(name)) {
    const Recording first = open_rows(paths_.front());
    dtype_ = first.rows->dtype();
    shape_ = first.rows->shape();
    for (const std::string& path : paths_) {
      const Recording one = open_rows(path);
      require(one.rows->dtype() == dtype_ && one.rows->shape() == shape_, "{} has rows of {}{}, but {} of {}{}", path,
              dtype_name(one.rows->dtype()), one.rows->shape(), paths_.front(), dtype_name(dtype_), shape_);
      if (one.rate != first.rate)
        throw Error(fmt::format("{} has {} frames a second, but {} has {}", path, one.rate, paths_.front(), first.rate),
                    "bring all recordings to one rate before");
      lengths_.push_back(one.rows->samples());
      starts_.push_back(starts_.back() + one.rows->samples());
    }
  }

  const std::vector<int64_t>& lengths() const { return lengths_; }
  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }
  int64_t samples() const override { return starts_.back(); }
  const std::string& file() const override { return name_; }
  void read(int64_t first, int64_t count, std::byte* to) const override {
    auto at = static_cast<size_t>(std::ranges::upper_bound(starts_, first) - starts_.begin()) - 1;
    for (; count > 0; ++at) {
      const int64_t rows = std::min(count, starts_[at + 1] - first);
      if (rows == 0) continue;
      opened(at)->read(first - starts_[at], rows, to);
      to += static_cast<size_t>(rows) * sample_bytes(*this);
      first += rows;
      count -= rows;
    }
  }

 private:
  std::shared_ptr<const Column> opened(size_t at) const {
    const std::lock_guard lock(mutex_);
    if (last_ && last_at_ == at) return last_;
    std::shared_ptr<const Column> rows = open_rows(paths_[at]).rows;
    require(rows->samples() == lengths_[at] && rows->shape() == shape_ && rows->dtype() == dtype_,
            "{} is another file than it was", paths_[at]);
    last_ = std::move(rows);
    last_at_ = at;
    return last_;
  }

  std::vector<std::string> paths_;
  std::string name_;
  DType dtype_ = DType::float32;
  Shape shape_;
  std::vector<int64_t> lengths_, starts_ = {0};
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Column> last_;
  mutable size_t last_at_ = 0;
};

std::string file_name_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? path : path.substr(slash + 1);
}

// In the order of their names, so that it is the same everywhere.
std::vector<std::string> matching(const std::string& pattern) {
  const FilePlace folder = FilePlace(pattern).folder();
  const std::string wanted = file_name_of(pattern);
  std::vector<std::string> paths;
  for (const std::string& name : names_in(folder))
    if (::fnmatch(wanted.c_str(), name.c_str(), FNM_PERIOD) == 0)
      paths.push_back(pattern.substr(0, pattern.size() - wanted.size()) + name);
  std::ranges::sort(paths);
  require(!paths.empty(), "no file is named like {}", pattern);
  return paths;
}

// Paths that are not absolute start at the folder of the list.
std::vector<std::string> listed(const std::string& path) {
  const ByteSourcePtr list = file_bytes(path);
  const std::string folder = path.substr(0, path.size() - file_name_of(path).size());
  std::vector<std::string> paths;
  for (std::string& line : split_source(list->text_at(0, list->size()), '\n')) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) paths.push_back(line.starts_with('/') ? line : folder + line);
  }
  require(!paths.empty(), "{} names no files", path);
  return paths;
}

}  // namespace

bool has_wildcard(const std::string& path) { return file_name_of(path).find('*') != std::string::npos; }

std::vector<NamedColumn> open_files(const SourceName& source) {
  if (source.name.empty() || !source.parts.empty() || !source.id.empty()) refuse_source(source);
  auto rows = std::make_shared<FilesColumn>(has_wildcard(source.path) ? matching(source.path) : listed(source.path),
                                            source.path);
  const std::vector<int64_t> lengths = rows->lengths();
  return {{source.name, sequences(std::move(rows), lengths, source.path)}};
}

}  // namespace stepnet
