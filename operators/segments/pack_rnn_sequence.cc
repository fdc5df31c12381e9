// PackRNNSequence and UnpackRNNSequence: samples one after the other, [sum of lengths, ...], as a sequence over time,
// [longest, B, ...], and back. Sample b is column b; behind its end there are zeros, which UnpackRNNSequence drops.
//
// The gradient of packing is unpacking. That of unpacking is UnpackRNNSequenceGradient, which packs into the shape that
// the packed tensor had: it may have had more timesteps than the longest sample. Backward reads the lengths.
#include <algorithm>

#include "operators/loops/copy_elements.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_pack_rnn_sequence {
namespace {

struct Lengths {
  int64_t sum = 0, longest = 0;
};

Lengths read_lengths(const Tensor& lengths) {
  Lengths all;
  for (const int32_t length : lengths.span<int32_t>()) {
    require(length >= 0, "a length must be at least 0, but is {}", length);
    all.sum += length;
    all.longest = std::max<int64_t>(all.longest, length);
  }
  return all;
}

void check_lengths(const ShapeCall& call) {
  if (call.known(1)) require(call.shape(1).rank() == 1, "lengths must be [B], but is {}", call.shape(1));
}

void check_packed(const Shape& packed, const Tensor& lengths) {
  require(packed.rank() >= 2, "the packed sequence must be [T, B, ...], but is {}", packed);
  require(packed[1] == lengths.size(), "the packed sequence {} has {} samples, but there are {} lengths", packed,
          packed[1], lengths.size());
  const int64_t longest = read_lengths(lengths).longest;
  require(longest <= packed[0], "a sample has {} timesteps, but the packed sequence {} has {}", longest, packed,
          packed[0]);
}

void pack_shape(const NoArgs&, ShapeCall& call) {
  check_lengths(call);
  if (!call.known(0)) return;
  const Shape& values = call.shape(0);
  require(call.dtype(0) != DType::string, "the values are strings, of which none is zero");
  require(values.rank() >= 1, "the values are one value, which has no rows");
  if (!call.value(1)) return;
  const Lengths lengths = read_lengths(*call.value(1));
  require(values[0] == lengths.sum, "the lengths add up to {} rows, but the values have {}", lengths.sum, values[0]);
  call.set(0, call.dtype(0), values.from(1).prepend(call.shape(1)[0]).prepend(lengths.longest));
}

void unpack_shape(const NoArgs&, ShapeCall& call) {
  check_lengths(call);
  if (!call.known(0) || !call.value(1)) return;
  check_packed(call.shape(0), *call.value(1));
  call.set(0, call.dtype(0), call.shape(0).from(2).prepend(read_lengths(*call.value(1)).sum));
}

void gradient_shape(const NoArgs&, ShapeCall& call) {
  check_lengths(call);
  if (!call.known(0)) return;
  if (call.value(1) && call.known(2)) {
    check_packed(call.shape(0), *call.value(1));
    const Shape expected = call.shape(0).from(2).prepend(read_lengths(*call.value(1)).sum);
    require(call.shape(2) == expected && call.dtype(2) == call.dtype(0), "the gradient must be {}{}, but is {}",
            dtype_name(call.dtype(0)), expected, call.in(2));
  }
  call.set_like(0, 0);
}

// Calls fn(row of the values, row of the packed sequence), of which each has B in a timestep.
template <class Fn>
void for_rows(const Tensor& lengths, Fn fn) {
  const int64_t batch = lengths.size();
  int64_t at = 0;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < lengths.data<int32_t>()[b]; ++t) fn(at++, t * batch + b);
}

void pack(const Tensor& values, const Tensor& lengths, Tensor& packed) {
  packed.fill_zero();
  if (packed.size() == 0) return;
  const int64_t row = packed.shape().size_between(2, packed.rank());
  for_rows(lengths, [&](int64_t from, int64_t to) { copy_elements(values, from * row, packed, to * row, row); });
}

void unpack(const Tensor& packed, const Tensor& lengths, Tensor& values) {
  if (values.size() == 0) return;
  const int64_t row = values.shape().size_between(1, values.rank());
  for_rows(lengths, [&](int64_t to, int64_t from) { copy_elements(packed, from * row, values, to * row, row); });
}

void unpack_gradient(const Tensor&, const Tensor& lengths, const Tensor& dy, Tensor& dx) { pack(dy, lengths, dx); }

REGISTER(pack_rnn_sequence) {
  return op("PackRNNSequence")
      .doc("Samples that stand one after the other become columns of a sequence, with zeros behind their ends.")
      .input("values", "[sum of lengths, ...]; numbers of any type")
      .any_type()
      .input("lengths", "[B], the number of rows of each sample")
      .types({DType::int32})
      .output("output", "[longest, B, ...]")
      .any_type()
      .shape(pack_shape)
      .cpu(pack)
      .example({"values=6,2", "lengths=int32,3:3,1,2"})
      .example({"values=3", "lengths=int32,2:0,3"})
      .example({"values=0,2", "lengths=int32,0"})
      .derivative("values", [](Formula& f) {
        return f.op("UnpackRNNSequence", {f.dy("output"), f.x("lengths")});
      });
}

REGISTER(unpack_rnn_sequence) {
  return op("UnpackRNNSequence")
      .doc("Columns of a sequence become samples that stand one after the other; what is behind their ends is dropped.")
      .input("values", "[T, B, ...] of any type")
      .any_type()
      .input("lengths", "[B], the number of timesteps of each sample, at most T")
      .types({DType::int32})
      .output("output", "[sum of lengths, ...]")
      .any_type()
      .shape(unpack_shape)
      .cpu(unpack)
      .example({"values=3,3,2", "lengths=int32,3:3,1,2"})
      .example({"values=3,2", "lengths=int32,2:0,1"})
      .example({"values=0,2,2", "lengths=int32,2:0,0"})
      .derivative("values", [](Formula& f) {
        return f.op("UnpackRNNSequenceGradient", {f.x("values"), f.x("lengths"), f.dy("output")});
      });
}

REGISTER(unpack_rnn_sequence_gradient) {
  return op("UnpackRNNSequenceGradient")
      .own()
      .doc("Gradient of UnpackRNNSequence with respect to the sequence.")
      .input("values", "[T, B, ...]; its values are not read")
      .any_type()
      .shape_only()
      .input("lengths", "[B]")
      .types({DType::int32})
      .input("d_output", "[sum of lengths, ...]")
      .any_type()
      .output("d_values", "as values")
      .any_type()
      .shape(gradient_shape)
      .cpu(unpack_gradient)
      .derivative("values", [](Formula&) { return Gradient::none(); })
      .derivative("d_output", [](Formula& f) {
        return f.op("UnpackRNNSequence", {f.dy("d_values"), f.x("lengths")});
      });
}

}  // namespace
}  // namespace stepnet::cpu_pack_rnn_sequence
