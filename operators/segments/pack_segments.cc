// Segments that are packed as rows of one length, unpacked again, or turned around: PackSegments, UnpackSegments and
// ReversePackedSegs.
#include "operators/segments/pack_segments.h"

#include <algorithm>
#include <limits>

#include "core/compute/threads.h"
#include "operators/loops/copy_elements.h"
#include "operators/loops/segment_lengths.h"
#include "stepnet/half.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_pack_segments {
namespace {

// PackSegments and UnpackSegments: segments that stand one after the other, [sum of lengths, ...], as rows of one
// length, [N, longest, ...], and back. Behind a segment's end there are zeros, or minus infinity with pad_minf, which
// UnpackSegments drops. The presence mask is true where there is an element of a segment. With max_length rows have
// that length: what a longer segment has behind it is lost, and UnpackSegments gives only what was kept.
//
// The gradient of packing is unpacking, or with max_length PackSegmentsGradient, which gives zeros for what was lost.
// That of unpacking is UnpackSegmentsGradient, which packs into the shape that the packed tensor had: it may be longer
// than the longest segment. Backward reads the lengths.

void pack_shape(const PackSegmentsArgs& args, ShapeCall& call) {
  require(args.return_presence_mask || !call.wants(1),
          "there is an output for the presence mask, but argument \"return_presence_mask\" is not set");
  require_one_dimension(call, 0, "lengths");
  if (!call.known(1)) return;
  const Shape& x = call.shape(1);
  require(x.rank() >= 1, "the tensor is one value, which has no rows");
  const bool has_infinity = is_floating(call.dtype(1));
  require(!args.pad_minf || has_infinity, "argument \"pad_minf\" is set, but elements are {}",
          dtype_name(call.dtype(1)));
  if (!call.value(0)) return;
  const int64_t longest = check_segment_lengths(*call.value(0), x[0], "rows").longest;
  const int64_t segments = call.shape(0)[0], rows = args.max_length < 0 ? longest : args.max_length;
  call.set(0, call.dtype(1), x.from(1).prepend(rows).prepend(segments));
  call.set(1, DType::boolean, Shape{segments, rows});
}

// How many rows of the segments the packed tensor, input 1, holds.
int64_t kept_rows(const UnpackSegmentsArgs& args, const ShapeCall& call) {
  const Shape& packed = call.shape(1);
  const Tensor& lengths = *call.value(0);
  require(packed.rank() >= 2, "the packed segments must be [N, longest, ...], but are {}", packed);
  require(packed[0] == lengths.size(), "the packed segments {} are {}, but there are {} lengths", packed, packed[0],
          lengths.size());
  read_segment_lengths(lengths);
  int64_t sum = 0;
  with_indices(lengths, [&](auto values) {
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t rows = args.kept(values[i]);
      if (rows > packed[1])
        fail("length {} is {}, but the packed segments {} have {} rows each", i, values[i], packed, packed[1]);
      sum += rows;
    }
  });
  return sum;
}

Shape unpacked_shape(const UnpackSegmentsArgs& args, const ShapeCall& call) {
  const int64_t rows = kept_rows(args, call);
  return call.shape(1).from(2).prepend(rows);
}

void unpack_shape(const UnpackSegmentsArgs& args, ShapeCall& call) {
  require_one_dimension(call, 0, "lengths");
  if (call.known(1) && call.value(0)) call.set(0, call.dtype(1), unpacked_shape(args, call));
}

void unpack_gradient_shape(const UnpackSegmentsArgs& args, ShapeCall& call) {
  require_one_dimension(call, 0, "lengths");
  if (call.known(1) && call.value(0) && call.known(2)) {
    const Shape expected = unpacked_shape(args, call);
    require(call.shape(2) == expected && call.dtype(2) == call.dtype(1), "the gradient must be {}{}, but is {}",
            dtype_name(call.dtype(1)), expected, call.in(2));
  }
  call.set_like(0, 1);
}

