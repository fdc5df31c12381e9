// PackSegments and UnpackSegments: segments that stand one after the other, [sum of lengths, ...], as rows of one
// length, [N, longest, ...], and back. Behind a segment's end there are zeros, or minus infinity with pad_minf, which
// UnpackSegments drops. The presence mask is true where there is an element of a segment.
//
// The gradient of packing is unpacking. That of unpacking is UnpackSegmentsGradient, which packs into the shape that
// the packed tensor had: it may be longer than the longest segment. Backward reads the lengths.

#include <algorithm>
#include <limits>

#include "core/operator.h"
#include "operators/copy_elements.h"
#include "operators/segment_lengths.h"

namespace stepnet {
namespace {

struct PackArgs {
  bool pad_minf = false, return_presence_mask = false;
};

void pack_shape(const PackArgs& args, ShapeCall& call) {
  require(args.return_presence_mask || !call.wants(1),
          "there is an output for the presence mask, but argument \"return_presence_mask\" is not set");
  require_one_dimension(call, 0, "lengths");
  if (!call.known(1)) return;
  const Shape& x = call.shape(1);
  require(x.rank() >= 1, "the tensor is one value, which has no rows");
  require(!args.pad_minf || is_floating(call.dtype(1)), "argument \"pad_minf\" is set, but elements are {}",
          dtype_name(call.dtype(1)));
  if (!call.value(0)) return;
  const int64_t longest = check_segment_lengths(*call.value(0), x[0], "rows").longest;
  const int64_t segments = call.shape(0)[0];
  call.set(0, call.dtype(1), x.from(1).prepend(longest).prepend(segments));
  call.set(1, DType::boolean, Shape{segments, longest});
}

// The shape of the rows that the packed tensor of input 1 holds.
Shape unpacked_shape(const ShapeCall& call) {
  const Shape& packed = call.shape(1);
  const Tensor& lengths = *call.value(0);
  require(packed.rank() >= 2, "the packed segments must be [N, longest, ...], but are {}", packed);
  require(packed[0] == lengths.size(), "the packed segments {} are {}, but there are {} lengths", packed, packed[0],
          lengths.size());
  const SegmentLengths all = read_segment_lengths(lengths);
  with_indices(lengths, [&](auto values) {
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i] > packed[1])
        fail("length {} is {}, but the packed segments {} have {} rows each", i, values[i], packed, packed[1]);
  });
  return packed.from(2).prepend(all.sum);
}

void unpack_shape(const NoArgs&, ShapeCall& call) {
  require_one_dimension(call, 0, "lengths");
  if (call.known(1) && call.value(0)) call.set(0, call.dtype(1), unpacked_shape(call));
}

void gradient_shape(const NoArgs&, ShapeCall& call) {
  require_one_dimension(call, 0, "lengths");
  if (call.known(1) && call.value(0) && call.known(2)) {
    const Shape expected = unpacked_shape(call);
    require(call.shape(2) == expected && call.dtype(2) == call.dtype(1), "the gradient must be {}{}, but is {}",
            dtype_name(call.dtype(1)), expected, call.in(2));
  }
  call.set_like(0, 1);
}

// Calls fn(first row among the segments, first row among the packed ones, rows) for each segment.
template <class Fn>
void for_segments(const Tensor& lengths, int64_t longest, const Fn& fn) {
  with_indices(lengths, [&](auto values) {
    int64_t at = 0;
    for (size_t n = 0; n < values.size(); ++n) {
      fn(at, static_cast<int64_t>(n) * longest, static_cast<int64_t>(values[n]));
      at += values[n];
    }
  });
}

void fill_minus_infinity(Tensor& t) {
  if (t.dtype() == DType::float32) {
    std::ranges::fill(t.span<float>(), -std::numeric_limits<float>::infinity());
  } else {
    std::ranges::fill(t.span<double>(), -std::numeric_limits<double>::infinity());
  }
}

void put_segments(const Tensor& lengths, const Tensor& values, Tensor& packed) {
  if (packed.size() == 0) return;
  const int64_t row = packed.shape().size_between(2, packed.rank());
  for_segments(lengths, packed.dim(1), [&](int64_t from, int64_t to, int64_t rows) {
    copy_elements(values, from * row, packed, to * row, rows * row);
  });
}

void pack(const PackArgs& args, Call& call) {
  const Tensor& lengths = call.in(0);
  if (call.wants(0)) {
    Tensor& packed = call.out(0);
    if (args.pad_minf) {
      fill_minus_infinity(packed);
    } else {
      packed.fill_zero();
    }
    put_segments(lengths, call.in(1), packed);
  }
  if (!call.wants(1)) return;
  Tensor& mask = call.out(1);
  mask.fill_zero();
  for_segments(lengths, mask.dim(1),
               [&](int64_t, int64_t to, int64_t rows) { std::fill_n(mask.data<bool>() + to, rows, true); });
}

void unpack(const Tensor& lengths, const Tensor& packed, Tensor& values) {
  if (values.size() == 0) return;
  const int64_t row = values.shape().size_between(1, values.rank());
  for_segments(lengths, packed.dim(1), [&](int64_t to, int64_t from, int64_t rows) {
    copy_elements(packed, from * row, values, to * row, rows * row);
  });
}

void unpack_gradient(const Tensor& lengths, const Tensor&, const Tensor& dy, Tensor& dx) {
  dx.fill_zero();
  put_segments(lengths, dy, dx);
}

template <class Args>
OpBuilder<Args>& declare_lengths(OpBuilder<Args>& spec) {
  return spec.input("lengths", "[N], the number of rows of each segment").types({DType::int32, DType::int64});
}

REGISTER(pack_segments) {
  auto spec = op<PackArgs>("PackSegments");
  spec.doc("Segments that stand one after the other become rows of one length.")
      .arg("pad_minf", &PackArgs::pad_minf, false, "minus infinity, not zero, stands behind the ends")
      .arg("return_presence_mask", &PackArgs::return_presence_mask, false, "there is a second output");
  return declare_lengths(spec)
      .input("tensor", "[sum of lengths, ...] of any type")
      .any_type()
      .output("packed_tensor", "[N, longest, ...]")
      .any_type()
      .output("presence_mask", "[N, longest], true where a segment has a row")
      .types({DType::boolean})
      .optional()
      .shape(pack_shape)
      .cpu(pack)
      .derivative("tensor", [](Formula& f) {
        return f.op("UnpackSegments", {f.x("lengths"), f.dy("packed_tensor")});
      });
}

REGISTER(unpack_segments) {
  auto spec = op("UnpackSegments");
  return declare_lengths(spec)
      .doc("Rows of one length become segments that stand one after the other; what is behind their ends is dropped.")
      .input("tensor", "[N, longest or more, ...] of any type")
      .any_type()
      .output("packed_tensor", "[sum of lengths, ...]")
      .any_type()
      .shape(unpack_shape)
      .cpu(unpack)
      .derivative("tensor", [](Formula& f) {
        return f.op("UnpackSegmentsGradient", {f.x("lengths"), f.x("tensor"), f.dy("packed_tensor")});
      });
}

REGISTER(unpack_segments_gradient) {
  auto spec = op("UnpackSegmentsGradient");
  return declare_lengths(spec)
      .doc("Gradient of UnpackSegments with respect to the packed segments.")
      .input("tensor", "[N, longest or more, ...]; its values are not read")
      .any_type()
      .shape_only()
      .input("d_packed_tensor", "[sum of lengths, ...]")
      .any_type()
      .output("d_tensor", "as tensor")
      .any_type()
      .shape(gradient_shape)
      .cpu(unpack_gradient)
      .derivative("tensor", [](Formula&) { return Gradient::none(); })
      .derivative("d_packed_tensor", [](Formula& f) {
        return f.op("UnpackSegments", {f.x("lengths"), f.dy("d_tensor")});
      });
}

}  // namespace
}  // namespace stepnet
