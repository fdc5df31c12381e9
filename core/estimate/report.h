// Estimates for people and for programs: a table, JSON, and the timeline of live bytes as a picture.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/estimate/estimate.h"

namespace stepnet {

// "1.25 MB"; units are powers of 1000, and bytes are exact below the first.
std::string bytes_text(int64_t bytes);

// A row for each operator, and the sums.
std::string estimate_table(const Estimate& estimate);
std::string kept_table(const std::vector<KeptValue>& values);
// One object. `kept`: null if it was not asked for.
std::string estimate_json(const Estimate& estimate, const std::vector<KeptValue>* kept);

// SVG: what is alive at each operator's peak, stacked by kind.
std::string estimate_svg(const Estimate& estimate, const std::string& title);

}  // namespace stepnet
