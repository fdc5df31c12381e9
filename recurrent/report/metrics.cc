#include "recurrent/report/metrics.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "core/io/files.h"
#include "core/io/json.h"

namespace stepnet {
namespace {

constexpr std::string_view kStart = "{\"iteration\":";
constexpr size_t kMostUnsynced = 1 << 20;  // bytes that wait for a checkpoint

// The iteration of a whole line of ours; -1 if it is something else, such as a line cut short, or one in which a loss
// of power left zeros.
int64_t iteration_of(std::string_view line) {
  return line.starts_with(kStart) ? json_integer(line, "iteration").value_or(-1) : -1;
}

// Calls fn(line, iteration) for each whole line of ours.
template <class Fn>
void each_line(std::string_view text, Fn fn) {
  for (size_t end = 0; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1))
    if (const int64_t iteration = iteration_of(text.substr(0, end)); iteration >= 0) fn(text.substr(0, end), iteration);
}

// Of the lines in `unsynced` any may be in the file, and others missing.
void make_whole(const FilePlace& place, int64_t last, std::string_view unsynced) {
  const FileReader file(place);
  const std::string text = file.text_at(0, file.size());
  std::set<std::string_view> last_lines;
  each_line(unsynced, [&](std::string_view line, int64_t) { last_lines.insert(line); });
  std::string kept;
  const auto keep = [&](std::string_view line, int64_t iteration) {
    if (iteration <= last) kept.append(line).push_back('\n');
  };
  each_line(text, [&](std::string_view line, int64_t iteration) {
    if (!last_lines.contains(line)) keep(line, iteration);
  });
  each_line(unsynced, keep);
  write_file(place, kept);
}

}  // namespace

double bits_per_char(double nats) { return nats / 0.69314718055994530942; }

MetricsLog::MetricsLog(const FilePlace& place, int64_t resumed_at, std::string_view unsynced, Unit unit)
    : name_("the metrics file " + place.str()), unit_(unit) {
  if (place.path().empty()) return;
  struct stat info {};
  const bool goes_on = resumed_at > 0 && look_at(place, info);
  if (goes_on) make_whole(place, resumed_at, unsynced);
  fd_ = open_to_write(place, O_WRONLY | O_CREAT | (goes_on ? O_APPEND : O_TRUNC), name_);
  if (goes_on) return;
  try {
    if (look_at(place, info) && S_ISREG(info.st_mode)) sync_folder(place.folder());
  } catch (const Error&) {
    ::close(fd_);
    throw;
  }
  if (!unsynced.empty()) line(std::string(unsynced));
}

MetricsLog::~MetricsLog() {
  if (fd_ >= 0) ::close(fd_);
}

// Where writing fails, most of what was written before can be synced all the same, so that less is to be saved.
void MetricsLog::line(const std::string& text) {
  if (fd_ < 0) return;
  try {
    if (!failure_) write_whole(fd_, text, name_);
  } catch (const Error& e) {
    sync();
    failure_ = e;
  }
  unsynced_ += text;
  if (unsynced_.size() > kMostUnsynced) sync();
}

void MetricsLog::sync() {
  if (fd_ < 0 || failure_) return;
  try {
    sync_file(fd_, name_);
    unsynced_.clear();
  } catch (const Error& e) {
    failure_ = e;
  }
}

void MetricsLog::training(int64_t iteration, double loss, double units_per_second, double lr, double seconds) {
  Json json = Json::object();
  json.add("iteration", iteration).add("loss", loss);
  if (unit_ == Unit::byte) json.add("bpc", bits_per_char(loss));
  json.add(unit_ == Unit::byte ? "chars_per_second" : "samples_per_second", Json::count(units_per_second));
  json.add("lr", rounded_to_digits(lr, 6)).add("seconds", rounded_to_decimals(seconds, 3));
  line(json.line() + "\n");
}

void MetricsLog::validation(int64_t iteration, double loss, const std::vector<std::pair<std::string, double>>& scores) {
  Json json = Json::object();
  json.add("iteration", iteration);
  if (unit_ == Unit::byte)
    json.add("validation_bpc", bits_per_char(loss));
  else
    json.add("validation_loss", loss);
  for (const auto& [name, value] : scores) json.add("validation_" + name, value);
  line(json.line() + "\n");
}

}  // namespace stepnet
