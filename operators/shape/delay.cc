// Delay: Y[t] = X[t - 1] and Y[0] = first, or zero if there is no first; last = X[T - 1]. With `reverse` the timesteps
// count from the end. In other words: of the rows of first and X one after the other, all but the last are Y.
//
// dX, dfirst = Delay(dY, dlast) in the other direction; nothing is read.
#include "operators/shape/delay.h"

#include <algorithm>

#include "core/compute/threads.h"
#include "operators/loops/one_state.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_delay {
namespace {

template <class T>
void copy_or_zero(const T* from, int64_t count, T* to) {
  auto range = [&](int64_t begin, int64_t end) {
    if (from)
      std::copy(from + begin, from + end, to + begin);
    else
      std::fill(to + begin, to + end, T(0));
  };
  parallel_for(count, 0.2, range);
}

template <class T>
void forward(const DelayArgs& a, In<T> x, In<T> first, Out<T> y, Out<T> last, Call& call) {
  const Shape& shape = call.in(0).shape();
  const int64_t row = shape.from(1).size(), steps = shape[0], moved = std::max<int64_t>(steps - 1, 0) * row;
  if (row == 0) return;
  if (y.data() && steps > 0) {
    copy_or_zero(x.data() + (a.reverse ? row : 0), moved, y.data() + (a.reverse ? 0 : row));
    copy_or_zero(first.data(), row, y.data() + (a.reverse ? moved : 0));
  }
  if (last.data()) copy_or_zero(steps == 0 ? first.data() : x.data() + (a.reverse ? 0 : moved), row, last.data());
}

void infer(const DelayArgs&, ShapeCall& c) {
  if (!c.known(0)) return;
  c.set_like(0, 0);
  c.set(1, c.dtype(0), one_state(c, 1, "X", c.shape(0)));
}

std::vector<Gradient> derivatives(Formula& f) {
  const Value dy = f.has_dy("Y") ? f.dy("Y") : f.op("ZerosLike", {f.x("X")});
  const std::vector<Value> d = f.ops("Delay", {dy, f.dy("last")}, {make_arg("reverse", !f.args<DelayArgs>().reverse)},
                                     {f.wants("X"), f.has_x("first") && f.wants("first")});
  return {d[0], d[1]};
}

REGISTER(delay) {
  return op<DelayArgs>("Delay")
      .own()
      .doc("Each timestep's row one timestep later.")
      .arg("reverse", &DelayArgs::reverse, false, "one timestep earlier")
      .input("X", "[T, ...], a row for each timestep")
      .input("first", "[1, ...], the row that comes first; zeros if it is left out")
      .optional()
      .output("Y", "like X", like("X"))
      .optional()
      .output("last", "[1, ...], the row for which there is no timestep left")
      .optional()
      .shape(infer)
      .example({"X=3,2", "first=1,2"})
      .example({"X=3,2,2"}, {"reverse=true"})
      .example({"X=1,2", "first=1,2"}, {"reverse=true"})
      .example({"X=0,2", "first=1,2"})
      .cpu(forward<float>, forward<double>)
      .whole_derivative(derivatives);
}

}  // namespace
}  // namespace stepnet::cpu_delay
