// Logarithms of sums of exponentials of rows of scores, for losses that sum over alignments
// (operators/loss/alignments.h). Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/runtime/launch.h"
#include "operators/loss/alignments.h"

namespace stepnet::gpu {

// sums[r] = log(sum(exp(row r))), of rows that stand one behind the other; a team for each.
template <class N, class T>
void log_sums_of_rows(const Call& call, Scores<N, T> scores, int64_t rows, int64_t classes, N* sums) {
  each_team(call, static_cast<size_t>(rows), [=] __device__(size_t r, const Team& team) {
    const Scores<N, T> row = scores.from(static_cast<int64_t>(r) * classes);
    N sum = log_zero<N>();
    for (int64_t c = team.thread; c < classes; c += Team::size) sum = log_add(sum, row[c]);
    sum = team.reduce(sum, [](N a, N b) { return log_add(a, b); });
    if (team.thread == 0) sums[r] = sum;
  });
}

inline Wholes device_wholes(const Tensor& t) {
  if (t.dtype() == DType::int32) return {in_span<int32_t>(t).data, nullptr};
  return {nullptr, in_span<int64_t>(t).data};
}

// Whether the labels and lengths of samples are in range; what is not is noted, and the sample is left out.
struct SampleChecks {
  Wholes labels, times, lengths;
  int64_t places = 0, most_times = 0, least_times = 0, classes = 0, blank = 0;
  Bounds of_times, of_lengths, of_labels, of_blanks;

  // The lengths are inputs 2 and 3, the labels input 1.
  SampleChecks(const Call& call, int64_t in_places, int64_t in_times, int64_t least, int64_t in_classes,
               int64_t of_blank)
      : labels(device_wholes(call.in(1))),
        times(device_wholes(call.in(2))),
        lengths(device_wholes(call.in(3))),
        places(in_places),
        most_times(in_times),
        least_times(least),
        classes(in_classes),
        blank(of_blank),
        of_times(bounds(call, "the length of an input")),
        of_lengths(bounds(call, "the length of a target")),
        of_labels(bounds(call, "a label")),
        of_blanks(bounds(call, "a label that is the blank")) {}

  __device__ bool fits(int64_t b) const {
    if (!of_times.inside(times[b] - least_times, most_times + 1 - least_times)) return false;
    if (!of_lengths.inside(lengths[b], places + 1)) return false;
    for (int64_t s = 0; s < lengths[b]; ++s) {
      const int64_t label = labels[b * places + s];
      if (!of_labels.inside(label, classes)) return false;
      if (label != blank) continue;
      of_blanks.report(label, kNoLimit);
      return false;
    }
    return true;
  }
};

}  // namespace stepnet::gpu
