#include "tools/commands/cli/profile_table.h"

#include <fmt/format.h>

#include "recurrent/step/counters.h"
#include "stepnet/device.h"

namespace stepnet::tools {
namespace {

constexpr double kMega = 1e6;
constexpr double kGiga = 1e9;

double per(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

std::string row_text(const Profiler::Row& row, double total) {
  const std::string rate = row.flops > 0 ? fmt::format("{:.1f}", per(row.flops / kGiga, row.seconds)) : "-";
  return fmt::format("{:<32} {:>9} {:>10.3f} {:>6.1f}% {:>12.1f} {:>9}\n", row.type, row.calls, row.seconds * 1e3,
                     100 * per(row.seconds, total), row.bytes / kMega, rate);
}

}  // namespace

ProfileTable::ProfileTable() {
  count_matmuls(true);
  allocator({}).reset_peak();
  matmuls_before_ = matmul_counters();
  recurrent_before_ = recurrent_counters();
  start_ = now_seconds();
}

std::string ProfileTable::text() const {
  const double total = now_seconds() - start_;
  std::string out =
      fmt::format("{:<32} {:>9} {:>10} {:>7} {:>12} {:>9}\n", "operator", "calls", "ms", "share", "MB", "GFLOP/s");
  for (const Profiler::Row& row : profiler_.rows()) out += row_text(row, total);
  const MatmulCounters now = matmul_counters();
  const double seconds = now.seconds - matmuls_before_.seconds;
  const double flops = now.flops - matmuls_before_.flops;
  out += fmt::format("total                 {:.3f} ms\n", total * 1e3);
  out += fmt::format("matrix products       {} calls, {:.3f} ms ({:.1f}% of the total), {:.1f} GFLOP/s\n",
                     now.calls - matmuls_before_.calls, seconds * 1e3, 100 * per(seconds, total),
                     per(flops / kGiga, seconds));
  const RecurrentCounters recurrent = recurrent_counters();
  out += fmt::format("recurrent states      {:.1f} MB copied, {:.1f} MB of initial values, {:.1f} MB spread\n",
                     static_cast<double>(recurrent.copied - recurrent_before_.copied) / kMega,
                     static_cast<double>(recurrent.initial - recurrent_before_.initial) / kMega,
                     static_cast<double>(recurrent.spread - recurrent_before_.spread) / kMega);
  out += fmt::format("kept for backward     {:.1f} MB at the most, beside states, inputs and outputs\n",
                     static_cast<double>(recurrent.kept) / kMega);
  out += fmt::format("memory at the peak    {:.1f} MB\n", static_cast<double>(allocator({}).counters().peak) / kMega);
  return out;
}

}  // namespace stepnet::tools
