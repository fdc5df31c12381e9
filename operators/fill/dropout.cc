// Dropout: Y = X mask / (1 - ratio), where mask[i] is true with probability 1 - ratio; with is_test, Y = X.
//
// With channels = 1 there is one draw for each [N, C] of data [N, C, ...], so that whole channels are dropped (Tompson
// et al. 2015, "Efficient object localization using convolutional networks"). The mask has the data's shape all the
// same.
//
// dX = DropoutGrad(dY, mask) = dY mask / (1 - ratio), which reads the mask alone; with is_test the gradient of X is the
// gradient of Y itself. A packed mask has a bit for each element (bits.h), and SelectByBits reads it.

#include "operators/fill/dropout.h"

#include <algorithm>
#include <utility>

#include "core/compute/draws.h"
#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "operators/loops/bits.h"
#include "stepnet/operator.h"
#include "stepnet/random.h"

namespace stepnet::cpu_dropout {
namespace {

ArgCheck<float> probability_below_one() {
  return [](const float& v) { return v >= 0 && v < 1 ? "" : "must be from 0 to less than 1"; };
}

void shape(const DropoutArgs& args, ShapeCall& call) {
  if (!call.known(0)) return;
  require(!args.channels || call.shape(0).rank() >= 2, "with channels the data must be [N, C, ...], but has shape {}",
          call.shape(0));
  call.set_like(0, 0);
  if (args.packed)
    call.set(1, DType::uint8, Shape{bytes_of_bits(call.shape(0).size())});
  else
    call.set(1, DType::boolean, call.shape(0));
}

// The elements that one draw decides about.
template <class T>
void drop_run(bool keep, T scale, int64_t at, int64_t size, In<T> x, Out<T> y, Out<bool> mask) {
  for (int64_t i = at; i < at + size; ++i) y[i] = keep ? x[i] * scale : T{0};
  if (!mask.empty()) std::fill_n(mask.begin() + at, size, keep);
}

// Draws are made a piece at a time.
constexpr int64_t kDrawnPiece = 256;

// The same with a draw for each element.
template <class T>
void drop_each(uint64_t key, double ratio, T scale, int64_t begin, int64_t end, In<T> x, Out<T> y, Out<bool> mask) {
  double drawn[kDrawnPiece];
  for (int64_t first = begin; first < end; first += kDrawnPiece) {
    const int64_t count = std::min(kDrawnPiece, end - first);
    random_uniforms(key, static_cast<uint64_t>(first), count, drawn);
    for (int64_t i = 0; i < count; ++i) y[first + i] = drawn[i] >= ratio ? x[first + i] * scale : T{0};
    if (mask.empty()) continue;
    for (int64_t i = 0; i < count; ++i) mask[first + i] = drawn[i] >= ratio;
  }
}

// Elements of one byte of the mask are drawn by one thread.
template <class T>
void drop_packed(const DropoutArgs& args, In<T> x, Out<T> y, Out<uint8_t> mask, const Call& call) {
  const Shape& shape = call.in(0).shape();
  const int64_t run = args.channels ? shape.size_between(2, shape.rank()) : 1;
  const auto size = static_cast<int64_t>(x.size());
  const double ratio = args.is_test ? 0 : args.ratio;
  const T scale = static_cast<T>(1 / (1 - ratio));
  parallel_for(static_cast<int64_t>(mask.size()), run == 1 ? 16 : 120, [&](int64_t begin, int64_t end) {
    double drawn[kDrawnPiece];
    int64_t known = 0, draw = -1;  // draws of the piece, one for each element; else the draw of the last one
    bool keep = false;
    const auto stays = [&](int64_t i) {
      if (args.is_test) return true;
      if (run == 1) return drawn[i - known] >= ratio;
      if (i / run != std::exchange(draw, i / run)) keep = dropout_keeps(call.random_key, draw, ratio);
      return keep;
    };
    for (int64_t at = begin; at < end; ++at) {
      if (run == 1 && !args.is_test && (at - begin) % (kDrawnPiece / 8) == 0) {
        known = at * 8;
        random_uniforms(call.random_key, static_cast<uint64_t>(known), std::min(kDrawnPiece, size - known), drawn);
      }
      unsigned byte = 0;
      each_of_byte(at, size, [&](int64_t i) {
        const bool stay = stays(i);
        byte |= static_cast<unsigned>(stay) << (i % 8);
        y[i] = stay ? x[i] * scale : T{0};
      });
      mask[at] = static_cast<uint8_t>(byte);
    }
  });
}

template <class T>
void dropout(const DropoutArgs& args, In<T> x, Out<T> y, Call& call) {
  if (args.packed && call.wants(1)) return drop_packed(args, x, y, call.out_span<uint8_t>(1), call);
  const Out<bool> mask = call.out_span<bool>(1);
  if (args.is_test) {
    if (x.data() != y.data()) std::ranges::copy(x, y.begin());
    std::ranges::fill(mask, true);
    return;
  }
  const Shape& shape = call.in(0).shape();
  const int64_t size = args.channels ? shape.size_between(2, shape.rank()) : 1;
  if (size == 0) return;
  const double ratio = args.ratio;
  const T scale = static_cast<T>(1 / (1 - ratio));
  const auto draws = static_cast<int64_t>(x.size()) / size;
  if (size == 1) {
    parallel_for(draws, 2,
                 [&](int64_t begin, int64_t end) { drop_each(call.random_key, ratio, scale, begin, end, x, y, mask); });
    return;
  }
  parallel_for(draws, 14 + static_cast<double>(size), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      drop_run(dropout_keeps(call.random_key, i, ratio), scale, i * size, size, x, y, mask);
  });
}

template <class T>
void dropout_grad(const DropoutArgs& args, In<T> dy, In<bool> mask, Out<T> dx) {
  if (args.is_test) {
    if (dy.data() != dx.data()) std::ranges::copy(dy, dx.begin());
    return;
  }
  const T scale = static_cast<T>(1 / (1 - static_cast<double>(args.ratio)));
  parallel_for(static_cast<int64_t>(dy.size()), 0.5, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) dx[i] = mask[i] ? dy[i] * scale : T{0};
  });
}

