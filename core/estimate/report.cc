#include "core/estimate/report.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/io/json.h"
#include "stepnet/error.h"

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

Json json_kinds(const MemoryByKind& kinds) {
  Json json = Json::object();
  for (size_t k = 0; k < kinds.size(); ++k) json.add(memory_kind_name(static_cast<MemoryKind>(k)), kinds[k]);
  return json;
}

Json json_op(const OpEstimate& e) {
  Json json = Json::object();
  json.add("index", e.index).add("type", e.type).add("name", e.name).add("phase", phase_text(e));
  json.add("kernel", e.kernel).add("live_before", e.memory.before).add("live_peak", e.memory.peak);
  json.add("live_after", e.memory.after).add("inputs_kept", e.inputs_kept).add("outputs", e.outputs);
  json.add("outputs_kept", e.outputs_kept).add("own_kept", e.own_kept).add("temporaries", e.temporaries);
  json.add("workspace", e.workspace).add("flops", Json::count(e.flops)).add("bytes_moved", Json::count(e.bytes_moved));
  json.add("alive_at_peak", json_kinds(e.at_peak));
  return json;
}

Json json_kept(const KeptValue& v) {
  Json reasons = Json::list(), json = Json::object();
  for (const std::string& reason : v.reasons) reasons.append(reason);
  json.add("name", v.name).add("type", v.type).add("bytes", v.bytes);
  json.add("reasons", std::move(reasons));
  return json;
}

template <class T, class Fn>
Json json_list(const std::vector<T>& values, Fn fn) {
  Json json = Json::list();
  for (const T& value : values) json.append(fn(value));
  return json;
}

}  // namespace

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
  Json json = Json::object();
  json.add("device", e.device == DeviceKind::cpu ? "cpu" : "cuda").add("peak", e.peak).add("peak_operator", e.peak_op);
  json.add("between_runs", e.between).add("net_outputs", e.outputs).add("flops", Json::count(e.flops));
  json.add("product_flops", Json::count(e.product_flops)).add("bytes_moved", Json::count(e.bytes_moved));
  json.add("alive_at_peak", json_kinds(e.at_peak)).add("most_alive", json_kinds(e.totals));
  json.add("notes", json_list(e.notes, [](const std::string& note) { return Json(note); }));
  json.add("operators", json_list(e.ops, json_op));
  if (kept) json.add("kept_values", json_list(*kept, json_kept));
  return json.pretty();
}

// The timeline of an estimate as a stacked area.
namespace {

constexpr double kWidth = 1000, kHeight = 460, kLeft = 90, kTop = 40, kRight = 220, kBottom = 50;
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;
// One for each kind.
constexpr std::array<const char*, kMemoryKinds> kColors = {"#9aa5b1", "#3b6ea8", "#7a4fa3", "#c8553d", "#e0a526",
                                                           "#6aa84f", "#2a9d8f", "#c2185b", "#8d6e63"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

struct Axes {
  size_t points;
  double most;  // bytes
  double x(double point) const { return kLeft + kPlotWidth * point / static_cast<double>(std::max<size_t>(points, 1)); }
  double y(double bytes) const { return kTop + kPlotHeight * (1 - bytes / most); }
};

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escaped(text));
}

// Each operator is as wide as any other, and flat.
std::string area(const Axes& axes, const std::vector<double>& low, const std::vector<double>& high, const char* color) {
  std::string there, back;
  for (size_t i = 0; i < axes.points; ++i) {
    const auto at = static_cast<double>(i);
    there += fmt::format("{:.2f},{:.2f} {:.2f},{:.2f} ", axes.x(at), axes.y(high[i]), axes.x(at + 1), axes.y(high[i]));
    const size_t j = axes.points - 1 - i;
    const auto end = static_cast<double>(j);
    back += fmt::format("{:.2f},{:.2f} {:.2f},{:.2f} ", axes.x(end + 1), axes.y(low[j]), axes.x(end), axes.y(low[j]));
  }
  return fmt::format("<polygon points=\"{}{}\" fill=\"{}\"/>\n", there, back, color);
}

std::string scale(const Axes& axes) {
  std::string out;
  constexpr int kLines = 4;
  for (int i = 0; i <= kLines; ++i) {
    const double bytes = axes.most * i / kLines;
    out += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ccc\"/>\n", kLeft,
                       kLeft + kPlotWidth, axes.y(bytes), axes.y(bytes));
    out += text_at(kLeft - 6, axes.y(bytes) + 4, "end", bytes_text(static_cast<int64_t>(bytes)));
  }
  return out;
}

}  // namespace

std::string estimate_svg(const Estimate& e, const std::string& title) {
  Axes axes{e.ops.size(), 1};
  for (const OpEstimate& op : e.ops) axes.most = std::max(axes.most, static_cast<double>(op.memory.peak));
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, kHeight);
  out += text_at(kLeft, kTop - 16, "start", fmt::format("{}: live bytes, peak {}", title, bytes_text(e.peak)));
  out += scale(axes);
  std::vector<double> low(e.ops.size()), high;
  double legend = kTop + 10;
  for (size_t k = 0; k < kColors.size(); ++k) {
    if (k >= e.totals.size() || e.totals[k] == 0) continue;
    high = low;
    for (size_t i = 0; i < e.ops.size(); ++i) high[i] += static_cast<double>(e.ops[i].at_peak[k]);
    out += area(axes, low, high, kColors[k]);
    low = high;
    out += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", kWidth - kRight + 16,
                       legend - 10, kColors[k]);
    out += text_at(kWidth - kRight + 34, legend, "start", memory_kind_name(static_cast<MemoryKind>(k)));
    legend += 20;
  }
  const auto backward = std::ranges::find_if(e.ops, [](const OpEstimate& op) { return op.backward; });
  if (backward != e.ops.end()) {
    const double x = axes.x(static_cast<double>(backward - e.ops.begin()));
    out += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#333\" "
        "stroke-dasharray=\"4\"/>\n",
        x, kTop, kTop + kPlotHeight);
    out += text_at(x + 4, kTop + kPlotHeight + 16, "start", "backward");
  }
  out += text_at(kLeft + kPlotWidth / 2, kHeight - 14, "middle", fmt::format("{} operators, in order", e.ops.size()));
  return out + "</svg>\n";
}

}  // namespace stepnet