// lengths, the gradient of the packed tensor.
void pack_gradient_shape(const UnpackSegmentsArgs& args, ShapeCall& call) {
  require_one_dimension(call, 0, "lengths");
  require(args.max_length >= 0, "it needs the argument \"max_length\"");
  if (!call.known(1) || !call.value(0)) return;
  kept_rows(args, call);
  require(call.shape(1)[1] == args.max_length, "the gradient {} has {} rows for each segment, but max_length is {}",
          call.shape(1), call.shape(1)[1], args.max_length);
  call.set(0, call.dtype(1), call.shape(1).from(2).prepend(read_segment_lengths(*call.value(0)).sum));
}

// Calls fn(first row among the segments, first row among the packed ones, rows) for each segment. What is not kept
// has its place among the segments if `with_lost`.
template <class Fn>
void for_segments(const UnpackSegmentsArgs& args, const Tensor& lengths, int64_t longest, bool with_lost,
                  const Fn& fn) {
  with_indices(lengths, [&](auto values) {
    int64_t at = 0;
    for (size_t n = 0; n < values.size(); ++n) {
      const int64_t kept = args.kept(values[n]);
      fn(at, static_cast<int64_t>(n) * longest, kept);
      at += with_lost ? static_cast<int64_t>(values[n]) : kept;
    }
  });
}

void fill_minus_infinity(Tensor& t) {
  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  if (with_half(t.dtype(), [&](auto zero) { std::ranges::fill(t.span<decltype(zero)>(), kLeast); })) return;
  if (t.dtype() == DType::float32) {
    std::ranges::fill(t.span<float>(), kLeast);
  } else {
    std::ranges::fill(t.span<double>(), -std::numeric_limits<double>::infinity());
  }
}

void put_segments(const UnpackSegmentsArgs& args, const Tensor& lengths, const Tensor& values, Tensor& packed,
                  bool with_lost) {
  if (packed.size() == 0) return;
  const int64_t row = packed.shape().size_between(2, packed.rank());
  for_segments(args, lengths, packed.dim(1), with_lost, [&](int64_t from, int64_t to, int64_t rows) {
    copy_elements(values, from * row, packed, to * row, rows * row);
  });
}

void take_segments(const UnpackSegmentsArgs& args, const Tensor& lengths, const Tensor& packed, Tensor& values,
                   bool with_lost) {
  if (values.size() == 0 || packed.size() == 0) return;
  const int64_t row = values.shape().size_between(1, values.rank());
  for_segments(args, lengths, packed.dim(1), with_lost, [&](int64_t to, int64_t from, int64_t rows) {
    copy_elements(packed, from * row, values, to * row, rows * row);
  });
}

void pack(const PackSegmentsArgs& args, Call& call) {
  const Tensor& lengths = call.in(0);
  if (call.wants(0)) {
    Tensor& packed = call.out(0);
    if (args.pad_minf) {
      fill_minus_infinity(packed);
    } else {
      packed.fill_zero();
    }
    put_segments(args, lengths, call.in(1), packed, true);
  }
  if (!call.wants(1)) return;
  Tensor& mask = call.out(1);
  mask.fill_zero();
  for_segments(args, lengths, mask.dim(1), true,
               [&](int64_t, int64_t to, int64_t rows) { std::fill_n(mask.data<bool>() + to, rows, true); });
}

void pack_gradient(const UnpackSegmentsArgs& args, const Tensor& lengths, const Tensor& dy, Tensor& dx) {
  dx.fill_zero();
  take_segments(args, lengths, dy, dx, true);
}

void unpack(const UnpackSegmentsArgs& args, const Tensor& lengths, const Tensor& packed, Tensor& values) {
  take_segments(args, lengths, packed, values, false);
}

void unpack_gradient(const UnpackSegmentsArgs& args, const Tensor& lengths, const Tensor&, const Tensor& dy,
                     Tensor& dx) {
  dx.fill_zero();
  put_segments(args, lengths, dy, dx, false);
}

template <class Args>
OpBuilder<Args>& declare_lengths(OpBuilder<Args>& spec) {
  return spec
      .arg("max_length", static_cast<int64_t Args::*>(&UnpackSegmentsArgs::max_length), UnpackSegmentsArgs::kNoMaximum,
           "how many rows of each segment are kept, and the length of the packed ones; -1: that of the longest",
           at_least(-1))
      .input("lengths", "[N], the number of rows of each segment")
      .types({DType::int32, DType::int64});
}

std::vector<Argument> max_length_arg(int64_t value) {
  if (value < 0) return {};
  return {make_arg("max_length", value)};
}

Gradient of_packed(Formula& f, const char* type, const char* output, int64_t max_length) {
  return f.op(type, {f.x("lengths"), f.dy(output)}, max_length_arg(max_length));
}

REGISTER(pack_segments) {
  auto spec = op<PackSegmentsArgs>("PackSegments");
  spec.doc("Segments that stand one after the other become rows of one length.")
      .arg("pad_minf", &PackSegmentsArgs::pad_minf, false, "minus infinity, not zero, stands behind the ends")
      .arg("return_presence_mask", &PackSegmentsArgs::return_presence_mask, false, "there is a second output");
  return declare_lengths(spec)
      .input("tensor", "[sum of lengths, ...] of any type; with pad_minf a floating one")
      .any_type()
      .output("packed_tensor", "[N, longest, ...], or [N, max_length, ...]")
      .any_type()
      .output("presence_mask", "[N, longest], true where a segment has a row")
      .types({DType::boolean})
      .optional()
      .shape(pack_shape)
      .cpu(pack)
      .example({"lengths=int32,3:3,1,2", "tensor=6,2"}, {"return_presence_mask=1"})
      .example({"lengths=int64,2:0,0", "tensor=0,2"}, {"return_presence_mask=1"})
      .example({"lengths=int32,3:3,1,2", "tensor=6,2"}, {"return_presence_mask=1", "max_length=2"})
      .example({"lengths=int32,2:2,1", "tensor=3"}, {"return_presence_mask=1", "max_length=3"})
      .example_net(R"(op { type: "PackSegments" input: "L" input: "X" output: "Y" arg { name: "pad_minf" i: 1 } })",
                   {"L=int32,2:2,1", "X=3"})
      .derivative("tensor", [](Formula& f) {
        const int64_t most = f.args<PackSegmentsArgs>().max_length;
        return of_packed(f, most < 0 ? "UnpackSegments" : "PackSegmentsGradient", "packed_tensor", most);
      });
}

REGISTER(pack_segments_gradient) {
  auto spec = op<UnpackSegmentsArgs>("PackSegmentsGradient");
  spec.own();
  return declare_lengths(spec)
      .doc("Gradient of PackSegments with max_length: rows that were not kept have zeros.")
      .input("d_packed_tensor", "[N, max_length, ...]")
      .any_type()
      .output("d_tensor", "[sum of lengths, ...]")
      .any_type()
      .shape(pack_gradient_shape)
      .cpu(pack_gradient)
      .derivative("d_packed_tensor", [](Formula& f) {
        return of_packed(f, "PackSegments", "d_tensor", f.args<UnpackSegmentsArgs>().max_length);
      });
}

REGISTER(unpack_segments) {
  auto spec = op<UnpackSegmentsArgs>("UnpackSegments");
  return declare_lengths(spec)
      .doc("Rows of one length become segments that stand one after the other; what is behind their ends is dropped.")
      .accepts("pad_minf", "PackSegments', whose gradient carries it: what is behind the ends is dropped")
      .accepts("return_presence_mask", "PackSegments', whose gradient carries it: lengths say as much")
      .input("tensor", "[N, longest or more, ...] of any type; with max_length that many rows are enough")
      .any_type()
      .output("packed_tensor", "[sum of lengths, ...], of which none counts more than max_length")
      .any_type()
      .shape(unpack_shape)
      .cpu(unpack)
      .example({"lengths=int32,3:3,1,2", "tensor=3,3,2"})
      .example({"lengths=int64,2:0,1", "tensor=2,3"})
      .example({"lengths=int32,3:3,1,2", "tensor=3,2,2"}, {"max_length=2"})
      .example({"lengths=int32,0", "tensor=0,0,2"})
      .derivative("tensor", [](Formula& f) {
        return f.op("UnpackSegmentsGradient", {f.x("lengths"), f.x("tensor"), f.dy("packed_tensor")},
                    max_length_arg(f.args<UnpackSegmentsArgs>().max_length));
      });
}

REGISTER(unpack_segments_gradient) {
  auto spec = op<UnpackSegmentsArgs>("UnpackSegmentsGradient");
  spec.own();
  return declare_lengths(spec)
      .doc("Gradient of UnpackSegments with respect to the packed segments.")
      .input("tensor", "[N, longest or more, ...]; its values are not read")
      .any_type()
      .shape_only()
      .input("d_packed_tensor", "[sum of lengths, ...]")
      .any_type()
      .output("d_tensor", "as tensor")
      .any_type()
      .shape(unpack_gradient_shape)
      .cpu(unpack_gradient)
      .derivative("tensor", [](Formula&) { return Gradient::none(); })
      .derivative("d_packed_tensor", [](Formula& f) {
        return of_packed(f, "UnpackSegments", "d_tensor", f.args<UnpackSegmentsArgs>().max_length);
      });
}

// ReversePackedSegs: turns the first lengths[b] timesteps of each sample b of a sequence around. What stands behind a
// sample's end stays where it is.
//
// dX = ReversePackedSegs(dY); backward reads the lengths.

void reverse_infer(const NoArgs&, ShapeCall& call) {
  require_one_dimension(call, 1, "lengths");
  if (!call.known(0)) return;
  const Shape& x = call.shape(0);
  require(x.rank() >= 2, "data must be [T, B, ...], but is {}", x);
  if (call.known(1))
    require(x[1] == call.shape(1)[0], "data {} has {} samples, but there are {} lengths", x, x[1], call.shape(1)[0]);
  call.set_like(0, 0);
}

void check_reversed_lengths(const Tensor& lengths, const Shape& x) {
  read_segment_lengths(lengths);
  with_indices(lengths, [&](auto values) {
    for (size_t b = 0; b < values.size(); ++b)
      if (values[b] > x[0]) fail("length {} is {}, but data {} has {} timesteps", b, values[b], x, x[0]);
  });
}

void reverse_segments(Call& call) {
  const Tensor& x = call.in(0);
  Tensor& y = call.out(0);
  check_reversed_lengths(call.in(1), x.shape());
  if (y.size() == 0) return;
  const int64_t batch = x.dim(1), row = x.shape().size_between(2, x.rank());
  const double nanoseconds = 3 + 0.1 * static_cast<double>(row) * static_cast<double>(dtype_size(x.dtype()));
  with_indices(call.in(1), [&](auto lengths) {
    parallel_for(x.dim(0) * batch, nanoseconds, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t t = r / batch, b = r % batch, length = lengths[b];
        const int64_t from = t < length ? length - 1 - t : t;
        copy_elements(x, (from * batch + b) * row, y, r * row, row);
      }
    });
  });
}

REGISTER(reverse_packed_segs) {
  return op("ReversePackedSegs")
      .doc("Turns each sample of a sequence around, up to its own length.")
      .input("data", "[T, B, ...] of any type")
      .any_type()
      .input("lengths", "[B], the number of timesteps of each sample, at most T")
      .types({DType::int32, DType::int64})
      .output("reversed_data", "as data")
      .any_type()
      .shape(reverse_infer)
      .cpu(reverse_segments)
      .example({"data=3,3,2", "lengths=int32,3:3,1,2"})
      .example({"data=2,1", "lengths=int64,1:0"})
      .example({"data=0,2,2", "lengths=int32,2:0,0"})
      .derivative("data", [](Formula& f) {
        return f.op("ReversePackedSegs", {f.dy("reversed_data"), f.x("lengths")});
      });
}

}  // namespace
}  // namespace stepnet::cpu_pack_segments