void grad_shape(const DropoutArgs& args, ShapeCall& call) {
  require(args.is_test || call.has(1), "the mask is missing");
  if (call.known(0) && call.known(1))
    require(call.shape(0) == call.shape(1), "dY has shape {}, but the mask {}", call.shape(0), call.shape(1));
}

Gradient gradient(Formula& f) {
  if (f.args<DropoutArgs>().is_test) return f.dy("output");
  const Value mask = f.y("mask");
  require(mask.defined(), "the gradient reads the second output, the mask, which this Dropout does not have");
  if (f.args<DropoutArgs>().packed)
    return f.op("SelectByBits", {f.dy("output"), mask}, {make_arg("ratio", f.args<DropoutArgs>().ratio)});
  return f.op("DropoutGrad", {f.dy("output"), mask}, f.forward_args());
}

OpBuilder<DropoutArgs>& declare_args(OpBuilder<DropoutArgs>& spec) {
  return spec.arg("ratio", &DropoutArgs::ratio, 0.5f, "the probability of 0", probability_below_one())
      .arg("is_test", &DropoutArgs::is_test, false, "drop nothing")
      .arg("channels", &DropoutArgs::channels, false,
           "of data [N, C, ...], drop whole channels: one draw for each [N, C]")
      .own_args({"channels"});
}

REGISTER(dropout) {
  auto spec = op<DropoutArgs>("Dropout");
  return declare_args(spec)
      .arg("packed", &DropoutArgs::packed, false, "the mask is bits: of element i, bit i % 8 of byte i / 8")
      .own_args({"channels", "packed"})
      .doc(
          "Sets elements, or whole channels, to 0 at random and scales the others by 1 / (1 - ratio), so that the mean "
          "stays.")
      .input("data", "any shape; with channels, at least two dimensions")
      .output("output", "the data with gaps", like("data"))
      .output("mask", "bools, true where the data was kept; if packed, uint8 [(elements + 7) / 8]")
      .types({DType::boolean, DType::uint8})
      .optional()
      .in_place("data", "output")
      .shape(shape)
      .random()
      .flops([](const auto& a, const ShapeCall& c) { return a.is_test ? 0 : output_size(c, 0); })
      .cpu(dropout<float>, dropout<double>)
      .derivative("data", gradient)
      .example({"data=2,3"})
      .example({"data=2,3,2"}, {"ratio=0.25", "channels=1"})
      .example({"data=2,3"}, {"ratio=0.75", "is_test=1"})
      .example({"data=3,5"}, {"packed=1"})
      .example({"data=0,3"});
}

REGISTER(dropout_grad) {
  auto spec = op<DropoutArgs>("DropoutGrad");
  return declare_args(spec)
      .doc("Gradient of Dropout.")
      .input("dY", "gradient of the output")
      .input("mask", "true where the data was kept; not needed with is_test")
      .types({DType::boolean})
      .optional()
      .output("dX", "gradient of the data", like("dY"))
      .in_place("dY", "dX")
      .shape(grad_shape)
      .elementwise()
      .flops([](const auto& a, const ShapeCall& c) { return a.is_test ? 0 : output_size(c, 0); })
      .cpu(dropout_grad<float>, dropout_grad<double>)
      .derivative("dY", [](Formula& f) {
        return f.op("DropoutGrad", {f.dy("dX"), f.x("mask")}, f.forward_args());
      });
}

}  // namespace
}  // namespace stepnet::cpu_dropout
