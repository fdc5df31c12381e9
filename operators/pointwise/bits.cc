// ClipWithBits and SelectByBits: activations whose derivative reads a bit for each element.
#include "operators/loops/bits.h"

#include <cmath>

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_bits {
namespace {

void infer_bits(ShapeCall& c, int output, int of) {
  if (c.known(of)) c.set(output, DType::uint8, Shape{bytes_of_bits(c.shape(of).size())});
}

// ClipWithBits: Y = Clip(X), or with an alpha LeakyRelu(X); a bit of an element is set where min < X < max, or
// where min < X if there is no max.
//
// dX = SelectByBits(dY, bits): dY where the bit is set, else alpha dY. It reads neither X nor Y.

template <class T>
void clip_with_bits(const ClipWithBitsArgs& a, In<T> x, Out<T> y, Out<uint8_t> bits) {
  const ClipWithBits<T> fn{static_cast<T>(a.min), static_cast<T>(a.max), static_cast<T>(a.alpha)};
  const auto size = static_cast<int64_t>(x.size());
  parallel_for(static_cast<int64_t>(bits.size()), 4, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      unsigned byte = 0;
      each_of_byte(at, size, [&](int64_t i) {
        const T v = x[i];
        byte |= static_cast<unsigned>(fn.is_within(v)) << (i % 8);
        y[i] = fn.value(v);
      });
      bits[at] = static_cast<uint8_t>(byte);
    }
  });
}

void infer_clip(const ClipWithBitsArgs& a, ShapeCall& c) {
  require(a.min <= a.max, "min is {}, which is not at most max, {}", a.min, a.max);
  require(a.alpha == 0 || (a.min == 0 && std::isinf(a.max)), "an alpha goes with a min of 0 and no max");
  infer_bits(c, 1, 0);
}

REGISTER(clip_with_bits) {
  return op<ClipWithBitsArgs>("ClipWithBits")
      .own()
      .doc("Clip, or with an alpha LeakyRelu, whose gradient reads a bit for each element in place of a value.")
      .arg("min", &ClipWithBitsArgs::min, ClipWithBitsArgs().min, "the least value")
      .arg("max", &ClipWithBitsArgs::max, ClipWithBitsArgs().max, "the greatest value")
      .arg("alpha", &ClipWithBitsArgs::alpha, 0.0F, "the slope below a min of 0")
      .input("X", "any shape")
      .output("Y", "X, or the bound that it is beyond; with an alpha alpha X below 0", like("X"))
      .output("bits", "where min < X < max, at infinity too if there is no max: of element i, bit i % 8 of byte i / 8")
      .types({DType::uint8})
      .in_place("X", "Y")
      .shape(infer_clip)
      .flops([](const ClipWithBitsArgs& a, const ShapeCall& c) { return a.alpha == 0 ? 0 : output_size(c, 0); })
      .example({"X=3,5,-2..2"}, {"min=0"})
      .example({"X=3,4,-2..2"}, {"min=-0.5", "max=0.8"})
      .example({"X=3,4,-2..2"}, {"min=0", "alpha=0.1"})
      .example({"X=0"})
      .cpu(clip_with_bits<float>, clip_with_bits<double>)
      .derivative("X", [](Formula& f) {
        return f.op("SelectByBits", {f.dy("Y"), f.y("bits")}, {make_arg("alpha", f.args<ClipWithBitsArgs>().alpha)});
      });
}

// SelectByBits: Y = X / (1 - ratio) where the bit of an element is set, else alpha X, which is 0 for an alpha of 0,
// whatever X is.
//
// dX = SelectByBits(dY, bits). It changes with X alone.

template <class T>
void select_by_bits(const SelectByBitsArgs& a, In<T> x, In<uint8_t> bits, Out<T> y) {
  const SelectByBits<T> fn{static_cast<T>(a.alpha), static_cast<T>(1 / (1 - static_cast<double>(a.ratio)))};
  const auto size = static_cast<int64_t>(x.size());
  parallel_for(static_cast<int64_t>(bits.size()), 4, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const unsigned byte = bits[at];
      each_of_byte(at, size, [&](int64_t i) { y[i] = fn((byte >> (i % 8) & 1) != 0, x[i]); });
    }
  });
}

ArgCheck<float> probability_below_one() {
  return [](const float& v) { return v >= 0 && v < 1 ? "" : "must be from 0 to less than 1"; };
}

void infer_select(const SelectByBitsArgs&, ShapeCall& c) {
  if (!c.known(0) || !c.known(1)) return;
  const int64_t bytes = bytes_of_bits(c.shape(0).size());
  require(c.shape(1) == Shape{bytes}, "bits is {}, but X, which is {}, needs [{}]", c.shape(1), c.shape(0), bytes);
}

REGISTER(select_by_bits) {
  return op<SelectByBitsArgs>("SelectByBits")
      .own()
      .doc("One multiple of X where the bit of an element is set, and another, or 0, where it is not.")
      .arg("alpha", &SelectByBitsArgs::alpha, 0.0F, "the factor where the bit is not set")
      .arg("ratio", &SelectByBitsArgs::ratio, 0.0F, "the factor elsewhere is 1 / (1 - ratio)", probability_below_one())
      .input("X", "any shape")
      .input("bits", "of element i, bit i % 8 of byte i / 8")
      .types({DType::uint8})
      .output("Y", "the products", like("X"))
      .in_place("X", "Y")
      .shape(infer_select)
      .flops([](const SelectByBitsArgs& a, const ShapeCall& c) {
        return a.alpha == 0 && a.ratio == 0 ? 0 : output_size(c, 0);
      })
      .example({"X=3,5", "bits=uint8,2:165,9"})
      .example({"X=4", "bits=uint8,1:6"}, {"alpha=0.1", "ratio=0.5"})
      .example({"X=0", "bits=uint8,0"})
      .cpu(select_by_bits<float>, select_by_bits<double>)
      .derivative("bits", [](Formula&) { return Gradient::zero(); })
      .derivative("X", [](Formula& f) {
        return f.op("SelectByBits", {f.dy("Y"), f.x("bits")}, f.forward_args());
      });
}

}  // namespace
}  // namespace stepnet::cpu_bits
