// Vectorised elementary functions over spans, for float and double.
//
// tanh and sigmoid are finite for every input that is a number, exp is infinite where it would overflow, NaN stays NaN.
// log is minus infinity of 0 and NaN of less. expm1 = exp(x) - 1 and log1p = log(1 + x) are exact for small results
// too. The error is below 3 ulp, but a sigmoid below 1e-37 (double: 1e-307) may be 0; every CPU gives the same bits,
// wherever an element stands (core/compute/simd.h). Input and output may be the same span, and must otherwise not
// overlap. Spans have equal sizes. Threads: pure functions.
#pragma once

#include <span>

namespace stepnet {

void vec_exp(std::span<const float> x, std::span<float> y);
void vec_exp(std::span<const double> x, std::span<double> y);
void vec_log(std::span<const float> x, std::span<float> y);
void vec_log(std::span<const double> x, std::span<double> y);
void vec_expm1(std::span<const float> x, std::span<float> y);
void vec_expm1(std::span<const double> x, std::span<double> y);
void vec_log1p(std::span<const float> x, std::span<float> y);
void vec_log1p(std::span<const double> x, std::span<double> y);
void vec_tanh(std::span<const float> x, std::span<float> y);
void vec_tanh(std::span<const double> x, std::span<double> y);
void vec_sigmoid(std::span<const float> x, std::span<float> y);
void vec_sigmoid(std::span<const double> x, std::span<double> y);

// y += a * x
void vec_axpy(float a, std::span<const float> x, std::span<float> y);
void vec_axpy(double a, std::span<const double> x, std::span<double> y);
// Sum and maximum in a fixed order that depends on the size alone (not on alignment), so results repeat to the bit.
// The maximum of nothing is minus infinity.
double vec_sum(std::span<const float> x);
double vec_sum(std::span<const double> x);
double vec_sum_squares(std::span<const float> x);
double vec_sum_squares(std::span<const double> x);
float vec_max(std::span<const float> x);
double vec_max(std::span<const double> x);

}  // namespace stepnet
