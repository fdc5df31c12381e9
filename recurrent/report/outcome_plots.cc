#include "recurrent/report/outcome_plots.h"

#include <algorithm>
#include <cmath>

#include "recurrent/report/svg.h"
#include "stepnet/error.h"
#include "stepnet/random.h"

namespace stepnet {
namespace {

constexpr double kLeft = 80, kTop = 64, kBottom = 56, kRight = 24;
constexpr double kPlot = 480;  // width and height of a plot
constexpr const char* kAxis = "#333333";

std::string sideways_text(double x, double y, std::string_view text) {
  return fmt::format("<text transform=\"translate({:.1f},{:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n", x,
                     y, svg_escaped(text));
}

void require_few(int64_t classes, int64_t most) {
  if (classes <= most) return;
  const bool is_drawn = most <= ConfusionMatrix::kMostDrawn;
  throw Error(fmt::format("there are {} classes, but {} confusion matrix has at most {}", classes,
                          is_drawn ? "the picture of a" : "a", most),
              is_drawn ? "write it to FILE.csv" : "");
}

}  // namespace

void ConfusionMatrix::add(const Outcome& outcome) {
  if (counts_.empty()) {
    require_few(outcome.classes, most_);
    classes_ = outcome.classes;
    counts_.resize(static_cast<size_t>(classes_ * classes_), 0);
  }
  require(outcome.classes == classes_, "there are {} classes, but were {} before", outcome.classes, classes_);
  ++counts_[static_cast<size_t>(outcome.target) * static_cast<size_t>(classes_) +
            static_cast<size_t>(outcome.prediction)];
}

std::string ConfusionMatrix::csv() const {
  std::string text = "target";
  for (int64_t c = 0; c < classes_; ++c) text += fmt::format(",predicted_{}", c);
  text += '\n';
  for (int64_t target = 0; target < classes_; ++target) {
    text += fmt::format("{}", target);
    for (int64_t c = 0; c < classes_; ++c) text += fmt::format(",{}", count(target, c));
    text += '\n';
  }
  return text;
}

std::string ConfusionMatrix::cells(double top, double size) const {
  constexpr double kLeastForCounts = 28;  // a cell's size
  std::string out;
  for (int64_t target = 0; target < classes_; ++target) {
    const double y = top + static_cast<double>(target) * size;
    double sum = 0;
    for (int64_t c = 0; c < classes_; ++c) sum += static_cast<double>(count(target, c));
    for (int64_t c = 0; c < classes_; ++c) {
      const double x = kLeft + static_cast<double>(c) * size;
      const double share = sum > 0 ? static_cast<double>(count(target, c)) / sum : 0;
      out += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#4477aa\" fill-opacity=\"{:.3f}\" "
          "stroke=\"#dddddd\"><title>target {}, predicted {}: {}</title></rect>\n",
          x, y, size, size, share, target, c, count(target, c));
      if (size < kLeastForCounts) continue;
      out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"{}\">{}</text>\n", x + size / 2,
                         y + size / 2 + 4, share > 0.5 ? "white" : "black", count(target, c));
    }
  }
  return out;
}

std::string ConfusionMatrix::svg(const std::string& title) const {
  require_few(classes_, kMostDrawn);
  require(classes_ > 0, "no target counts, so there is no confusion matrix");
  const double size = std::clamp(kPlot / static_cast<double>(classes_), 14.0, 64.0);
  const double width = size * static_cast<double>(classes_);
  std::string out = svg_begin(kLeft + width + kRight, kTop + width + kBottom);
  out += svg_text(kLeft, 18, "start", title);
  for (int64_t c = 0; c < classes_; ++c) {
    const double middle = (static_cast<double>(c) + 0.5) * size;
    out += svg_text(kLeft - 6, kTop + middle + 4, "end", fmt::format("{}", c));
    out += svg_text(kLeft + middle, kTop - 6, "middle", fmt::format("{}", c));
  }
  out += svg_text(kLeft + width / 2, kTop - 26, "middle", "predicted");
  return out + sideways_text(20, kTop + width / 2, "target") + cells(kTop, size) + "</svg>\n";
}

void ScatterPlot::add(const Outcome& outcome) {
  require(std::isfinite(outcome.target) && std::isfinite(outcome.prediction),
          "a prediction of {} for a target of {} cannot be drawn", outcome.prediction, outcome.target);
  static const uint64_t key = random_key(0, "outcomes", "scatter", 0, 0);
  const int64_t number = outcomes_++;
  const Point point{outcome.target, outcome.prediction};
  if (number < kMostDrawn) {
    points_.push_back(point);
    return;
  }
  const int64_t place = random_int(key, static_cast<uint64_t>(number), 0, number);
  if (place < kMostDrawn) points_[static_cast<size_t>(place)] = point;
}

std::string ScatterPlot::svg(const std::string& title) const {
  require(!points_.empty(), "no target counts, so there is nothing to draw");
  AxisRange range;  // of both axes, so that the line of equal values is the diagonal
  for (const Point& point : points_) {
    range.add(point.target);
    range.add(point.prediction);
  }
  range.widen();
  const auto x = [&](double value) { return kLeft + kPlot * range.part(value); };
  const auto y = [&](double value) { return kTop + kPlot * (1 - range.part(value)); };
  const auto drawn = static_cast<int64_t>(points_.size());
  const std::string part = drawn < outcomes_ ? fmt::format(" ({} of {} drawn)", drawn, outcomes_) : "";
  std::string out = svg_begin(kLeft + kPlot + kRight, kTop + kPlot + kBottom);
  out += svg_text(kLeft, 18, "start", title + part);
  const double bottom = kTop + kPlot, right = kLeft + kPlot;
  for (const double tick : ticks_of(range)) {
    const std::string text = fmt::format("{:.4g}", tick);
    out += svg_line(kLeft, y(tick), right, y(tick), "#dddddd") + svg_text(kLeft - 6, y(tick) + 4, "end", text);
    out += svg_line(x(tick), bottom, x(tick), bottom + 4, kAxis) + svg_text(x(tick), bottom + 18, "middle", text);
  }
  out += svg_line(kLeft, bottom, right, bottom, kAxis) + svg_line(kLeft, kTop, kLeft, bottom, kAxis);
  out += svg_line(kLeft, bottom, right, kTop, "#cc3311");
  for (const Point& point : points_)
    out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\" fill=\"#4477aa\" fill-opacity=\"0.5\"/>\n",
                       x(point.target), y(point.prediction));
  out += svg_text(kLeft + kPlot / 2, bottom + 36, "middle", "target");
  return out + sideways_text(20, kTop + kPlot / 2, "prediction") + "</svg>\n";
}

}  // namespace stepnet
