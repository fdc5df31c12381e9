#include "tools/commands/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "recurrent/report/metrics.h"
#include "stepnet/profiler.h"
#include "tools/commands/cli/printing.h"

namespace stepnet::tools {
namespace {

constexpr double kRedraw = 0.1;      // seconds, on a terminal
constexpr double kPlainEvery = 5.0;  // seconds, elsewhere
constexpr int kBarWidth = 24;        // at the most
constexpr int kColumns = 80;         // of a terminal that does not say

constexpr const char* kEmptyLine = "\r\033[K";  // the terminal's codes to begin its line anew

// The codes come from here alone, the text may have names in it. Training goes on, and saves, where nobody can read
// this any more: after SIGHUP the terminal is gone.
void say(const std::string& text, const char* codes = "") {
  const std::string line = codes + visible_text(text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

int terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kColumns;
}

std::string bar(double share, int width) {
  if (width < 1) return "";
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * width);
  return "[" + std::string(full, '#') + std::string(width - full, '.') + "] ";
}

// One line, never a full one: a terminal would wrap it, and the next drawing would leave its rest.
std::string fitted(double share, const std::string& facts, int columns) {
  const int room = columns - 1;
  const auto length = static_cast<int>(facts.size());
  constexpr int kFrame = 3, kUsualLength = 64;  // so that the bar keeps its width while numbers grow and shrink
  return (bar(share, std::min(kBarWidth, room - std::max(length, kUsualLength) - kFrame)) + facts)
      .substr(0, std::max(0, room));
}

std::string facts(const TrainProgress& p, double loss) {
  const std::string of = p.total > 0 ? fmt::format("/{}", p.total) : "";
  std::string text = fmt::format("{}{}  loss {:.3f}  ", p.iteration, of, loss);
  text += p.samples_per_second > 0
              ? fmt::format("{:.0f} samples/s", p.samples_per_second)
              : fmt::format("{:.3f} bits/char  {:.0f} chars/s", bits_per_char(loss), p.chars_per_second);
  if (p.seconds_left >= 0) text += fmt::format("  {} left", clock_text(p.seconds_left));
  return text;
}

}  // namespace

std::string clock_text(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

ProgressDisplay::ProgressDisplay(bool quiet, double wanted_seconds)
    : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0), wanted_seconds_(wanted_seconds) {}

ProgressDisplay::~ProgressDisplay() { clear(); }

void ProgressDisplay::show(const TrainProgress& p) {
  if (quiet_) return;
  smooth_loss_ = smooth_loss_ == 0 ? p.loss : 0.98 * smooth_loss_ + 0.02 * p.loss;
  const double now = now_seconds();
  if (now < next_) return;
  const bool first = next_ == 0;
  next_ = now + (terminal_ ? kRedraw : kPlainEvery);
  if (terminal_ || !first) draw(p);
}

void ProgressDisplay::draw(const TrainProgress& p) {
  if (!terminal_) {
    say(fmt::format("iteration {}\n", facts(p, smooth_loss_)));
    return;
  }
  const double share = p.total > 0 ? static_cast<double>(p.iteration) / static_cast<double>(p.total)
                                   : p.seconds / std::max(wanted_seconds_, 1e-9);
  say(fitted(share, facts(p, smooth_loss_), terminal_columns()), kEmptyLine);
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressDisplay::clear() {
  if (drawn_) say("", kEmptyLine);
  drawn_ = false;
}

void ProgressDisplay::line(const std::string& text) {
  if (quiet_) return;
  clear();
  say(text + "\n");
}

}  // namespace stepnet::tools
