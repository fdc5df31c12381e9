#include "recurrent/train/metrics.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <string_view>

#include "core/error.h"
#include "core/io/atomic_file.h"
#include "core/io/file_reader.h"

namespace stepnet {
namespace {

constexpr std::string_view kStart = "{\"iteration\":";

// The iteration of a whole line of ours; -1 if it is something else, such as a line cut short.
int64_t iteration_of(std::string_view line) {
  if (line.substr(0, kStart.size()) != kStart || line.back() != '}') return -1;
  int64_t iteration = -1;
  std::from_chars(line.data() + kStart.size(), line.data() + line.size(), iteration);
  return iteration;
}

void drop_later_lines(const FilePlace& place, int64_t last) {
  const FileReader file(place);
  const std::string text = file.text_at(0, file.size());
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    const int64_t iteration = line.empty() ? -1 : iteration_of(line);
    if (iteration >= 0 && iteration <= last) kept.append(line).push_back('\n');
    begin = end + 1;
  }
  write_file(place, kept);
}

}  // namespace

double bits_per_char(double nats) { return nats / 0.69314718055994530942; }

MetricsLog::MetricsLog(const FilePlace& place, int64_t resumed_at) : path_(place.str()), file_(nullptr, std::fclose) {
  if (place.path().empty()) return;
  struct stat info {};
  const bool goes_on = resumed_at > 0 && PlaceFolder(place).look(info) == 0;
  if (goes_on) drop_later_lines(place, resumed_at);
  const int flags = O_WRONLY | O_CREAT | (goes_on ? O_APPEND : O_TRUNC);
  const int fd = place.confined() ? open_regular(place, flags) : PlaceFolder(place).open(flags, 0666);
  file_.reset(fd < 0 ? nullptr : ::fdopen(fd, goes_on ? "a" : "w"));
  require(file_ != nullptr, "cannot write the metrics file {}: {}", path_, system_text(errno));
}

void MetricsLog::line(const std::string& text) {
  if (!file_) return;
  const bool ok = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() && std::fflush(file_.get()) == 0;
  require(ok, "cannot write the metrics file {}: {}", path_, system_text(errno));
}

namespace {

// What is not finite is no number of JSON.
std::string number(double value, const char* format = "{}") {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "null";
}

}  // namespace

void MetricsLog::training(int64_t iteration, double loss, double chars_per_second, double lr, double seconds) {
  line(fmt::format("{}{},\"loss\":{},\"bpc\":{},\"chars_per_second\":{},\"lr\":{},\"seconds\":{}}}\n", kStart,
                   iteration, number(loss), number(bits_per_char(loss)), number(chars_per_second, "{:.0f}"),
                   number(lr, "{:.6g}"), number(seconds, "{:.3f}")));
}

void MetricsLog::validation(int64_t iteration, double loss) {
  line(fmt::format("{}{},\"validation_bpc\":{}}}\n", kStart, iteration, number(bits_per_char(loss))));
}

}  // namespace stepnet
