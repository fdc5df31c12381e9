// The numbers of a pair of rows that CosineSimilarity and its gradients are made of; see cosine_similarity.cc.
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

// The factors of the second gradients, with the products of u and v, the gradients of dX and dY, with the rows.
template <class T>
struct CosineSecond {
  double s, cosine, by_xx, by_yy, w, g, along_x, along_y;

  constexpr CosineSecond(const CosineSums<T>& p, double u_x, double v_y, double u_y, double v_x)
      : s(p.scale),
        cosine(p.cosine()),
        by_xx(p.xx > p.kLeast ? 1 / p.xx : 0),
        by_yy(p.yy > p.kLeast ? 1 / p.yy : 0),
        w(0),
        g(0),
        along_x(0),
        along_y(0) {
    const double ux = u_x * by_xx, vy = v_y * by_yy;
    w = ux + vy;
    g = s * (u_y + v_x) - cosine * w;
    along_x = by_xx * (2 * cosine * ux - g);
    along_y = by_yy * (2 * cosine * vy - g);
  }
};

}  // namespace stepnet
