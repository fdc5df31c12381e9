// ArgMax: where along an axis the greatest element stands, as int64. Of equal elements it is the first; NaN counts as
// greater than any number. A line without elements is an Error. No derivative: indices are integers.

#include "operators/reduce/argmax.h"

#include <cmath>

#include "operators/loops/one_axis.h"

namespace stepnet {
namespace {

void infer(const ArgMaxArgs& a, ShapeCall& c) {
  if (!c.known(0)) return;
  const Shape& x = c.shape(0);
  const int axis = canonical_axis(a.axis, x.rank());
  Shape y;
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis || a.keepdims) y.push_back(i == axis ? 1 : x[i]);
  require(x[axis] > 0 || y.size() == 0, "X {} has no elements along axis {}; nothing has no maximum", x, axis);
  c.set(0, DType::int64, y);
}

template <class T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

template <class T>
void forward(const ArgMaxArgs& a, In<T> x, Out<int64_t> y, Call& call) {
  const OneAxis axis = one_axis(a, call.in(0).shape());
  axis.each_line(1.0, [&](int64_t line, int64_t first) {
    int64_t best = 0;
    T most = x[first];
    for (int64_t k = 1; k < axis.size && !is_nan(most); ++k) {
      const T value = x[first + k * axis.inner];
      if (value > most || is_nan(value)) most = value, best = k;
    }
    y[line] = best;
  });
}

REGISTER(argmax) {
  return op<ArgMaxArgs>("ArgMax")
      .doc("Places of the greatest elements along an axis.")
      .arg("axis", &ArgMaxArgs::axis, -1, "the dimension to search along, a negative one counted from the end")
      .arg("keepdims", &ArgMaxArgs::keepdims, true, "whether it stays in the result, with size 1")
      .input("X", "any shape of at least one dimension")
      .output("Indices", "from 0 to the axis' size - 1; of equal elements the first")
      .types({DType::int64})
      .shape(infer)
      .rowwise(rows_before_axis<ArgMaxArgs>)
      .example({"X=2,3"})
      .example({"X=2,3,2"}, {"axis=1", "keepdims=false"})
      .example({"X=int32,2,3,0..9"}, {"axis=0"})
      .example({"X=0,1"})
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>)
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet
