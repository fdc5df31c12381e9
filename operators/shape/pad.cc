// Pad: more elements at the beginnings and ends of dimensions; where `pads` are negative, fewer. An element o of the
// output's dimension is element i = o - begin of the input's. Where there is none it is, by `mode`:
//   constant   `value`
//   edge       the nearest element
//   reflect    the element as far on the other side of the edge, which is not repeated itself
//
// dX = PadGradient(dY), which adds each element where it came from; its own derivative is Pad with value 0. Backward
// reads nothing: X's shape is dY's less the pads.

#include "operators/shape/pad.h"

#include <algorithm>
#include <limits>

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_pad {
namespace {

constexpr int64_t kMostPads = int64_t{1} << 62;  // so that sums of two of them fit

void check_axis(const PadArgs& a, int axis, int64_t size) {
  const int64_t most = std::max(a.begin(axis), a.end(axis));
  if (most <= 0) return;
  if (a.kind() == PadMode::edge) require(size > 0, "dimension {} has no element to repeat {} times", axis, most);
  if (a.kind() == PadMode::reflect)
    require(most < size, "dimension {} of size {} cannot be reflected {} elements far", axis, size, most);
}

// The shape with `sign` times the pads more elements.
Shape padded(const PadArgs& a, const Shape& x, int sign) {
  require(static_cast<int>(a.pads.size()) == 2 * x.rank(),
          "argument \"pads\" has {} values, but shape {} needs {}: all beginnings, then all ends", a.pads.size(), x,
          2 * x.rank());
  Shape y;
  for (int i = 0; i < x.rank(); ++i) {
    const bool small = std::min(a.begin(i), a.end(i)) > -kMostPads && std::max(a.begin(i), a.end(i)) < kMostPads;
    int64_t size = 0;
    require(small && !__builtin_add_overflow(x[i], sign * (a.begin(i) + a.end(i)), &size),
            "pads of {} and {} for dimension {} of {} are too large", a.begin(i), a.end(i), i, x);
    require(size >= 0, "pads of {} and {} for dimension {} of {} leave {} elements", a.begin(i), a.end(i), i, x, size);
    y.push_back(size);
    check_axis(a, i, sign > 0 ? x[i] : size);
  }
  return y;
}

void infer(const PadArgs& a, ShapeCall& call) {
  require(a.pads.size() % 2 == 0, "argument \"pads\" has {} values, of which half cannot be beginnings", a.pads.size());
  if (call.known(0)) call.set(0, call.dtype(0), padded(a, call.shape(0), 1));
}

void infer_gradient(const PadArgs& a, ShapeCall& call) {
  require(a.pads.size() % 2 == 0, "argument \"pads\" has {} values, of which half cannot be beginnings", a.pads.size());
  if (call.known(0)) call.set(0, call.dtype(0), padded(a, call.shape(0), -1));
}

// Rows of the padded tensor, along its last dimension, and where in the other they come from.
struct PadRows {
  PadRows(const PadArgs& args, const Shape& inner, const Shape& outer)
      : a(args), mode(args.kind()), x(inner), y(outer) {}

  int64_t count() const { return y.rank() == 0 ? 1 : y.size_between(0, y.rank() - 1); }
  int64_t size() const { return y.rank() == 0 ? 1 : y[y.rank() - 1]; }
  int64_t source_size() const { return x.rank() == 0 ? 1 : x[x.rank() - 1]; }
  int64_t begin() const { return x.rank() == 0 ? 0 : a.begin(x.rank() - 1); }

  // The first element of the row that the padded tensor's row comes from; -1 if there is none.
  int64_t first(int64_t r) const {
    int64_t at = 0, stride = source_size();
    for (int d = y.rank() - 2; d >= 0; --d) {
      const int64_t i = pad_source(mode, r % y[d] - a.begin(d), x[d]);
      if (i < 0) return -1;
      at += i * stride;
      stride *= x[d];
      r /= y[d];
    }
    return at;
  }

  // Calls fn(element of the padded row, element of the source's row, how many follow each other in both); an element
  // that has no source is left out.
  template <class Fn>
  void each_run(const Fn& fn) const {
    const int64_t from = std::clamp<int64_t>(begin(), 0, size());
    const int64_t to = std::clamp<int64_t>(begin() + source_size(), from, size());
    if (to > from) fn(from, from - begin(), to - from);
    if (mode == PadMode::constant) return;
    for (int64_t o = 0; o < from; ++o) fn(o, pad_source(mode, o - begin(), source_size()), int64_t{1});
    for (int64_t o = to; o < size(); ++o) fn(o, pad_source(mode, o - begin(), source_size()), int64_t{1});
  }

  const PadArgs& a;
  PadMode mode;
  const Shape &x, &y;
};

template <class T>
void pad(const PadArgs& a, In<T> x, Out<T> y, Call& call) {
  const T value = pad_value<T>(a);
  if (y.empty()) return;
  const PadRows rows(a, call.in(0).shape(), call.out(0).shape());
  parallel_for(rows.count(), 5 + 0.2 * static_cast<double>(rows.size()), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* to = y.data() + r * rows.size();
      const int64_t first = rows.first(r);
      if (first < 0 || rows.mode == PadMode::constant) std::fill_n(to, rows.size(), value);
      if (first < 0) continue;
      rows.each_run([&](int64_t o, int64_t i, int64_t count) { std::copy_n(x.data() + first + i, count, to + o); });
    }
  });
}

// Several rows may come from one, so the rows are added in their order.
template <class T>
void pad_gradient(const PadArgs& a, In<T> dy, Out<T> dx, Call& call) {
  std::ranges::fill(dx, T(0));
  if (dx.empty() || dy.empty()) return;
  const PadRows rows(a, call.out(0).shape(), call.in(0).shape());
  for (int64_t r = 0; r < rows.count(); ++r) {
    const int64_t first = rows.first(r);
    if (first < 0) continue;
    const T* from = dy.data() + r * rows.size();
    T* to = dx.data() + first;
    rows.each_run([&](int64_t o, int64_t i, int64_t count) {
      for (int64_t j = 0; j < count; ++j) to[i + j] += from[o + j];
    });
  }
}

// Dimensions in front that stay as they are.
int leading_rows(const PadArgs& a, const ShapeCall&) {
  int rows = 0;
  while (rows < a.rank() && a.begin(rows) == 0 && a.end(rows) == 0) ++rows;
  return rows;
}

OpBuilder<PadArgs>& declare(OpBuilder<PadArgs>& spec) {
  return spec
      .required_arg("pads", &PadArgs::pads,
                    "how many elements more each dimension has at its beginning, for all dimensions, then how many "
                    "at its end; negative: fewer")
      .arg("mode", &PadArgs::mode, std::string("constant"), "what they are: constant, edge or reflect",
           one_of({"constant", "edge", "reflect"}));
}

std::vector<Argument> where(const Formula& f) {
  const auto& a = f.args<PadArgs>();
  return {make_arg("pads", a.pads), make_arg("mode", a.mode)};
}

REGISTER(pad) {
  auto spec = op<PadArgs>("Pad");
  spec.own();
  return declare(spec)
      .doc(
          "More elements at the beginnings and ends of dimensions: one value, the nearest element, or the elements "
          "on the other side of the edge, of which there must be as many.")
      .arg("value", &PadArgs::value, 0.0f, "mode constant: the value; a whole number for integers")
      .input("X", "any shape")
      .output("Y", "each size more by its two pads")
      .shape(infer)
      .rowwise(leading_rows)
      .cpu(pad<float>, pad<double>)
      .cpu_for<int32_t>(pad<int32_t>)
      .cpu_for<int64_t>(pad<int64_t>)
      .example({"X=2,3"}, {"pads=1,0,0,2", "value=2"})
      .example({"X=3,2"}, {"pads=1,2,2,0", "mode=edge"})
      .example({"X=3,4"}, {"pads=2,1,0,3", "mode=reflect"})
      .example({"X=3,4"}, {"pads=-1,1,0,-2"})
      .example({"X=2,4"}, {"pads=0,-1,1,2", "mode=reflect"})
      .example({"X=0,2"}, {"pads=1,0,0,0"})
      .example({"X="}, {"pads="})
      .derivative("X", [](Formula& f) { return f.op("PadGradient", {f.dy("Y")}, where(f)); });
}

REGISTER(pad_gradient) {
  auto spec = op<PadArgs>("PadGradient");
  spec.own();
  return declare(spec)
      .doc("Gradient of Pad: adds each element where it came from.")
      .input("dY", "gradient of Y")
      .output("dX", "gradient of X: each size less by its two pads")
      .shape(infer_gradient)
      .rowwise(leading_rows)
      .flops([](const auto& a, const ShapeCall& c) { return a.mode == "constant" ? 0 : input_size(c, 0); })
      .cpu(pad_gradient<float>, pad_gradient<double>)
      .derivative("dY", [](Formula& f) { return f.op("Pad", {f.dy("dX")}, where(f)); });
}

}  // namespace
}  // namespace stepnet::cpu_pad
