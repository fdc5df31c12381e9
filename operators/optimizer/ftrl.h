// The arithmetic of Ftrl, GFtrl and SparseFtrl; see ftrl.cc. Threads: pure functions.
#pragma once

#include <cmath>
#include <optional>

#include "operators/optimizer/optimizer.h"

namespace stepnet {

struct FtrlArgs {
  std::optional<float> alpha;
  float beta = 0, lambda1 = 0, lambda2 = 0;
};

constexpr double kFtrlAlpha = 0.005F;  // if neither an argument nor an input says it

// One step of one element, of which n and z lie side by side.
template <class T>
struct FtrlStep {
  T inverse, beta, lambda1, lambda2;

  constexpr FtrlStep(const FtrlArgs& args, double alpha)
      : inverse(static_cast<T>(1 / alpha)), beta(args.beta), lambda1(args.lambda1), lambda2(args.lambda2) {}

  // z after the step.
  constexpr T moved(T param, const T* nz, T grad) const {
    return nz[1] + grad - (std::sqrt(nz[0] + grad * grad) - std::sqrt(nz[0])) * inverse * param;
  }

  // The parameter after the step is -`shrunk` over this, where n is that after the step.
  constexpr T curvature(T n) const { return (beta + std::sqrt(n)) * inverse + lambda2; }

  // The results may stand where the values were.
  constexpr void operator()(const T* param, const T* nz, T grad, T* new_param, T* new_nz) const {
    const T z = moved(*param, nz, grad), n = nz[0] + grad * grad, size = z < 0 ? -z : z;
    *new_param = size > lambda1 ? ((z < 0 ? -lambda1 : lambda1) - z) / curvature(n) : T(0);
    new_nz[0] = n;
    new_nz[1] = z;
  }

  // Of an element whose group, `rows` elements, has this norm of z after the step, and least norm.
  constexpr void operator()(const T* param, const T* nz, T grad, T norm, T least, T* new_param, T* new_nz) const {
    const T z = moved(*param, nz, grad), n = nz[0] + grad * grad;
    *new_param = norm > least ? z * (least / norm - 1) / curvature(n) : T(0);
    new_nz[0] = n;
    new_nz[1] = z;
  }
};

// One step of a column of a matrix, which is a group; elements of a column are `columns` apart.
template <class T>
constexpr void gftrl_column(const FtrlStep<T>& step, int64_t rows, int64_t columns, const T* param, const T* nz,
                            const T* grad, T* new_param, T* new_nz) {
  T squares = 0;
  for (int64_t i = 0; i < rows * columns; i += columns) {
    const T z = step.moved(param[i], nz + 2 * i, grad[i]);
    squares += z * z;
  }
  const T norm = std::sqrt(squares), least = step.lambda1 * std::sqrt(static_cast<T>(rows));
  for (int64_t i = 0; i < rows * columns; i += columns)
    step(param + i, nz + 2 * i, grad[i], norm, least, new_param + i, new_nz + 2 * i);
}

}  // namespace stepnet
