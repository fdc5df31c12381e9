// Formats of a row.
#include "tools/bench/report.h"

#include <fmt/format.h>

#include <cstdio>

#include "core/error.h"

namespace stepnet::bench {
namespace {

constexpr const char* kTitle =
    "net               T   B    I    H layers threads mode           ms   median peer      peer_ms   median ratio "
    "bound\n";

std::string table_line(const Row& r) {
  return fmt::format(
      "{:<14} {:>4} {:>3} {:>4} {:>4} {:>6} {:>7} {:<8} {:>8.3f} {:>8.3f} {:<8} {:>8.3f} {:>8.3f} {:>5.2f} {:>4.0f}%\n",
      r.net, r.size.steps, r.size.batch, r.size.inputs, r.size.hidden, r.size.layers, r.threads, mode_name(r.mode),
      r.times.minimum, r.times.median, r.peer, r.peer_times.minimum, r.peer_times.median, r.ratio(),
      100 * r.bound_ms / r.times.minimum);
}

// Names of nets and peers are our own and need no escapes.
std::string json_line(const Row& r) {
  return fmt::format(
      R"({{"net": "{}", "T": {}, "B": {}, "I": {}, "H": {}, "layers": {}, "threads": {}, "mode": "{}", "ms": {:.4f}, )"
      R"("peer": "{}", "peer_ms": {:.4f}, "ratio": {:.4f}}})"
      "\n",
      r.net, r.size.steps, r.size.batch, r.size.inputs, r.size.hidden, r.size.layers, r.threads, mode_name(r.mode),
      r.times.minimum, r.peer, r.peer_times.minimum, r.ratio());
}

}  // namespace

Report::Report(const std::string& json_path) : path_(json_path) {
  if (path_.empty()) return;
  json_.open(path_, std::ios::trunc);
  require(json_.is_open(), "cannot write {}", path_);
}

void Report::add(const Row& row) {
  if (!begun_) fmt::print("{}", kTitle);
  begun_ = true;
  fmt::print("{}", table_line(row));
  std::fflush(stdout);
  if (!path_.empty()) json_ << json_line(row) << std::flush;
}

void Report::close() {
  if (path_.empty()) return;
  json_.close();
  require(json_.good(), "{} could not be written in full", path_);
}

}  // namespace stepnet::bench
