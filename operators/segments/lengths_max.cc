// LengthsMax: the largest of each segment of the rows of DATA, column by column. An empty segment gives zeros; NaN
// counts as greater than any number.
//
// dDATA = LengthsMaxGradient(dY): the segment's gradient, undivided, for each element that equals the maximum. Its own
// derivative with respect to dY is the sum over those elements. Backward reads DATA, OUTPUT and LENGTHS. Nets of the
// public format have it as LengthsMaxWithMainInputAndForwardOutputGradient, with the inputs in another order.
#include "operators/segments/lengths_max.h"

#include <algorithm>

#include "operators/loops/composing.h"
#include "operators/loops/segment_rows.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_lengths_max {
namespace {

void infer(const NoArgs&, ShapeCall& call) {
  if (call.known(0)) require(call.shape(0).rank() >= 1, "DATA is a single value, which has no rows");
  require_one_dimension(call, 1, "LENGTHS");
  if (call.known(0) && call.known(1)) call.set(0, call.dtype(0), call.shape(0).with(0, call.shape(1)[0]));
}

// Which inputs of a gradient these are; LENGTHS are input 2 of both.
constexpr int kData[] = {0, 3}, kOutput[] = {1, 0}, kGradient[] = {3, 1};

template <bool kPublic>
void infer_gradient(const NoArgs&, ShapeCall& call) {
  const int data = kData[kPublic], output = kOutput[kPublic];
  if (call.known(data)) require(call.shape(data).rank() >= 1, "DATA is a single value, which has no rows");
  require_one_dimension(call, 2, "LENGTHS");
  for (const int i : {output, kGradient[kPublic]}) {
    if (!call.known(data) || !call.known(2) || !call.known(i)) continue;
    const Shape expected = call.shape(data).with(0, call.shape(2)[0]);
    require(call.shape(i) == expected, "{} must be {}, but is {}", i == output ? "OUTPUT" : "its gradient", expected,
            call.shape(i));
  }
  call.set_like(0, data);
}

template <class T>
void maxima(const Tensor& data, const Tensor& lengths, Out<T> y) {
  check_segment_lengths(lengths, data.dim(0), "rows");
  if (y.empty()) return;
  const int64_t row = data.shape().size_between(1, data.rank());
  const T* from = data.data<T>();
  for_segments(lengths, segment_cost(data.dim(0), row, lengths.size()), [&](int64_t segment, int64_t at, int64_t rows) {
    T* to = y.data() + segment * row;
    if (rows == 0) std::fill_n(to, row, T(0));
    if (rows > 0) std::copy_n(from + at * row, row, to);
    for (int64_t k = at + 1; k < at + rows; ++k)
      for (int64_t j = 0; j < row; ++j) to[j] = LargerOrNan()(to[j], from[k * row + j]);
  });
}

template <bool kPublic, class T>
void maxima_gradient(Out<T> dx, Call& call) {
  const Tensor& lengths = call.in(2);
  const In<T> data = call.in_span<T>(kData[kPublic]), y = call.in_span<T>(kOutput[kPublic]);
  const In<T> dy = call.in_span<T>(kGradient[kPublic]);
  const Shape& shape = call.in(kData[kPublic]).shape();
  check_segment_lengths(lengths, shape[0], "rows");
  if (dx.empty()) return;
  const int64_t row = shape.size_between(1, shape.rank());
  for_segments(lengths, segment_cost(shape[0], row, lengths.size()), [&](int64_t segment, int64_t at, int64_t rows) {
    for (int64_t k = at; k < at + rows; ++k)
      for (int64_t j = 0; j < row; ++j) {
        const int64_t i = k * row + j, s = segment * row + j;
        dx[i] = is_maximum(data[i], y[s]) ? dy[s] : T(0);
      }
  });
}

// The sum, over each segment, of the gradients of the elements that took part.
Gradient second(Formula& f) {
  const Value ones = composing::fill(f, f.x("d_OUTPUT"), 1);
  const Value taken = f.op("LengthsMaxGradient", {f.x("DATA"), f.x("OUTPUT"), f.x("LENGTHS"), ones});
  return f.op("LengthsSum", {f.op("Mul", {f.dy("d_DATA"), taken}), f.x("LENGTHS")});
}

REGISTER(lengths_max) {
  return op("LengthsMax")
      .doc(
          "The largest of each segment's rows, column by column; zeros for an empty segment. NaN counts as greater "
          "than any number.")
      .input("DATA", "[sum of lengths, ...]")
      .input("LENGTHS", kLengthsDoc)
      .types({DType::int32, DType::int64})
      .output("OUTPUT", "[N, ...]")
      .shape(infer)
      .cpu_for<float>(maxima<float>)
      .cpu_for<double>(maxima<double>)
      .example({"DATA=6,2", "LENGTHS=int32,4:3,0,1,2"})
      .example({"DATA=3", "LENGTHS=int64,1:3"})
      .example({"DATA=0,2", "LENGTHS=int32,1:0"})
      .derivative("DATA", [](Formula& f) {
        return f.op("LengthsMaxGradient", {f.x("DATA"), f.y("OUTPUT"), f.x("LENGTHS"), f.dy("OUTPUT")});
      });
}

REGISTER(lengths_max_gradient) {
  return op("LengthsMaxGradient")
      .own()
      .doc("Gradient of LengthsMax: the segment's gradient for each element that equals the maximum.")
      .input("DATA", "[sum of lengths, ...]")
      .input("OUTPUT", "[N, ...], the maxima")
      .input("LENGTHS", kLengthsDoc)
      .types({DType::int32, DType::int64})
      .input("d_OUTPUT", "[N, ...], their gradient")
      .output("d_DATA", "as DATA")
      .shape(infer_gradient<false>)
      .cpu(maxima_gradient<false, float>, maxima_gradient<false, double>)
      .derivative("DATA", [](Formula&) { return Gradient::zero(); })
      .derivative("OUTPUT", [](Formula&) { return Gradient::zero(); })
      .derivative("d_OUTPUT", second);
}

REGISTER(lengths_max_with_main_input_and_forward_output_gradient) {
  return op("LengthsMaxWithMainInputAndForwardOutputGradient")
      .doc("Gradient of LengthsMax: the segment's gradient for each element that equals the maximum.")
      .input("OUTPUT", "[N, ...], the maxima")
      .input("d_OUTPUT", "[N, ...], their gradient")
      .input("LENGTHS", kLengthsDoc)
      .types({DType::int32, DType::int64})
      .input("DATA", "[sum of lengths, ...]")
      .output("d_DATA", "as DATA")
      .shape(infer_gradient<true>)
      .cpu(maxima_gradient<true, float>, maxima_gradient<true, double>)
      .example_net(
          R"(op { type: "LengthsMax" input: "DATA" input: "LENGTHS" output: "OUTPUT" }
             op { type: "LengthsMaxWithMainInputAndForwardOutputGradient" input: "OUTPUT" input: "d_OUTPUT"
                  input: "LENGTHS" input: "DATA" output: "d_DATA" })",
          {"DATA=4,2", "LENGTHS=int32,3:3,0,1", "d_OUTPUT=3,2"}, {"d_DATA"})
      .derivative("DATA", [](Formula&) { return Gradient::zero(); })
      .derivative("OUTPUT", [](Formula&) { return Gradient::zero(); })
      .derivative("d_OUTPUT", second);
}

}  // namespace
}  // namespace stepnet::cpu_lengths_max
