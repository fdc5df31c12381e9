// Formats of a row, and the summary.
#include "tools/bench/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>

#include "stepnet/error.h"

namespace stepnet::bench {
namespace {

constexpr const char* kTitle =
    "net                T   B    I    H layers threads mode              ms   median peer                 peer_ms   "
    "median ratio bound products\n";

// Of the time that was measured; "-" where it is not known.
std::string percent(double part, double whole) {
  return part > 0 ? fmt::format("{:.0f}%", 100 * part / whole) : std::string("-");
}

std::string table_line(const Row& r) {
  std::string line = fmt::format(
      "{:<15} {:>4} {:>3} {:>4} {:>4} {:>6} {:>7} {:<11} {:>8.3f} {:>8.3f} {:<18} {:>9.3f} {:>8.3f} {:>5.2f} {:>5} "
      "{:>8}",
      r.net, r.size.steps, r.size.batch, r.size.inputs, r.size.hidden, r.size.layers, r.threads, r.mode,
      r.times.minimum, r.times.median, r.peer, r.peer_times.minimum, r.peer_times.median, r.ratio(),
      percent(r.bound_ms, r.times.minimum), percent(r.products_ms, r.times.minimum));
  if (!r.peer_setting.empty()) line += fmt::format("  peer: {}", r.peer_setting);
  if (r.overhead_ns != 0) line += fmt::format("  {:.0f} ns per operator and timestep", r.overhead_ns);
  return line + "\n";
}

// Names of nets and peers are our own and need no escapes.
std::string json_line(const Row& r) {
  std::string line = fmt::format(
      R"({{"net": "{}", "T": {}, "B": {}, "I": {}, "H": {}, "layers": {}, "threads": {}, "mode": "{}", "ms": {:.5f}, )"
      R"("peer": "{}", "peer_ms": {:.5f}, "ratio": {:.4f})",
      r.net, r.size.steps, r.size.batch, r.size.inputs, r.size.hidden, r.size.layers, r.threads, r.mode,
      r.times.minimum, r.peer, r.peer_times.minimum, r.ratio());
  if (r.bound_ms > 0) line += fmt::format(R"(, "bound_ms": {:.5f})", r.bound_ms);
  if (r.products_ms > 0) line += fmt::format(R"(, "products_ms": {:.5f})", r.products_ms);
  if (!r.peer_setting.empty()) line += fmt::format(R"(, "peer_setting": "{}")", r.peer_setting);
  if (r.overhead_ns != 0) line += fmt::format(R"(, "overhead_ns": {:.2f})", r.overhead_ns);
  return line + "}\n";
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

Report::Report(const std::string& json_path) : path_(json_path) {
  if (path_.empty()) return;
  json_.open(path_, std::ios::trunc);
  require(json_.is_open(), "cannot write {}", path_);
}

void Report::add(const Row& row) {
  if (rows_.empty()) fmt::print("{}", kTitle);
  rows_.push_back(row);
  if (row.peer != kProducts) fmt::print("{}", table_line(row));  // every line has their time in percent
  std::fflush(stdout);
  if (!path_.empty()) json_ << json_line(row) << std::flush;
}

void Report::print_summary() const {
  std::map<std::tuple<std::string, std::string, std::string, int>, std::vector<const Row*>> groups;
  for (const Row& row : rows_) groups[{row.net, row.peer, row.mode, row.threads}].push_back(&row);
  fmt::print("\nnet             peer               mode        threads rows median ratio  worst at T,B,I,H,layers\n");
  for (const auto& [key, rows] : groups) {
    const auto& [net, peer, mode, threads] = key;
    std::vector<double> ratios;
    for (const Row* row : rows) ratios.push_back(row->ratio());
    const Row& worst =
        **std::max_element(rows.begin(), rows.end(), [](auto* a, auto* b) { return a->ratio() < b->ratio(); });
    fmt::print("{:<15} {:<18} {:<11} {:>7} {:>4} {:>12.3f} {:>6.2f} {}\n", net, peer, mode, threads, rows.size(),
               median_of(ratios), worst.ratio(), worst.size.str());
  }
}

void Report::close() {
  if (path_.empty()) return;
  json_.close();
  require(json_.good(), "{} could not be written in full", path_);
}

}  // namespace stepnet::bench
