#include "core/data/csv.h"

#include <csv.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <limits>
#include <memory>

#include "core/io/files.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

constexpr size_t kChunk = 1 << 16;

// Whether all of the text is a finite number.
bool is_number(std::string_view text, double& value) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

// What the parser calls. Exceptions must not pass through it, so the first one waits.
class TableReader {
 public:
  explicit TableReader(std::string path) : path_(std::move(path)) {}

  void field(std::string_view text) {
    if (failure_) return;
    try {
      if (!has_names_)
        add_name(std::string(text));
      else
        add_value(text);
      ++at_;
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  void end_row() {
    if (failure_) return;
    try {
      if (!has_names_) {
        has_names_ = true;
        columns_.resize(names_.size());
      } else {
        require(at_ == names_.size(), "row {} of {} has {} fields, but there are {} names", rows_ + 1, path_, at_,
                names_.size());
        ++rows_;
      }
      at_ = 0;
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  Table table() const {
    require(has_names_ && rows_ > 0, "{} has no rows of numbers below a row of names", path_);
    return {names_, columns_};
  }

 private:
  void add_name(std::string name) {
    require(!name.empty(), "{} has no name for column {}: its first row must name all", path_, at_ + 1);
    require(std::ranges::count(names_, name) == 0, "{} names two columns \"{}\"", path_, name);
    names_.push_back(std::move(name));
  }

  void add_value(std::string_view text) {
    if (at_ >= names_.size()) return;  // counted, and refused at the row's end
    double value = std::numeric_limits<double>::quiet_NaN();
    require(text.empty() || is_number(text, value), "row {} of {} has \"{}\" where column \"{}\" needs a finite number",
            rows_ + 1, path_, text, names_[at_]);
    columns_[at_].push_back(value);
  }

  std::string path_;
  std::vector<std::string> names_;
  std::vector<std::vector<double>> columns_;
  bool has_names_ = false;
  size_t at_ = 0;     // the column
  int64_t rows_ = 0;  // read so far
  std::exception_ptr failure_;
};

void on_field(void* text, size_t size, void* reader) {
  static_cast<TableReader*>(reader)->field({static_cast<const char*>(text), size});
}
void on_row(int, void* reader) { static_cast<TableReader*>(reader)->end_row(); }
int is_space(unsigned char c) { return c == ' ' ? 1 : 0; }  // tabs may part fields

}  // namespace

Table read_table(const FilePlace& place) {
  const FileReader file(place);
  TableReader reader(file.path());
  csv_parser parser{};
  require(csv_init(&parser, CSV_STRICT | CSV_STRICT_FINI) == 0, "no memory to read {}", file.path());
  const std::unique_ptr<csv_parser, void (*)(csv_parser*)> freed(&parser, csv_free);
  csv_set_delim(&parser, place.path().ends_with(".tsv") ? CSV_TAB : CSV_COMMA);
  csv_set_space_func(&parser, is_space);
  const auto require_parsed = [&](bool parsed) {
    reader.rethrow();
    require(parsed, "{} is no table: {}", file.path(), csv_strerror(csv_error(&parser)));
  };
  constexpr std::string_view kMark = "\xEF\xBB\xBF";  // what some programs begin UTF-8 with
  const bool is_marked = file.size() >= kMark.size() && file.text_at(0, kMark.size()) == kMark;
  for (uint64_t at = is_marked ? kMark.size() : 0; at < file.size(); at += kChunk) {
    const std::string text = file.text_at(at, std::min<uint64_t>(kChunk, file.size() - at));
    require_parsed(csv_parse(&parser, text.data(), text.size(), on_field, on_row, &reader) == text.size());
  }
  require_parsed(csv_fini(&parser, on_field, on_row, &reader) == 0);
  return reader.table();
}

}  // namespace stepnet
