// float16 and bfloat16: halves of float32, with its arithmetic. They turn into float wherever they are read, and are
// rounded to the nearest value (ties to even) where a float is put into them; what is too large becomes infinite.
//
// float16 is IEEE 754 binary16: 5 bits of exponent, 10 of fraction. bfloat16 is the upper half of a float32: 8 and 7.
// Threads: value types. All of it runs on GPUs, too.
#pragma once

#include <bit>
#include <cstdint>

#include "stepnet/shape.h"

#if defined(__CUDA_ARCH__)
#include <cuda_fp16.h>
#endif

namespace stepnet {

// The float32 of a binary16's bits. Every one of them has an equal float32.
constexpr float float_of_half(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float size = static_cast<float>(fraction) * 0x1p-24f;  // subnormal: exact
  return sign ? -size : size;
}

// The bits of the binary16 nearest to a float32.
constexpr uint16_t half_of_float(float value) {
  const uint32_t all = std::bit_cast<uint32_t>(value), size = all & 0x7fffffffu;
  const auto sign = static_cast<uint16_t>((all >> 16) & 0x8000);
  if (size > 0x7f800000u) return sign | 0x7e00;   // not a number
  if (size >= 0x477ff000u) return sign | 0x7c00;  // from the middle between the largest and the next power of two on
  uint32_t kept = 0, rest = 0, middle = 0;
  if (size >= 0x38800000u) {  // normal: drop 13 bits of the fraction
    const uint32_t rebased = size - (112u << 23);
    kept = rebased >> 13, rest = rebased & 0x1fff, middle = 0x1000;
  } else {  // subnormal: a multiple of 2^-24
    const uint32_t exponent = size >> 23;
    if (exponent < 102) return sign;  // less than half of the smallest
    const uint32_t fraction = (size & 0x7fffffu) | 0x800000u, shift = 126 - exponent;
    kept = fraction >> shift, rest = fraction & ((1u << shift) - 1), middle = 1u << (shift - 1);
  }
  const bool up = rest > middle || (rest == middle && (kept & 1));
  return static_cast<uint16_t>(sign | (kept + (up ? 1 : 0)));
}

struct float16 {  // NOLINT(readability-identifier-naming): like float and double
  uint16_t bits;

  float16() = default;
  constexpr float16(float value)
      : bits(rounded(value)) {}       // NOLINT(google-explicit-constructor): arithmetic is float's
  constexpr operator float() const {  // NOLINT(google-explicit-constructor)
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(bits));
#else
    return float_of_half(bits);
#endif
  }

 private:
  static constexpr uint16_t rounded(float value) {
#if defined(__CUDA_ARCH__)
    return __half_as_ushort(__float2half_rn(value));
#else
    return half_of_float(value);
#endif
  }
};

struct bfloat16 {  // NOLINT(readability-identifier-naming)
  uint16_t bits;

  bfloat16() = default;
  constexpr bfloat16(float value) : bits(rounded(value)) {}  // NOLINT(google-explicit-constructor)
  constexpr operator float() const {                         // NOLINT(google-explicit-constructor)
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }

 private:
  static constexpr uint16_t rounded(float value) {
    const auto all = std::bit_cast<uint32_t>(value);
    const uint32_t nearest = (all + 0x7fffu + ((all >> 16) & 1)) >> 16, not_a_number = (all >> 16) | 0x40;
    return static_cast<uint16_t>((all & 0x7fffffffu) > 0x7f800000u ? not_a_number : nearest);
  }
};

template <>
constexpr DType dtype_of<float16>() {
  return DType::float16;
}
template <>
constexpr DType dtype_of<bfloat16>() {
  return DType::bfloat16;
}
constexpr bool is_half(DType d) { return d == DType::float16 || d == DType::bfloat16; }

// Calls fn(T{}) with float16 or bfloat16; false, and no call, if the elements are of another type.
template <class Fn>
bool with_half(DType type, const Fn& fn) {
  if (type == DType::float16) return fn(float16{}), true;
  if (type == DType::bfloat16) return fn(bfloat16{}), true;
  return false;
}

}  // namespace stepnet
