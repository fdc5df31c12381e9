// ScatterAdd: Y = DATA, and then each element of SRC is added to the element of Y at its own place, but along one axis
// at its element of INDICES: for axis 1, Y[i, INDICES[i, k]] += SRC[i, k]. Equal places add up.
// ScatterAddGradient: dSRC[i, k] = dY[i, INDICES[i, k]].
//
// dDATA = dY, with no operator; dSRC reads INDICES alone. INDICES have no derivative.

#include "operators/index/scatter_add.h"

#include "core/operator/flops.h"
#include "operators/loops/copy_elements.h"
#include "operators/loops/indices.h"
#include "operators/loops/one_axis.h"

namespace stepnet::cpu_scatter_add {
namespace {

void check_indices_shape(const ScatterAddArgs& args, const Shape& data, const Shape& indices) {
  const int axis = canonical_axis(args.axis, data.rank());
  require(indices.rank() == data.rank() && indices.with(axis, data[axis]) == data,
          "INDICES {} must have the shape of DATA {} but for axis {}", indices, data, axis);
}

void infer(const ScatterAddArgs& args, ShapeCall& c) {
  c.set_like(0, 0);
  if (c.known(0) && c.known(1)) check_indices_shape(args, c.shape(0), c.shape(1));
  if (c.known(1) && c.known(2)) require(c.shape(1) == c.shape(2), "SRC is {}, but INDICES {}", c.shape(2), c.shape(1));
}

void infer_gradient(const ScatterAddArgs& args, ShapeCall& c) {
  if (c.known(0) && c.known(1)) check_indices_shape(args, c.shape(1), c.shape(0));
  if (c.known(0) && c.known(1)) c.set(0, c.dtype(1), c.shape(0));
}

// Calls fn(place in DATA, place in SRC), line by line: each sum has one order.
template <class Fn>
void each_place(const ScatterAddArgs& args, const Shape& data, const Tensor& indices, const Fn& fn) {
  const OneAxis lines = one_axis(args, data), from = one_axis(args, indices.shape());
  check_indices(indices, lines.size);
  with_indices(indices, [&](auto index) {
    from.each_line(2.0, [&](int64_t line, int64_t first) {
      const int64_t line_of_data = lines.first(line);
      for (int64_t k = 0; k < from.size; ++k) {
        const int64_t at = first + k * from.inner;
        fn(line_of_data + index[at] * lines.inner, at);
      }
    });
  });
}

template <class T>
void forward(const ScatterAddArgs& args, In<T>, const Tensor& indices, In<T> source, Out<T> y, Call& call) {
  copy_values(call.in(0), call.out(0));
  each_place(args, call.in(0).shape(), indices, [=](int64_t at, int64_t from) { y[at] += source[from]; });
}

template <class T>
void gradient(const ScatterAddArgs& args, const Tensor& indices, In<T> dy, Out<T> dsource, Call& call) {
  each_place(args, call.in(1).shape(), indices, [=](int64_t at, int64_t from) { dsource[from] = dy[at]; });
}

REGISTER(scatter_add) {
  return op<ScatterAddArgs>("ScatterAdd")
      .own()
      .doc(
          "Adds single elements to a tensor, each at its own index along one axis; those of equal places add up. "
          "DATA's gradient reads nothing of the forward pass, and SRC's reads INDICES.")
      .arg("axis", &ScatterAddArgs::axis, 0, "the dimension that is indexed")
      .input("DATA", "any shape but a single value's")
      .input("INDICES", "DATA's shape but for the axis; each from 0 to DATA's size along the axis less 1")
      .types({DType::int32, DType::int64})
      .input("SRC", "like INDICES")
      .output("Y", "DATA with the elements added")
      .in_place("DATA", "Y")
      .shape(infer)
      .rowwise(rows_before_axis<ScatterAddArgs>)
      .example({"DATA=3,2", "INDICES=int32,4,2:2,0,0,1,2,1,1,1", "SRC=4,2"})
      .example({"DATA=2,3,2", "INDICES=int64,2,1,2:0,2,1,1", "SRC=2,1,2"}, {"axis=1"})
      .example({"DATA=2,3", "INDICES=int32,2,0", "SRC=2,0"}, {"axis=-1"})
      .flops(flops_per_input(1, 2))
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>)
      .derivative("DATA", [](Formula& f) { return f.dy("Y"); })
      .derivative("SRC", [](Formula& f) {
        return f.op("ScatterAddGradient", {f.x("INDICES"), f.dy("Y")}, f.forward_args());
      });
}

REGISTER(scatter_add_gradient) {
  return op<ScatterAddArgs>("ScatterAddGradient")
      .own()
      .doc("Gradient of ScatterAdd's SRC: elements of dY by index.")
      .arg("axis", &ScatterAddArgs::axis, 0, "as ScatterAdd's")
      .input("INDICES", "ScatterAdd's indices")
      .types({DType::int32, DType::int64})
      .input("dY", "gradient of Y")
      .output("dSRC", "the elements of dY at the indices")
      .shape(infer_gradient)
      .rowwise(rows_before_axis<ScatterAddArgs, 1>)
      .cpu(gradient<float>, gradient<double>)
      .derivative("dY", [](Formula& f) {
        return f.op("ScatterAdd", {f.op("ZerosLike", {f.x("dY")}), f.x("INDICES"), f.dy("dSRC")}, f.forward_args());
      });
}

}  // namespace
}  // namespace stepnet::cpu_scatter_add
