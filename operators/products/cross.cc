// Cross: C = A x B, the cross product of the vectors of three elements along one axis.
//
// dA = B x dC, which reads B; dB = dC x A, which reads A.

#include "operators/products/cross.h"

#include "operators/loops/one_axis.h"

namespace stepnet::cpu_cross {
namespace {

void infer(const CrossArgs& args, ShapeCall& c) {
  if (c.known(0) && c.known(1)) require(c.shape(0) == c.shape(1), "A is {}, but B {}", c.shape(0), c.shape(1));
  const int of = c.known(0) ? 0 : 1;
  if (!c.known(of)) return;
  const Shape& a = c.shape(of);
  const int axis = canonical_axis(args.axis, a.rank());
  require(a[axis] == 3, "vectors along axis {} of {} {} have {} elements, but a cross product is of 3", axis,
          of == 0 ? "A" : "B", a, a[axis]);
  c.set_like(0, of);
}

template <class T>
void forward(const CrossArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  const OneAxis lines = one_axis(args, call.in(0).shape());
  lines.each_line(1.0, [&, step = lines.inner](int64_t, int64_t first) {
    const T *x = a.data() + first, *y = b.data() + first;
    T* z = c.data() + first;
    z[0] = x[step] * y[2 * step] - x[2 * step] * y[step];
    z[step] = x[2 * step] * y[0] - x[0] * y[2 * step];
    z[2 * step] = x[0] * y[step] - x[step] * y[0];
  });
}

REGISTER(cross) {
  return op<CrossArgs>("Cross")
      .own()
      .doc("Cross products of the vectors along one axis. A's gradient reads B, and B's reads A.")
      .arg("axis", &CrossArgs::axis, -1, "the dimension of 3 elements along which the vectors lie")
      .input("A", "any shape with 3 elements along the axis")
      .input("B", "like A")
      .output("C", "A x B, like A")
      .shape(infer)
      .flops([](const CrossArgs&, const ShapeCall& c) {
        return c.known(0) ? 3.0 * static_cast<double>(c.shape(0).size()) : 0;
      })
      .rowwise(rows_before_axis<CrossArgs>)
      .example({"A=2,3", "B=2,3"})
      .example({"A=3,2", "B=3,2"}, {"axis=0"})
      .example({"A=2,3,0", "B=2,3,0"}, {"axis=1"})
      .cpu(forward<float>, forward<double>)
      .derivative("A",
                  [](Formula& f) {
                    return f.op("Cross", {f.x("B"), f.dy("C")}, f.forward_args());
                  })
      .derivative("B", [](Formula& f) {
        return f.op("Cross", {f.dy("C"), f.x("A")}, f.forward_args());
      });
}

}  // namespace
}  // namespace stepnet::cpu_cross
