// The greatest elements along an axis: TopK, and ArgMax, which says where the greatest one stands.
#include "operators/reduce/topk.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "operators/loops/indices.h"
#include "operators/loops/one_axis.h"

namespace stepnet::cpu_topk {
namespace {

// TopK: the k greatest elements along an axis, from the greatest down, and where they stand. Of equal elements the
// first comes first; NaN counts as greater than any number. Where there are fewer than k, the value 0 and the index -1
// follow.
//
// dX = d Values where the elements came from, and 0 elsewhere. It reads the indices; of X only the shape. The
// derivative of that takes the elements at the indices, and has TopK's gradient as its own.

Shape values_shape(const TopKArgs& a, const Shape& x) {
  const int axis = canonical_axis(a.axis, x.rank());
  return x.with(axis, a.k);
}

void infer(const TopKArgs& a, ShapeCall& c) {
  if (!c.known(0)) return;
  const Shape y = values_shape(a, c.shape(0));
  c.set(0, c.dtype(0), y);
  c.set(1, DType::int64, y);
  c.set(2, DType::int64, Shape{y.size()});
}

void infer_gradient(const TopKArgs& a, ShapeCall& c) {
  if (!c.known(2)) return;
  const Shape y = values_shape(a, c.shape(2));
  for (const int i : {0, 1})
    if (c.known(i))
      require(c.shape(i) == y, "{} is {}, but of X {} {}", i == 0 ? "dValues" : "Indices", c.shape(i), c.shape(2), y);
  c.set_like(0, 2);
}

template <class T>
bool comes_before(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
  return a > b;
}

// Throws Error naming the first index that is none of a line of `size` elements. Where k is more, -1 stands for no
// element.
void check_places(const Tensor& indices, int64_t k, int64_t size) {
  if (k <= size) return check_indices(indices, size);
  with_indices(indices, [&](auto places) {
    for (size_t i = 0; i < places.size(); ++i)
      require(places[i] >= -1 && places[i] < size, "index {} is {}, which is outside of -1 to {}", i, places[i],
              size - 1);
  });
}

// The places, in order, of the line's k greatest elements.
template <class T>
const int64_t* greatest(const T* line, const OneAxis& axis, int64_t k) {
  const auto places = thread_buffer<int64_t>(ThreadBuffer::line, static_cast<size_t>(axis.size));
  std::iota(places.begin(), places.end(), int64_t{0});
  std::partial_sort(places.begin(), places.begin() + k, places.end(), [&](int64_t i, int64_t j) {
    const T a = line[i * axis.inner], b = line[j * axis.inner];
    return comes_before(a, b) || (i < j && !comes_before(b, a));
  });
  return places.data();
}

template <class T>
void forward(const TopKArgs& a, In<T> x, Out<T> values, Out<int64_t> indices, Out<int64_t> flat, Call& call) {
  const OneAxis from = one_axis(a, call.in(0).shape()), to{from.outer, a.k, from.inner};
  from.each_line(10.0, [&](int64_t line, int64_t first) {
    const int64_t found = std::min(a.k, from.size);
    const int64_t* places = greatest(x.data() + first, from, found);
    for (int64_t n = 0; n < a.k; ++n) {
      const bool there = n < found;
      const int64_t at = to.first(line) + n * to.inner, source = there ? first + places[n] * from.inner : -1;
      values[at] = there ? x[source] : T(0);
      indices[at] = there ? places[n] : -1;
      if (!flat.empty()) flat[at] = source;
    }
  });
}

template <class T>
void gradient(const TopKArgs& a, In<T> dvalues, const Tensor& indices, Out<T> dx, Call& call) {
  const OneAxis to = one_axis(a, call.in(2).shape()), from{to.outer, a.k, to.inner};
  check_places(indices, a.k, to.size);
  std::ranges::fill(dx, T(0));
  with_indices(indices, [&](auto places) {
    from.each_line(1.0, [&](int64_t line, int64_t first) {
      for (int64_t n = 0; n < from.size; ++n) {
        const int64_t at = first + n * from.inner;
        if (places[at] >= 0) dx[to.first(line) + places[at] * to.inner] += dvalues[at];
      }
    });
  });
}

template <class T>
void second_gradient(const TopKArgs& a, In<T> ddx, const Tensor& indices, Out<T> y, Call& call) {
  const OneAxis from = one_axis(a, call.in(0).shape()), to{from.outer, a.k, from.inner};
  check_places(indices, a.k, from.size);
  with_indices(indices, [&](auto places) {
    to.each_line(1.0, [&](int64_t line, int64_t first) {
      for (int64_t at = first; at < first + to.size * to.inner; at += to.inner)
        y[at] = places[at] < 0 ? T(0) : ddx[from.first(line) + places[at] * from.inner];
    });
  });
}

void infer_second(const TopKArgs& a, ShapeCall& c) {
  if (!c.known(0)) return;
  const Shape y = values_shape(a, c.shape(0));
  if (c.known(1)) require(c.shape(1) == y, "Indices is {}, but of ddX {} {}", c.shape(1), c.shape(0), y);
  c.set(0, c.dtype(0), y);
}

Gradient derivative(Formula& f) {
  if (!f.has_dy("Values")) return Gradient::none();
  return f.op("TopKGradient", {f.dy("Values"), f.y("Indices"), f.x("X")}, f.forward_args());
}

OpBuilder<TopKArgs>& add_args(OpBuilder<TopKArgs>& builder) {
  return builder.required_arg("k", &TopKArgs::k, "how many elements", at_least(1))
      .arg("axis", &TopKArgs::axis, -1, "the dimension to search along, a negative one counted from the end");
}

REGISTER(topk) {
  auto builder = op<TopKArgs>("TopK");
  return add_args(builder)
      .doc(
          "The k greatest elements along an axis, in descending order. Where there are fewer than k, the value 0 and "
          "the index -1 follow.")
      .input("X", "any shape of at least one dimension")
      .output("Values", "like X, but k along the axis")
      .output("Indices", "where they stand along the axis, like Values")
      .types({DType::int64})
      .output("Flattened_indices", "where they stand among all elements of X: one dimension, in the order of Values")
      .types({DType::int64})
      .optional()
      .shape(infer)
      .rowwise([](const TopKArgs& a, const ShapeCall& c) { return c.wants(2) ? 0 : rows_before_axis(a, c); })
      .example({"X=2,4"}, {"k=2"})
      .example({"X=2,4,2"}, {"k=3", "axis=1"})
      .example({"X=int32,2,3,0..9"}, {"k=2"})
      .example({"X=2,2"}, {"k=3"})
      .example({"X=0,1"}, {"k=1"})
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>)
      .derivative("X", derivative);
}

REGISTER(topk_gradient) {
  auto builder = op<TopKArgs>("TopKGradient");
  return add_args(builder)
      .doc("Gradient of TopK.")
      .input("dValues", "gradient of TopK's Values")
      .input("Indices", "TopK's Indices")
      .types({DType::int64, DType::int32})
      .input("X", "TopK's X")
      .shape_only()
      .output("dX", "like X")
      .shape(infer_gradient)
      .rowwise(rows_before_axis<TopKArgs, 2>)
      .cpu(gradient<float>, gradient<double>)
      .derivative("dValues",
                  [](Formula& f) {
                    return f.op("TopKSecondGradient", {f.dy("dX"), f.x("Indices")}, f.forward_args());
                  })
      .derivative("X", [](Formula&) { return Gradient::none(); });
}

REGISTER(topk_second_gradient) {
  auto builder = op<TopKArgs>("TopKSecondGradient");
  builder.own();
  return add_args(builder)
      .doc("Gradient of TopKGradient: the elements at the indices.")
      .input("ddX", "gradient of TopKGradient's dX")
      .input("Indices", "TopK's Indices")
      .types({DType::int64, DType::int32})
      .output("dValues_grad", "like Indices")
      .shape(infer_second)
      .rowwise(rows_before_axis<TopKArgs>)
      .cpu(second_gradient<float>, second_gradient<double>)
      .derivative("ddX", [](Formula& f) {
        return f.op("TopKGradient", {f.dy("dValues_grad"), f.x("Indices"), f.x("ddX")}, f.forward_args());
      });
}

// ArgMax: where along an axis the greatest element stands, as int64. Of equal elements it is the first; NaN counts as
// greater than any number. A line without elements is an Error. No derivative: indices are integers.

void argmax_infer(const ArgMaxArgs& a, ShapeCall& c) {
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
void argmax_forward(const ArgMaxArgs& a, In<T> x, Out<int64_t> y, Call& call) {
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
      .shape(argmax_infer)
      .rowwise(rows_before_axis<ArgMaxArgs>)
      .example({"X=2,3"})
      .example({"X=2,3,2"}, {"axis=1", "keepdims=false"})
      .example({"X=int32,2,3,0..9"}, {"axis=0"})
      .example({"X=0,1"})
      .cpu(argmax_forward<float>, argmax_forward<double>, argmax_forward<int32_t>, argmax_forward<int64_t>)
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet::cpu_topk
