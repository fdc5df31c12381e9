// The timeline of an estimate as a stacked area.
#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/estimate/report.h"

namespace stepnet {
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
