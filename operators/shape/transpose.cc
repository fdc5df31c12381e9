// Transpose: Y[i_axes[0], i_axes[1], ...] = X[i_0, i_1, ...]; dimension k of Y is dimension axes[k] of X.
//
// dX = Transpose(dY) by the inverse permutation; backward reads nothing.

#include "operators/shape/transpose.h"

#include <algorithm>

#include "core/compute/threads.h"
#include "stepnet/operator.h"

namespace stepnet {

TransposeOrder permutation(const std::vector<int64_t>& axes, int rank) {
  TransposeOrder order{};
  if (axes.empty()) {
    for (int i = 0; i < rank; ++i) order[i] = rank - 1 - i;
    return order;
  }
  if (static_cast<int>(axes.size()) != rank)
    fail("argument \"axes\" has {} values, but the input has {} dimensions", axes.size(), rank);
  std::array<bool, Shape::kMaxRank> used{};
  for (int i = 0; i < rank; ++i) {
    if (axes[i] < 0 || axes[i] >= rank || used[axes[i]])
      fail("argument \"axes\" must name each dimension from 0 to {} once, but has {} at place {}", rank - 1, axes[i],
           i);
    used[axes[i]] = true;
    order[i] = static_cast<int>(axes[i]);
  }
  return order;
}

TransposeLayout transpose_layout(const Shape& x, const TransposeOrder& order) {
  TransposeLayout layout;
  for (int i = 0; i < x.rank(); ++i) {
    const int axis = order[i];
    if (x[axis] == 1) continue;
    const int64_t stride = x.size_between(axis + 1, x.rank());
    if (layout.dims == 0 || layout.strides[layout.dims - 1] != stride * x[axis]) {
      layout.sizes[layout.dims] = 1;
      ++layout.dims;
    }
    layout.sizes[layout.dims - 1] *= x[axis];
    layout.strides[layout.dims - 1] = stride;
  }
  return layout;
}

namespace {

void shape(const TransposeArgs& args, ShapeCall& call) {
  if (!call.known(0)) return;
  const Shape& x = call.shape(0);
  const TransposeOrder order = permutation(args.axes, x.rank());
  Shape y;
  for (int i = 0; i < x.rank(); ++i) y.push_back(x[order[i]]);
  call.set(0, call.dtype(0), y);
}

// One plane: y[r, c] = x[r * row_stride + c * column_stride], in tiles that stay in the first cache.
template <class T>
void transpose_rows(const T* x, T* y, int64_t begin, int64_t end, int64_t columns, int64_t row_stride,
                    int64_t column_stride) {
  constexpr int64_t kTile = 32;
  for (int64_t r0 = begin; r0 < end; r0 += kTile) {
    const int64_t r1 = std::min(r0 + kTile, end);
    for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
      const int64_t c1 = std::min(c0 + kTile, columns);
      for (int64_t r = r0; r < r1; ++r)
        for (int64_t c = c0; c < c1; ++c) y[r * columns + c] = x[r * row_stride + c * column_stride];
    }
  }
}

// The last output dimension is not the input's last: planes of the last two output dimensions, the outer ones in
// parallel, or the plane's rows if there is one plane.
template <class T>
void transpose_planes(const TransposeLayout& layout, const T* x, T* y, int64_t size) {
  const size_t dims = layout.dims;
  const int64_t rows = layout.sizes[dims - 2], columns = layout.sizes[dims - 1];
  const int64_t row_stride = layout.strides[dims - 2], column_stride = layout.strides[dims - 1];
  const int64_t planes = size / (rows * columns);
  const double row_cost = static_cast<double>(columns);
  if (planes == 1) {
    parallel_for(rows, row_cost, [&](int64_t begin, int64_t end) {
      transpose_rows(x, y, begin, end, columns, row_stride, column_stride);
    });
    return;
  }
  parallel_for(planes, row_cost * static_cast<double>(rows), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      transpose_rows(x + input_offset(layout, dims - 2, p), y + p * rows * columns, 0, rows, columns, row_stride,
                     column_stride);
  });
}

// The last dimension stays the last: whole rows are copied.
template <class T>
void copy_rows(const TransposeLayout& layout, const T* x, T* y, int64_t size) {
  const size_t dims = layout.dims;
  const int64_t row = layout.sizes[dims - 1];
  parallel_for(size / row, 2.0 + 0.3 * static_cast<double>(row), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) std::copy_n(x + input_offset(layout, dims - 1, r), row, y + r * row);
  });
}

template <class T>
void transpose(const TransposeArgs& args, Call& call) {
  const Tensor& x = call.in(0);
  const Out<T> y = call.out_span<T>(0);
  if (y.empty()) return;
  const TransposeLayout layout = transpose_layout(x.shape(), permutation(args.axes, x.rank()));
  const T* from = x.data<T>();
  if (layout.dims <= 1) {
    std::copy_n(from, y.size(), y.data());
  } else if (layout.strides[layout.dims - 1] == 1) {
    copy_rows(layout, from, y.data(), x.size());
  } else {
    transpose_planes(layout, from, y.data(), x.size());
  }
}

int fixed_leading_dimensions(const TransposeArgs& args, const ShapeCall& call) {
  if (!call.known(0)) return 0;
  const int rank = call.shape(0).rank();
  const TransposeOrder order = permutation(args.axes, rank);
  int fixed = 0;
  while (fixed < rank && order[fixed] == fixed) ++fixed;
  return fixed;
}

Gradient gradient(Formula& f) {
  const auto& axes = f.args<TransposeArgs>().axes;
  if (axes.empty()) return f.op("Transpose", {f.dy("transposed")});
  std::vector<int64_t> inverse(axes.size(), 0);
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i] >= 0 && axes[i] < static_cast<int64_t>(axes.size())) inverse[axes[i]] = static_cast<int64_t>(i);
  return f.op("Transpose", {f.dy("transposed")}, {make_arg("axes", inverse)});
}

REGISTER(transpose) {
  return op<TransposeArgs>("Transpose")
      .doc("Permutes the dimensions: dimension k of the output is dimension axes[k] of the input.")
      .arg("axes", &TransposeArgs::axes, {}, "the permutation; the reverse order if absent")
      .input("data", "any shape")
      .output("transposed", "the permuted tensor")
      .shape(shape)
      .rowwise(fixed_leading_dimensions)
      .cpu_for<float>(transpose<float>)
      .cpu_for<double>(transpose<double>)
      .cpu_for<int32_t>(transpose<int32_t>)
      .cpu_for<int64_t>(transpose<int64_t>)
      .example({"data=2,3"})
      .example({"data=2,3,2"}, {"axes=1,0,2"})
      .example({"data=2,1,3,2"}, {"axes=3,0,2,1"})
      .example({"data=0,3"})
      .derivative("data", gradient);
}

}  // namespace
}  // namespace stepnet
