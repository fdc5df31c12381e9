// SVG: what plots are put together of.
//
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace stepnet {

// The values that an axis shows.
struct AxisRange {
  double least = std::numeric_limits<double>::infinity(), most = -std::numeric_limits<double>::infinity();
  void add(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
  void widen();  // so that one point, or a curve that does not change, stands in the middle
  double part(double value) const { return (value - least) / (most - least); }
};

// About five round numbers in the range.
std::vector<double> ticks_of(const AxisRange& range);

std::string svg_begin(double width, double height);  // </svg> is to follow
std::string svg_escaped(std::string_view text);
// `anchor`: which end of the text is there, start, middle or end.
std::string svg_text(double x, double y, std::string_view anchor, std::string_view text);
std::string svg_line(double x1, double y1, double x2, double y2, std::string_view color);

}  // namespace stepnet
