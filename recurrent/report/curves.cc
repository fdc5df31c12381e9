#include "recurrent/report/curves.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/io/json.h"
#include "recurrent/report/svg.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

constexpr double kWidth = 760, kLeft = 80, kRight = 24, kTop = 48, kPanel = 180, kGap = 56;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr size_t kBins = 600;  // that a curve is drawn in, at most
constexpr std::string_view kHeldOut = "validation_";
constexpr std::string_view kTrainColor = "#4477aa", kHeldOutColor = "#cc3311";

struct Panel {
  std::string name;
  const std::vector<CurvePoint>* training = nullptr;
  const std::vector<CurvePoint>* held_out = nullptr;
};

std::vector<Panel> panels_of(const Curves& curves) {
  std::vector<Panel> panels;
  const auto panel = [&](const std::string& name) -> Panel& {
    const auto found = std::ranges::find(panels, name, &Panel::name);
    return found == panels.end() ? panels.emplace_back(Panel{name}) : *found;
  };
  // The loss comes first, and then figures of the held-out part.
  for (const bool held_out : {false, true})
    for (const auto& [name, points] : curves) {
      if (points.empty()) continue;
      if (held_out && name.starts_with(kHeldOut)) panel(name.substr(kHeldOut.size())).held_out = &points;
      if (!held_out && !name.starts_with(kHeldOut)) panel(name).training = &points;
    }
  std::ranges::stable_sort(panels, [](const Panel& a, const Panel& b) {
    const auto rank = [](const Panel& p) { return p.name == "loss" ? 0 : p.held_out ? 1 : 2; };
    return rank(a) < rank(b);
  });
  return panels;
}

AxisRange range_of(const std::vector<const std::vector<CurvePoint>*>& all, double CurvePoint::*of) {
  AxisRange range;
  for (const std::vector<CurvePoint>* points : all)
    if (points)
      for (const CurvePoint& point : *points) range.add(point.*of);
  range.widen();
  return range;
}

// In each bin the least and the largest point, in the order in which they come.
std::vector<CurvePoint> thinned(const std::vector<CurvePoint>& points) {
  if (points.size() <= 2 * kBins) return points;
  std::vector<CurvePoint> few;
  for (size_t bin = 0; bin < kBins; ++bin) {
    const auto begin = points.begin() + static_cast<int64_t>(bin * points.size() / kBins);
    const auto end = points.begin() + static_cast<int64_t>((bin + 1) * points.size() / kBins);
    auto [least, most] =
        std::minmax_element(begin, end, [](const CurvePoint& a, const CurvePoint& b) { return a.value < b.value; });
    if (most < least) std::swap(least, most);
    few.push_back(*least);
    if (most != least) few.push_back(*most);
  }
  return few;
}

class PanelDrawing {
 public:
  PanelDrawing(const AxisRange& iterations, const AxisRange& values, double top)
      : iterations_(iterations), values_(values), top_(top) {}

  std::string axes(const std::string& name, bool is_last) const {
    const double bottom = top_ + kPanel;
    std::string out = svg_text(kLeft, top_ - 8, "start", name);
    for (const double tick : ticks_of(values_)) {
      out += svg_line(kLeft, y(tick), kLeft + kPlotWidth, y(tick), "#dddddd");
      out += svg_text(kLeft - 6, y(tick) + 4, "end", fmt::format("{:.4g}", tick));
    }
    for (const double tick : ticks_of(iterations_)) {
      out += svg_line(x(tick), bottom, x(tick), bottom + 4, "#333333");
      out += svg_text(x(tick), bottom + 18, "middle", fmt::format("{:.10g}", tick));
    }
    out += svg_line(kLeft, bottom, kLeft + kPlotWidth, bottom, "#333333") +
           svg_line(kLeft, top_, kLeft, bottom, "#333333");
    if (is_last) out += svg_text(kLeft + kPlotWidth / 2, bottom + 36, "middle", "iteration");
    return out;
  }

  std::string curve(const std::vector<CurvePoint>& points, std::string_view color, bool dots) const {
    std::string places, out;
    for (const CurvePoint& point : thinned(points)) {
      places += fmt::format("{}{:.1f},{:.1f}", places.empty() ? "" : " ", x(point.iteration), y(point.value));
      if (dots || points.size() == 1)
        out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>\n", x(point.iteration),
                           y(point.value), color);
    }
    return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\"/>\n", places, color) + out;
  }

  std::string legend(bool training, bool held_out) const {
    std::string out;
    double right = kLeft + kPlotWidth;
    const auto entry = [&](std::string_view name, std::string_view color) {
      out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"{}\">{}</text>\n", right, top_ - 8,
                         color, name);
      right -= 80;
    };
    if (held_out) entry("held out", kHeldOutColor);
    if (training) entry("training", kTrainColor);
    return out;
  }

 private:
  double x(double iteration) const { return kLeft + kPlotWidth * iterations_.part(iteration); }
  double y(double value) const { return top_ + kPanel * (1 - values_.part(value)); }

  AxisRange iterations_, values_;
  double top_;
};

}  // namespace

Curves read_curves(std::string_view lines, const std::string& name) {
  Curves curves;
  int64_t number = 0;
  for (size_t end = 0; (end = lines.find('\n')) != std::string_view::npos; lines.remove_prefix(end + 1)) {
    ++number;
    const std::string_view text = lines.substr(0, end);
    if (text.empty()) continue;
    const std::optional<std::map<std::string, double>> numbers = json_numbers(text);
    require(numbers && numbers->contains("iteration"), "line {} of {} is no object with an iteration, as metrics are",
            number, name);
    for (const auto& [figure, value] : *numbers)
      if (figure != "iteration" && figure != "seconds") curves[figure].push_back({numbers->at("iteration"), value});
  }
  return curves;
}

std::string curves_svg(const Curves& curves, const std::string& title) {
  const std::vector<Panel> panels = panels_of(curves);
  require(!panels.empty(), "{} has no metrics that could be drawn", title);
  const double height = kTop + static_cast<double>(panels.size()) * (kPanel + kGap);
  std::vector<const std::vector<CurvePoint>*> all;
  for (const auto& [name, points] : curves) all.push_back(&points);
  const AxisRange iterations = range_of(all, &CurvePoint::iteration);
  std::string out = svg_begin(kWidth, height);
  out += svg_text(kLeft, 18, "start", title);
  double top = kTop;
  for (const Panel& panel : panels) {
    const PanelDrawing drawing(iterations, range_of({panel.training, panel.held_out}, &CurvePoint::value), top);
    out += drawing.axes(panel.name, &panel == &panels.back());
    if (panel.training) out += drawing.curve(*panel.training, kTrainColor, false);
    if (panel.held_out) out += drawing.curve(*panel.held_out, kHeldOutColor, true);
    out += drawing.legend(panel.training != nullptr, panel.held_out != nullptr);
    top += kPanel + kGap;
  }
  return out + "</svg>\n";
}

}  // namespace stepnet
