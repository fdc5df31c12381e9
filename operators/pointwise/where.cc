// Where: Z = X where C is true, else Y, element by element; with broadcast_on_rows C has one element for each row.
//
// dX = dZ where C is true, else 0, and dY = dZ where C is false, else 0. Both read C alone.

#include "operators/pointwise/where.h"

#include <algorithm>

#include "stepnet/operator.h"

namespace stepnet::cpu_where {
namespace {

template <class T>
void forward(const WhereArgs& a, In<bool> c, In<T> x, In<T> y, Out<T> z) {
  if (!a.by_rows()) {
    for (size_t i = 0; i < z.size(); ++i) z[i] = c[i] ? x[i] : y[i];
    return;
  }
  const size_t block = c.empty() ? 0 : z.size() / c.size();
  for (size_t r = 0; r < c.size(); ++r) {
    const T* from = (c[r] ? x.data() : y.data()) + r * block;
    T* to = z.data() + r * block;
    if (from != to) std::copy_n(from, block, to);
  }
}

void check_condition(const WhereArgs& a, const Shape& c, const Shape& x) {
  if (!a.by_rows()) return require(c == x, "C is {}, but X {}", c, x);
  require(c.rank() == 1 && x.rank() > 0 && c[0] == x[0],
          "with broadcast_on_rows C must be [rows], one element for each row of X {}, but is {}", x, c);
}

void infer(const WhereArgs& a, ShapeCall& c) {
  if (c.known(1) && c.known(2)) require(c.shape(1) == c.shape(2), "X is {}, but Y {}", c.shape(1), c.shape(2));
  const int of = c.known(1) ? 1 : 2;
  if (!c.known(of)) return;
  if (c.known(0)) check_condition(a, c.shape(0), c.shape(of));
  c.set_like(0, of);
}

int rows(const WhereArgs& a, const ShapeCall&) { return a.by_rows() ? 1 : Shape::kMaxRank; }

Gradient derivative_x(Formula& f) {
  return f.op("Where", {f.x("C"), f.dy("Z"), f.op("ZerosLike", {f.dy("Z")})}, f.forward_args());
}
Gradient derivative_y(Formula& f) {
  return f.op("Where", {f.x("C"), f.op("ZerosLike", {f.dy("Z")}), f.dy("Z")}, f.forward_args());
}

REGISTER(where) {
  return op<WhereArgs>("Where")
      .doc("Takes each element from one of two tensors, as a third one says.")
      .arg("broadcast_on_rows", &WhereArgs::broadcast_on_rows, false, "C has one element for each row of X and Y")
      .arg("enable_broadcast", &WhereArgs::enable_broadcast, false, "the same")
      .input("C", "like X, or [rows]")
      .types({DType::boolean})
      .input("X", "any shape")
      .input("Y", "like X")
      .output("Z", "X where C is true, else Y", like("X"))
      .in_place("X", "Z")
      .in_place("Y", "Z")
      .shape(infer)
      .rowwise(rows)
      .example({"C=bool,2,3", "X=2,3", "Y=2,3"})
      .example({"C=bool,3:1,0,1", "X=3,2", "Y=3,2"}, {"broadcast_on_rows=1"})
      .cpu_for<float>(forward<float>)
      .cpu_for<double>(forward<double>)
      .cpu_for<int32_t>(forward<int32_t>)
      .cpu_for<int64_t>(forward<int64_t>)
      .cpu_for<bool>(forward<bool>)
      .derivative("X", derivative_x)
      .derivative("Y", derivative_y);
}

// Conditional: Where with broadcast_on_rows, by its name in the public format.

const WhereArgs kByRows{.enable_broadcast = false, .broadcast_on_rows = true};

template <class T>
void conditional(In<bool> c, In<T> x, In<T> y, Out<T> z) {
  forward(kByRows, c, x, y, z);
}

Gradient conditional_derivative(Formula& f, bool of_true) {
  const Value dz = f.dy("DataO"), zeros = f.op("ZerosLike", {dz});
  return f.op("Where", {f.x("Condition"), of_true ? dz : zeros, of_true ? zeros : dz},
              {make_arg("broadcast_on_rows", true)});
}

REGISTER(conditional) {
  return op("Conditional")
      .doc("Takes each row from one of two tensors, as a third one says.")
      .input("Condition", "[rows]")
      .types({DType::boolean})
      .input("DataT", "[rows, ...], where the condition is true")
      .input("DataF", "like DataT, where it is false")
      .output("DataO", "like DataT", like("DataT"))
      .shape([](const NoArgs&, ShapeCall& c) { infer(kByRows, c); })
      .rowwise([](const NoArgs&, const ShapeCall&) { return 1; })
      .example({"Condition=bool,3:1,0,1", "DataT=3,2", "DataF=3,2"})
      .cpu_for<float>(conditional<float>)
      .cpu_for<double>(conditional<double>)
      .cpu_for<int32_t>(conditional<int32_t>)
      .cpu_for<int64_t>(conditional<int64_t>)
      .cpu_for<bool>(conditional<bool>)
      .derivative("DataT", [](Formula& f) { return conditional_derivative(f, true); })
      .derivative("DataF", [](Formula& f) { return conditional_derivative(f, false); });
}

}  // namespace
}  // namespace stepnet::cpu_where
