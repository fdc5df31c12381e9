// What each code of stepnet/elementwise_chain.h says, of doubles and by the C library. Threads: pure functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "stepnet/elementwise_chain.h"

namespace stepnet::testing {

inline std::vector<FusedCode> all_fused_codes() {
  std::vector<FusedCode> codes;
  for (int code = 0; code < kFusedCodes; ++code) codes.push_back(static_cast<FusedCode>(code));
  return codes;
}

// Operands of a code of which one is 0.
inline bool takes_a_zero(FusedCode code) { return code == FusedCode::either; }

// Whether the code is for positive numbers only.
inline bool takes_positive(FusedCode code) {
  return code == FusedCode::log || code == FusedCode::log1p || code == FusedCode::sqrt;
}

inline double fused_reference(const FusedInstruction& i, double a, double b) {
  switch (i.code) {
    case FusedCode::copy:
      return a;
    case FusedCode::add:
      return a + b;
    case FusedCode::sub:
      return a - b;
    case FusedCode::mul:
      return a * b;
    case FusedCode::div:
      return a / b;
    case FusedCode::maximum:
      return std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b);
    case FusedCode::minimum:
      return std::isnan(a) || std::isnan(b) ? NAN : std::fmin(a, b);
    case FusedCode::negative:
      return -a;
    case FusedCode::abs:
      return std::fabs(a);
    case FusedCode::one_minus:
      return 1 - a;
    case FusedCode::reciprocal:
      return 1 / a;
    case FusedCode::sqrt:
      return std::sqrt(a);
    case FusedCode::scale:
      return a * i.value;
    case FusedCode::add_value:
      return a + i.value;
    case FusedCode::at_least:
      return a < i.value ? i.value : a;
    case FusedCode::at_most:
      return a > i.value ? i.value : a;
    case FusedCode::relu:
      return a < 0 ? 0 : a;
    case FusedCode::if_positive:
      return a > 0 ? b : 0;
    case FusedCode::unless_positive:
      return a > 0 ? 0 : b;
    case FusedCode::either:
      return std::bit_cast<double>(std::bit_cast<uint64_t>(a) | std::bit_cast<uint64_t>(b));
    case FusedCode::exp:
      return std::exp(a);
    case FusedCode::expm1:
      return std::expm1(a);
    case FusedCode::log:
      return std::log(a);
    case FusedCode::log1p:
      return std::log1p(a);
    case FusedCode::sigmoid:
      return 1 / (1 + std::exp(-a));
    case FusedCode::tanh:
      return std::tanh(a);
    case FusedCode::erf:
      return std::erf(a);
    case FusedCode::erfc:
      return std::erfc(a);
    case FusedCode::sin:
      return std::sin(a);
    case FusedCode::cos:
      return std::cos(a);
    case FusedCode::product_sum:
    case FusedCode::less_product:
    case FusedCode::row_sum:
    case FusedCode::row_product:
    case FusedCode::spread:
      break;
  }
  return NAN;
}

}  // namespace stepnet::testing
