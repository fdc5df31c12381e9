// IndexAdd: Y = DATA, and then Y[..., INDICES[k], ...] += SRC[..., k, ...] along one axis; equal indices add up.
// IndexAddGradient: dSRC[..., k, ...] = dY[..., INDICES[k], ...].
//
// dDATA = dY, with no operator; dSRC reads INDICES alone. INDICES have no derivative.

#include "operators/index/index_add.h"

#include <algorithm>

#include "core/operator/flops.h"
#include "operators/loops/copy_elements.h"
#include "operators/loops/indices.h"
#include "operators/loops/one_axis.h"

namespace stepnet::cpu_index_add {
namespace {

void check_shapes(const IndexAddArgs& args, const Shape& data, const Shape& indices) {
  require(indices.rank() == 1, "INDICES must have one dimension, but are {}", indices);
  canonical_axis(args.axis, data.rank());
}

void infer(const IndexAddArgs& args, ShapeCall& c) {
  c.set_like(0, 0);
  if (!c.known(0) || !c.known(1)) return;
  check_shapes(args, c.shape(0), c.shape(1));
  const Shape source = c.shape(0).with(canonical_axis(args.axis, c.shape(0).rank()), c.shape(1).size());
  if (c.known(2))
    require(c.shape(2) == source, "SRC must be {} for DATA {} and {} indices, but is {}", source, c.shape(0),
            c.shape(1).size(), c.shape(2));
}

void infer_gradient(const IndexAddArgs& args, ShapeCall& c) {
  if (!c.known(0) || !c.known(1)) return;
  check_shapes(args, c.shape(1), c.shape(0));
  c.set(0, c.dtype(1), c.shape(1).with(canonical_axis(args.axis, c.shape(1).rank()), c.shape(0).size()));
}

// Calls fn(at, source, count) for runs of elements, one after the other: where they stand in DATA and in SRC. Threads
// have columns of their own, so that each sum has one order.
template <class Fn>
void each_run(const OneAxis& lines, const Tensor& indices, const Fn& fn) {
  check_indices(indices, lines.size);
  with_indices(indices, [&](auto index) {
    const auto n = static_cast<int64_t>(index.size());
    parallel_for(lines.lines(), 1.0 + static_cast<double>(n), [&](int64_t begin, int64_t end) {
      for (int64_t line = begin, count = 0; line < end; line += count) {
        const int64_t outer = line / lines.inner, column = line % lines.inner;
        count = std::min(lines.inner - column, end - line);
        for (int64_t k = 0; k < n; ++k)
          fn((outer * lines.size + index[k]) * lines.inner + column, (outer * n + k) * lines.inner + column, count);
      }
    });
  });
}

template <class T>
void forward(const IndexAddArgs& args, In<T>, const Tensor& indices, In<T> source, Out<T> y, Call& call) {
  copy_values(call.in(0), call.out(0));
  each_run(one_axis(args, call.in(0).shape()), indices, [=](int64_t at, int64_t from, int64_t count) {
    for (int64_t j = 0; j < count; ++j) y[at + j] += source[from + j];
  });
}

template <class T>
void gradient(const IndexAddArgs& args, const Tensor& indices, In<T> dy, Out<T> dsource, Call& call) {
  each_run(one_axis(args, call.in(1).shape()), indices, [=](int64_t at, int64_t from, int64_t count) {
    std::copy_n(dy.begin() + at, count, dsource.begin() + from);
  });
}

REGISTER(index_add) {
  return op<IndexAddArgs>("IndexAdd")
      .own()
      .doc(
          "Adds slices to a tensor at given indices of one axis; those of equal indices add up. DATA's gradient reads "
          "nothing of the forward pass, and SRC's reads INDICES.")
      .arg("axis", &IndexAddArgs::axis, 0, "the dimension that is indexed")
      .input("DATA", "any shape but a single value's")
      .input("INDICES", "[K], each from 0 to DATA's size along the axis less 1")
      .types({DType::int32, DType::int64})
      .input("SRC", "like DATA, but with K slices along the axis")
      .output("Y", "DATA with the slices added")
      .in_place("DATA", "Y")
      .role(Role::add_rows)
      .shape(infer)
      .example({"DATA=3,2", "INDICES=int32,4:2,0,2,1", "SRC=4,2"})
      .example({"DATA=2,3,2", "INDICES=int64,2:1,1", "SRC=2,2,2"}, {"axis=1"})
      .example({"DATA=2,3", "INDICES=int32,0", "SRC=2,0"}, {"axis=-1"})
      .flops(flops_per_input(1, 2))
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>)
      .derivative("DATA", [](Formula& f) { return f.dy("Y"); })
      .derivative("SRC", [](Formula& f) {
        return f.op("IndexAddGradient", {f.x("INDICES"), f.dy("Y")}, f.forward_args());
      });
}

REGISTER(index_add_gradient) {
  return op<IndexAddArgs>("IndexAddGradient")
      .own()
      .doc("Gradient of IndexAdd's SRC: slices of dY by index.")
      .arg("axis", &IndexAddArgs::axis, 0, "as IndexAdd's")
      .input("INDICES", "IndexAdd's indices")
      .types({DType::int32, DType::int64})
      .input("dY", "gradient of Y")
      .output("dSRC", "the slices of dY at the indices")
      .shape(infer_gradient)
      .cpu(gradient<float>, gradient<double>)
      .derivative("dY", [](Formula& f) {
        return f.op("IndexAdd", {f.op("ZerosLike", {f.x("dY")}), f.x("INDICES"), f.dy("dSRC")}, f.forward_args());
      });
}

}  // namespace
}  // namespace stepnet::cpu_index_add
