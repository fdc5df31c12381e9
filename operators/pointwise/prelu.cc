// PRelu: Y = X where X > 0, else slope X. The slope is one number, or one for each channel: of dimension 1, or with
// order NHWC of the last one.
//
// dX = dY where X > 0, else slope dY; dSlope = the sum of dY X over the places where X is not positive. dX reads X and
// the slope, dSlope X. PReluGradient has Y among its inputs, as the public format does, but of it only the shape.

#include "operators/pointwise/prelu.h"

#include <algorithm>

#include "core/operator/flops.h"
#include "operators/pointwise/elementwise_binary.h"

namespace stepnet::cpu_prelu {
namespace {

void check_slope(const PReluArgs& a, const Shape& x, const Shape& slope) {
  if (slope.size() == 1 && slope.rank() <= 1) return;
  const int channel = a.channels_last() ? x.rank() - 1 : 1;
  require(channel >= 0 && channel < x.rank(),
          "X {} has no channels in order {}, so that the slope must be one number, but it is {}", x, a.order, slope);
  require(slope == Shape{x[channel]}, "the slope must be one number or [{}], one for each channel of X {}, but is {}",
          x[channel], x, slope);
}

// How many leading dimensions of X, at input kX, are rows to which the same slopes belong.
template <int kX>
int rows(const PReluArgs& a, const ShapeCall& c) {
  if (!c.known(kX) || !c.known(kX + 1)) return 0;
  if (c.shape(kX + 1).size() == 1) return Shape::kMaxRank;
  return a.channels_last() ? c.shape(kX).rank() - 1 : 1;
}

void infer(const PReluArgs& a, ShapeCall& c) {
  if (c.known(0) && c.known(1)) check_slope(a, c.shape(0), c.shape(1));
  c.set_like(0, 0);
}

void infer_gradient(const PReluArgs& a, ShapeCall& c) {
  if (c.known(1) && c.known(2)) require(c.shape(1) == c.shape(2), "dY is {}, but X {}", c.shape(1), c.shape(2));
  if (c.known(2) && c.known(3)) check_slope(a, c.shape(2), c.shape(3));
  c.set_like(0, 2);
  c.set_like(1, 3);
}

template <class T>
void forward(const PReluArgs& a, In<T> x, In<T> slope, Out<T> y, Call& call) {
  elementwise_binary<Bent<T>>(a.layout(), x, slope, y, call);
}

template <class T>
void gradient_of_x(const BroadcastRun& run, const T* dy, const T* x, const T* slope, T* dx) {
  const int64_t step = run.b_moves ? 1 : 0;
  for (int64_t i = 0; i < run.size; ++i) dx[i] = x[i] > T(0) ? dy[i] : slope[i * step] * dy[i];
}

template <class T>
void gradient_of_slope(const BroadcastRun& run, const T* dy, const T* x, T* dslope) {
  if (run.b_moves) {
    for (int64_t i = 0; i < run.size; ++i) dslope[i] += x[i] > T(0) ? T(0) : dy[i] * x[i];
  } else {
    double sum = 0;
    for (int64_t i = 0; i < run.size; ++i) sum += x[i] > T(0) ? 0.0 : static_cast<double>(dy[i] * x[i]);
    *dslope += static_cast<T>(sum);
  }
}

template <class T>
void gradient(const PReluArgs& a, In<T>, In<T> dy, In<T> x, In<T> slope, Out<T> dx, Out<T> dslope, Call& call) {
  if (call.wants(1) && !call.accumulates(1)) std::fill(dslope.begin(), dslope.end(), T(0));
  const Broadcast shapes = broadcast_shapes(a.layout(), call.in(2).shape(), call.in(3).shape());
  BroadcastRuns(shapes).each([&](const BroadcastRun& run) {
    const T *d = dy.data() + run.out, *from = x.data() + run.out;
    if (call.wants(0)) gradient_of_x(run, d, from, slope.data() + run.b, dx.data() + run.out);
    if (call.wants(1)) gradient_of_slope(run, d, from, dslope.data() + run.b);
  });
}

std::vector<Gradient> derivatives(Formula& f) {
  const std::vector<Value> d = f.ops("PReluGradient", {f.y("Y"), f.dy("Y"), f.x("X"), f.x("Slope")}, f.forward_args(),
                                     {f.wants("X"), f.wants("Slope")});
  return {d[0], d[1]};
}

std::vector<Argument> layout_args(const Formula& f) {
  const BroadcastArgs layout = f.args<PReluArgs>().layout();
  return {make_arg("broadcast", 1), make_arg("axis", layout.axis)};
}

// Of the gradient operator's dY, from the outer gradients G and S of dX and dSlope: PReluGradient(G) and S min(X, 0).
Gradient second_by_dy(Formula& f) {
  Value of_dx, of_slope;
  if (f.has_dy("dX"))
    of_dx = f.ops("PReluGradient", {f.x("Y"), f.dy("dX"), f.x("X"), f.x("Slope")}, f.forward_args(), {true, false})[0];
  if (f.has_dy("dSlope")) {
    const Value below = f.op("Negative", {f.op("Relu", {f.op("Negative", {f.x("X")})})});
    of_slope = f.op("Mul", {below, f.dy("dSlope")}, layout_args(f));
  }
  if (!of_dx.defined() || !of_slope.defined()) return of_dx.defined() ? of_dx : of_slope;
  return f.op("Add", {of_dx, of_slope});
}

// S dY where X < 0.
Gradient second_by_x(Formula& f) {
  if (!f.has_dy("dSlope")) return Gradient::none();
  const Value product = f.op("Mul", {f.x("dY"), f.dy("dSlope")}, layout_args(f));
  return f.op("ReluGradient", {f.op("Negative", {f.x("X")}), product});
}

// The sum of G dY where X < 0.
Gradient second_by_slope(Formula& f) {
  if (!f.has_dy("dX")) return Gradient::none();
  const Value product = f.op("Mul", {f.dy("dX"), f.x("dY")});
  const Value below = f.op("ReluGradient", {f.op("Negative", {f.x("X")}), product});
  return f.op("SumReduceLike", {below, f.x("Slope")}, layout_args(f));
}

OpBuilder<PReluArgs>& add_args(OpBuilder<PReluArgs>& builder) {
  return builder.arg("order", &PReluArgs::order, std::string("NCHW"), "whether channels are dimension 1 or the last",
                     one_of({"NCHW", "NHWC"}));
}

REGISTER(prelu) {
  auto builder = op<PReluArgs>("PRelu");
  builder.doc("X where it is positive, else X times a slope, which is a parameter.");
  return add_args(builder)
      .input("X", "any shape; with more than one slope it has channels")
      .input("Slope", "one number, or [channels]")
      .output("Y", "X where X > 0, else slope X", like("X"))
      .in_place("X", "Y", {"X", "Slope"})
      .shape(infer)
      .rowwise(rows<0>)
      .example({"X=2,3,2,-2..2", "Slope=3,0.1..0.9"})
      .example({"X=2,3,-2..2", "Slope=1"})
      .example({"X=2,3,2,-2..2", "Slope=2,0.1..0.9"}, {"order=NHWC"})
      .example({"X=0,3", "Slope=3"})
      .flops(flops_per_output(1))
      .cpu(forward<float>, forward<double>)
      .derivatives({"X", "Slope"}, derivatives);
}

REGISTER(prelu_gradient) {
  auto builder = op<PReluArgs>("PReluGradient");
  builder.doc("Gradients of PRelu.");
  return add_args(builder)
      .input("Y", "PRelu's output, whose values are not read")
      .shape_only()
      .input("dY", "gradient of Y")
      .input("X", "PRelu's input")
      .input("Slope", "PRelu's slopes; their values are read for dX only")
      .output("dX", "dY where X > 0, else slope dY")
      .optional()
      .uses({"dY", "X", "Slope"})
      .output("dSlope", "the sum of dY X over the places where X is not positive")
      .optional()
      .uses({"dY", "X"})
      .accumulates()
      .shape(infer_gradient)
      .rowwise(rows<2>)
      .sums_rows()
      .flops(
          [](const auto&, const ShapeCall& c) { return output_size(c, 0) + (c.wants(1) ? 2 * input_size(c, 2) : 0); })
      .cpu(gradient<float>, gradient<double>)
      .derivative("Y", [](Formula&) { return Gradient::none(); })
      .derivative("dY", second_by_dy)
      .derivative("X", second_by_x)
      .derivative("Slope", second_by_slope);
}

}  // namespace
}  // namespace stepnet::cpu_prelu
