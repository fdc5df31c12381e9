#include "stepnet/profiler.h"

#include <algorithm>
#include <chrono>

namespace stepnet {

void Profiler::record(const std::string& type, double seconds, double bytes, double flops) {
  const std::lock_guard lock(mutex_);
  Row& row = rows_[type];
  row.type = type;
  ++row.calls;
  row.seconds += seconds;
  row.bytes += bytes;
  row.flops += flops;
}

std::vector<Profiler::Row> Profiler::rows() const {
  const std::lock_guard lock(mutex_);
  std::vector<Row> rows;
  for (const auto& [type, row] : rows_) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return rows;
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace stepnet
