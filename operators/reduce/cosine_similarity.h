// The numbers of a pair of rows that CosineSimilarity and its gradient are made of; see cosine_similarity.cc.
// Threads: pure functions.
#pragma once

#include <cmath>

namespace stepnet {

// From the products xx, yy and xy of two rows, in double; T is the type of their elements.
template <class T>
struct CosineSums {
  static constexpr double kLeast = 1e-12;  // of a squared norm
  double xx, yy, xy, scale;

  constexpr CosineSums(double of_x, double of_y, double of_both)
      : xx(of_x),
        yy(of_y),
        xy(of_both),
        scale(1 / (std::sqrt(xx > kLeast ? xx : kLeast) * std::sqrt(yy > kLeast ? yy : kLeast))) {}

  constexpr double cosine() const { return xy * scale; }
  constexpr double along_x() const { return xx > kLeast ? cosine() / xx : 0; }
  constexpr double along_y() const { return yy > kLeast ? cosine() / yy : 0; }
};

}  // namespace stepnet
