#include "recurrent/report/svg.h"

#include <fmt/format.h>

#include <cmath>

namespace stepnet {
namespace {

// 1, 2 or 5 times a power of ten, so that there are about five steps.
double step_of(const AxisRange& range) {
  const double rough = (range.most - range.least) / 5, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double times : {1.0, 2.0, 5.0})
    if (times * power >= rough) return times * power;
  return 10 * power;
}

}  // namespace

void AxisRange::widen() {
  if (most > least) return;
  const double by = least == 0 ? 1 : std::abs(least) * 0.1;
  least -= by;
  most += by;
}

std::vector<double> ticks_of(const AxisRange& range) {
  const double step = step_of(range);
  std::vector<double> ticks;
  for (double i = std::ceil(range.least / step); i * step <= range.most && ticks.size() < 12; ++i)
    ticks.push_back(i * step);
  return ticks;
}

std::string svg_begin(double width, double height) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width, height);
}

std::string svg_escaped(std::string_view text) {
  std::string safe;
  for (const char c : text)
    safe += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : std::string(1, c);
  return safe;
}

std::string svg_text(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, svg_escaped(text));
}

std::string svg_line(double x1, double y1, double x2, double y2, std::string_view color) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2, y2,
                     color);
}

}  // namespace stepnet
