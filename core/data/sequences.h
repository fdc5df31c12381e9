// Columns made of the rows of another: sequences of different lengths, and windows of a series.
//
// Threads: as Column.
#pragma once

#include <memory>
#include <vector>

#include "core/data/column.h"

namespace stepnet {

// Sample i is the `lengths[i]` rows after those of the samples before it. Throws Error if a length is below 0, or they
// do not add up to the rows. `source`: where the lengths are from, for messages.
std::shared_ptr<const Column> sequences(std::shared_ptr<const Column> rows, const std::vector<int64_t>& lengths,
                                        const std::string& source);

// Which rows of a series a sample has: sample i those from i * stride + shift on, `window` of them.
struct WindowChoice {
  int64_t window = 1, stride = 1, shift = 0;
  int64_t reach() const { return shift + window; }  // rows from the sample's first one to the end of its window
};

// How many samples so many rows have.
int64_t count_windows(const WindowChoice& choice, int64_t rows);

// The first `samples` windows of the rows. Throws Error if there are fewer, or a number of the choice is out of range.
std::shared_ptr<const Column> windows(std::shared_ptr<const Column> rows, const WindowChoice& choice, int64_t samples);

}  // namespace stepnet
