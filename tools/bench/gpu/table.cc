// Reading peers' times, and the formats of rows.
#include "tools/bench/gpu/table.h"

#include <fmt/ranges.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "stepnet/error.h"

namespace stepnet::bench {

namespace {

// An H100 SXM; times of the recurrent part alone, and of training forward and backward, by its authors.
const char* const kFlashRnn = "FlashRNN fused, as published, without the inputs' product";

}  // namespace

GpuTable::GpuTable(const std::string& peer_times_path, DeviceLimits limits) : limits_(std::move(limits)) {
  peers_ = {{kFlashRnn, "lstm", "1024,16,768,768,1", "forward", "bfloat16", 4.87},
            {kFlashRnn, "lstm", "1024,16,768,768,1", "training", "bfloat16", 13.61}};
  if (peer_times_path.empty()) return;
  std::ifstream in(peer_times_path);
  require(in.good(), "cannot read {}", peer_times_path);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#')) {
      notes_.push_back(line.substr(1));
      continue;
    }
    PeerTime time;
    std::istringstream fields(line);
    for (std::string* field : {&time.peer, &time.cell, &time.size, &time.mode, &time.type})
      require(static_cast<bool>(std::getline(fields, *field, '\t')), "{}: \"{}\" has fewer than six fields",
              peer_times_path, line);
    require(fields >> time.ms && time.ms > 0, "{}: \"{}\" has no time", peer_times_path, line);
    peers_.push_back(std::move(time));
  }
}

std::string GpuTable::peers_of(const GpuRow& row) const {
  std::string text;
  for (const PeerTime& time : peers_)
    if (time.cell == row.cell && time.size == row.size.str() && time.mode == mode_name(row.mode) &&
        time.type == row.type)
      text +=
          fmt::format("{}{} {:.3f} ({:.2f})", text.empty() ? "" : "; ", time.peer, time.ms, row.times.median / time.ms);
  return text.empty() ? "-" : text;
}

void GpuTable::print_limits() const {
  std::vector<std::string> rates;
  for (const auto& [type, rate] : limits_.flops_per_second)
    rates.push_back(fmt::format("{:.3g} TFLOP/s in {}", rate / 1e12, type));
  fmt::print(
      "Limits, by a copy and by large products here: {:.3g} TB/s, {}. \"Of limit\" is what the "
      "arithmetic or the bytes of a row, as `stepnet estimate` counts them, take at these, the longer of both, by the "
      "median.\n\n",
      limits_.bytes_per_second / 1e12, fmt::join(rates, ", "));
}

void GpuTable::add(const GpuRow& row) const {
  if (!has_head_)
    fmt::print(
        "| net | T,B,I,H,layers | mode | type | ms | least | wall | us per timestep | GFLOP | MB | of limit | peers: "
        "ms "
        "(Stepnet's ms / peer's) |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  has_head_ = true;
  const DeviceLimits::Bound bound = limits_.bound(row.work, row.type);
  fmt::print("| {} | {} | {} | {} | {:.3f} | {:.3f} | {:.3f} | {:.2f} | {:.3g} | {:.3g} | {:.2g}% {} | {} |\n", row.net,
             row.size.str(), mode_name(row.mode), row.type, row.times.median, row.times.least, row.times.wall,
             1000 * row.times.median / static_cast<double>(row.size.steps), row.work.flops / 1e9, row.work.bytes / 1e6,
             100 * bound.ms / row.times.median, bound.by, peers_of(row));
  std::fflush(stdout);
}

void GpuTable::print_notes() const {
  if (!notes_.empty()) fmt::print("\n");
  for (const std::string& note : notes_) fmt::print("-{}\n", note);
}

}  // namespace stepnet::bench
