// Curves: what a run's metrics.jsonl says, as a picture.
//
// Threads: pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace stepnet {

struct CurvePoint {
  double iteration = 0, value = 0;
};
using Curves = std::map<std::string, std::vector<CurvePoint>>;  // by the name that the lines have

// From lines as MetricsLog writes them (recurrent/report/metrics.h); values that are not finite are null there, and
// left out. Throws Error, with the number of the line, if one is no object with an iteration. A last line that has no
// end is left out, as a run may be writing it. `name`: of the file, for messages.
Curves read_curves(std::string_view lines, const std::string& name);

// SVG: a panel for each figure, with the figure of the held-out part beside that of training. Where there are more
// points than a screen shows, what stands for them is the least and the largest of those that fall together.
// Throws Error if there are no points.
std::string curves_svg(const Curves& curves, const std::string& title);

}  // namespace stepnet
