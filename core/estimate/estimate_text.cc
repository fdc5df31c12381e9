#include "core/estimate/report.h"

#include <array>
#include <numeric>

#include "core/error.h"

namespace stepnet {
namespace {

std::string count_text(double count) {
  static constexpr std::array<const char*, 6> units = {"", " k", " M", " G", " T", " P"};
  size_t unit = 0;
  while (count >= 1000 && unit + 1 < units.size()) count /= 1000, ++unit;
  return unit == 0 ? fmt::format("{:.0f}", count) : fmt::format("{:.2f}{}", count, units[unit]);
}

std::string phase_text(const OpEstimate& e) { return e.update ? "update" : e.backward ? "backward" : "forward"; }

std::string row_text(const OpEstimate& e) {
  return fmt::format("{:>5} {:<9} {:<28} {:<22} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}  {}\n", e.index,
                     phase_text(e), e.type, e.name, bytes_text(e.inputs_kept), bytes_text(e.outputs),
                     bytes_text(e.outputs_kept), bytes_text(e.own_kept), bytes_text(e.temporaries),
                     bytes_text(e.workspace), bytes_text(e.memory.peak), count_text(e.flops), e.kernel);
}

std::string json_kinds(const MemoryByKind& kinds) {
  std::vector<std::string> items;
  for (size_t k = 0; k < kinds.size(); ++k)
    items.push_back(fmt::format("{}: {}", json_text(memory_kind_name(static_cast<MemoryKind>(k))), kinds[k]));
  return fmt::format("{{{}}}", fmt::join(items, ", "));
}

std::string json_op(const OpEstimate& e) {
  return fmt::format(
      "{{\"index\": {}, \"type\": {}, \"name\": {}, \"phase\": {}, \"kernel\": {}, \"live_before\": {}, "
      "\"live_peak\": {}, \"live_after\": {}, \"inputs_kept\": {}, \"outputs\": {}, \"outputs_kept\": {}, "
      "\"own_kept\": {}, \"temporaries\": {}, \"workspace\": {}, \"flops\": {:.0f}, \"bytes_moved\": {:.0f}, "
      "\"alive_at_peak\": {}}}",
      e.index, json_text(e.type), json_text(e.name), json_text(phase_text(e)), json_text(e.kernel), e.memory.before,
      e.memory.peak, e.memory.after, e.inputs_kept, e.outputs, e.outputs_kept, e.own_kept, e.temporaries, e.workspace,
      e.flops, e.bytes_moved, json_kinds(e.at_peak));
}

std::string json_kept(const KeptValue& v) {
  std::vector<std::string> reasons;
  for (const std::string& r : v.reasons) reasons.push_back(json_text(r));
  return fmt::format("{{\"name\": {}, \"type\": {}, \"bytes\": {}, \"reasons\": [{}]}}", json_text(v.name),
                     json_text(v.type), v.bytes, fmt::join(reasons, ", "));
}

template <class T, class Fn>
std::string json_list(const std::vector<T>& values, Fn fn) {
  std::vector<std::string> items;
  for (const T& v : values) items.push_back(fn(v));
  return fmt::format("[{}]", fmt::join(items, ",\n  "));
}

}  // namespace

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  }
  return out + "\"";
}

std::string bytes_text(int64_t bytes) {
  static constexpr std::array<const char*, 6> units = {"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double amount = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  while (amount >= 1000 && unit + 1 < units.size()) amount /= 1000, ++unit;
  return fmt::format("{:.2f} {}", amount, units[unit]);
}

std::string estimate_table(const Estimate& e) {
  std::string out = fmt::format(
      "{:>5} {:<9} {:<28} {:<22} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}  {}\n", "", "", "operator", "",
      "keeps in", "outputs", "kept", "keeps own", "temporary", "workspace", "live", "FLOPs", "kernel");
  for (const OpEstimate& op : e.ops) out += row_text(op);
  out += fmt::format("\n{:<24} {:>12} {:>16}\n", "", "at the peak", "most at a time");
  for (size_t k = 0; k < e.totals.size(); ++k)
    out += fmt::format("{:<24} {:>12} {:>16}\n", memory_kind_name(static_cast<MemoryKind>(k)),
                       bytes_text(k < e.at_peak.size() ? e.at_peak[k] : 0), bytes_text(e.totals[k]));
  out += fmt::format("{:<24} {:>12}   {} bytes{}\n", "peak", bytes_text(e.peak), e.peak,
                     e.peak_op < 0 ? "" : fmt::format(", at operator {}", e.peak_op));
  out += fmt::format("{:<24} {:>12}   {} bytes\n", "between runs", bytes_text(e.between), e.between);
  out += fmt::format("{:<24} {:>12}\n", "net outputs", bytes_text(e.outputs));
  out += fmt::format("{:<24} {:>12}   {:.0f}, of them {:.0f} of matrix products\n", "FLOPs", count_text(e.flops),
                     e.flops, e.product_flops);
  out += fmt::format("{:<24} {:>12}\n", "bytes moved", bytes_text(static_cast<int64_t>(e.bytes_moved)));
  for (const std::string& note : e.notes) out += fmt::format("note: {}\n", note);
  return out;
}

std::string kept_table(const std::vector<KeptValue>& values) {
  std::string out = "\nwhat is kept for the backward pass, and why\n";
  for (const KeptValue& v : values) {
    out += fmt::format("  {} ({}, {})\n", v.name, v.type, bytes_text(v.bytes));
    for (const std::string& reason : v.reasons) out += fmt::format("    read by {}\n", reason);
  }
  return out;
}

std::string estimate_json(const Estimate& e, const std::vector<KeptValue>* kept) {
  std::string out = fmt::format(
      "{{\"device\": {}, \"peak\": {}, \"peak_operator\": {}, \"between_runs\": {}, \"net_outputs\": {}, "
      "\"flops\": {:.0f}, \"product_flops\": {:.0f}, \"bytes_moved\": {:.0f},\n \"alive_at_peak\": {},\n "
      "\"most_alive\": {},\n \"notes\": {},\n \"operators\": {}",
      json_text(e.device == DeviceKind::cpu ? "cpu" : "cuda"), e.peak, e.peak_op, e.between, e.outputs, e.flops,
      e.product_flops, e.bytes_moved, json_kinds(e.at_peak), json_kinds(e.totals),
      json_list(e.notes, [](const std::string& n) { return json_text(n); }), json_list(e.ops, json_op));
  if (kept) out += fmt::format(",\n \"kept_values\": {}", json_list(*kept, json_kept));
  return out + "}\n";
}

}  // namespace stepnet
