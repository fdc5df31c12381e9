// SplitByRows: cuts X along a dimension into parts Y_0, Y_1, ..., as wide as the matrices W_0, W_1, ... have rows: what
// one product with all of these below each other gives, into what the products with each of them give.
//
// dX = Concat(dY_0, dY_1, ...). A part without a gradient counts as zeros of its shape. Backward reads nothing.

#include "operators/shape/concat.h"

namespace stepnet {
namespace {

int64_t rows_of_matrix(const Shape& w) {
  require(w.rank() >= 1, "a matrix whose rows say how wide a part is has shape {}", w);
  return w[0];
}

void infer(const ConcatArgs& args, ShapeCall& c) {
  require(c.outputs() == c.inputs() - 1, "it has {} outputs for {} matrices", c.outputs(), c.inputs() - 1);
  if (!c.known(0)) return;
  const Shape& x = c.shape(0);
  const int axis = concat_axis(args, x.rank());
  int64_t sum = 0;
  bool known = true;
  for (int i = 1; i < c.inputs(); ++i) {
    if (!c.known(i)) {
      known = false;
      continue;
    }
    const int64_t rows = rows_of_matrix(c.shape(i));
    require(rows <= x[axis] - sum, "the matrices have more rows than the {} of X's dimension {}", x[axis], axis);
    sum += rows;
    c.set(i - 1, c.dtype(0), x.with(axis, rows));
  }
  require(!known || sum == x[axis], "the matrices have {} rows, but X's dimension {} has size {}", sum, axis, x[axis]);
}

void split(const ConcatArgs& args, Call& c) {
  const int axis = concat_axis(args, c.in(0).rank());
  int64_t at = 0;
  for (int i = 1; i < c.inputs(); ++i) {
    const int64_t size = c.in(i).dim(0);
    if (c.wants(i - 1)) take_part(c.in(0), c.out(i - 1), axis, at, size);
    at += size;
  }
}

int leading_dimensions(const ConcatArgs& args, const ShapeCall& c) {
  return c.known(0) ? concat_axis(args, c.shape(0).rank()) : 0;
}

std::vector<int64_t> first_columns(const ConcatArgs& args, const ShapeCall& c) {
  if (!c.all_known() || concat_axis(args, c.shape(0).rank()) != c.shape(0).rank() - 1) return {};
  std::vector<int64_t> columns = {0};
  for (int i = 1; i < c.inputs(); ++i) columns.push_back(columns.back() + c.shape(i)[0]);
  columns.pop_back();
  return columns;
}

Gradient gradient(Formula& f) {
  std::vector<Value> parts;
  for (int i = 0; i < f.outputs(); ++i) parts.push_back(f.has_dy_at(i) ? f.dy_at(i) : f.op("ZerosLike", {f.y_at(i)}));
  return f.op("Concat", parts, axis_args(f));
}

REGISTER(split_by_rows) {
  auto spec = op<ConcatArgs>("SplitByRows");
  declare_axis(spec);
  return spec.doc("Cuts a tensor along a dimension into parts as wide as matrices have rows.")
      .input("X", "a tensor of any type")
      .any_type()
      .input("W", "a matrix for each part; their values are not read")
      .any_type()
      .shape_only()
      .variadic()
      .output("Y", "the parts in order")
      .any_type()
      .variadic()
      .shape(infer)
      .rowwise(leading_dimensions)
      .takes_columns(first_columns)
      .cpu(split)
      .example({"X=2,5", "W0=2,3", "W1=3,1"}, {}, 2)
      .example({"X=3,2", "W0=1,2", "W1=2"}, {"axis=0"}, 2)
      .derivative("X", gradient)
      .variadic_derivative("W", [](Formula&, int) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet
