// The arithmetic of YellowFin; see yellow_fin.cc. Threads: pure functions.
#pragma once

#include <cmath>

#include "operators/optimizer/optimizer.h"

namespace stepnet {

struct YellowFinArgs {
  float beta = 0, epsilon = 0;
  int64_t curv_win_width = 0;
  bool nesterov = false, zero_debias = true;
};

// What scalars_memory holds, each a running mean.
constexpr int kNormMean = 0, kSquareMean = 1, kLeastLogMean = 2, kMostLogMean = 3, kDistanceMean = 4,
              kYellowFinMeans = 5;

// The places of what is tuned, before and after the step; those after may be those before.
template <class T>
struct YellowFinState {
  const T *lr, *mu, *window, *means;
  T *new_lr, *new_mu, *new_window, *new_means;
};

template <class T>
struct YellowFin {
  YellowFinArgs args;
  int64_t iter = 1;  // from 1 on
  double beta = 0, correction = 1;

  constexpr YellowFin(const YellowFinArgs& a, int64_t at)
      : args(a),
        iter(at),
        beta(double{a.beta}),
        correction(a.zero_debias ? 1 / (1 - std::pow(double{a.beta}, static_cast<double>(at))) : 1.0) {}

  constexpr T mean(T before, double now) const {
    return static_cast<T>(beta * static_cast<double>(before) + (1 - beta) * now);
  }
  constexpr double at_least(double value) const { return value > double{args.epsilon} ? value : double{args.epsilon}; }

  // One element's step, with the rates from before; returns the square of its mean gradient, corrected.
  constexpr double step(T lr, T mu, T grad, const T* param, const T* moment, const T* g, const T* g2, T* new_param,
                        T* new_moment, T* new_g, T* new_g2) const {
    const T before = *moment, m = mu * before + lr * grad;
    *new_param = args.nesterov ? *param - (1 + mu) * m + mu * before : *param - m;
    *new_moment = m;
    const T average = mean(*g, static_cast<double>(grad));
    *new_g2 = mean(*g2, static_cast<double>(grad) * static_cast<double>(grad));
    *new_g = average;
    return correction * static_cast<double>(average) * correction * static_cast<double>(average);
  }

  // The rate and the momentum of the next step, from the sums of the squares of the gradient and of its mean.
  constexpr void tune(const YellowFinState<T>& s, double squares, double mean_squares) const {
    const double square = at_least(squares), norm = std::sqrt(square);
    s.new_means[kSquareMean] = mean(s.means[kSquareMean], square);
    s.new_means[kNormMean] = mean(s.means[kNormMean], norm);
    for (int64_t i = 0; i < args.curv_win_width; ++i) s.new_window[i] = s.window[i];
    s.new_window[(iter - 1) % args.curv_win_width] = static_cast<T>(std::log(square));
    const int64_t filled = iter < args.curv_win_width ? iter : args.curv_win_width;
    T least = s.new_window[0], most = least;
    for (int64_t i = 1; i < filled; ++i) {
      least = s.new_window[i] < least ? s.new_window[i] : least;
      most = s.new_window[i] > most ? s.new_window[i] : most;
    }
    s.new_means[kLeastLogMean] = mean(s.means[kLeastLogMean], static_cast<double>(least));
    s.new_means[kMostLogMean] = mean(s.means[kMostLogMean], static_cast<double>(most));
    const double distance = static_cast<double>(s.new_means[kNormMean]) / static_cast<double>(s.new_means[kSquareMean]);
    s.new_means[kDistanceMean] = mean(s.means[kDistanceMean], distance);
    if (iter > 1) {
      tune_rates(s, at_least(corrected(s, kSquareMean) - mean_squares));
    } else {
      *s.new_lr = *s.lr;
      *s.new_mu = *s.mu;
    }
  }

 private:
  constexpr double corrected(const YellowFinState<T>& s, int which) const {
    return correction * static_cast<double>(s.new_means[which]);
  }

  constexpr void tune_rates(const YellowFinState<T>& s, double variance) const {
    const double least = at_least(std::exp(corrected(s, kLeastLogMean))),
                 most = at_least(std::exp(corrected(s, kMostLogMean)));
    const double range = std::sqrt(most / least), limit = (range - 1) / (range + 1);
    const double scaled = corrected(s, kDistanceMean) * least, p = scaled * scaled / (2 * variance);
    // The one real root of the cubic by which the paper's first equation for the momentum is solved.
    const double w = -std::cbrt((std::sqrt(p * p + 4.0 / 27.0 * p * p * p) + p) / 2);
    const double root = w - p / 3 / w + 1, own = root * root, other = limit * limit;
    const double mu = own > other ? own : other, short_of = 1 - std::sqrt(mu);
    *s.new_mu = mean(*s.mu, mu);
    *s.new_lr = mean(*s.lr, short_of * short_of / least);
  }
};

}  // namespace stepnet
