// Scan: the linear recurrence h[t] = a[t] h[t - 1] + b[t] over the first dimension, for each element behind it, from
// the state `first`, or zero if there is none; last = h[T - 1]. With `reverse` the timesteps count from the end. With
// `leaving` a state is multiplied by the factor of its own timestep as it goes on to the next: h[t] = a[t - 1] h[t - 1]
// + b[t], h[0] = first + b[0], last = a[T - 1] h[T - 1].
//
// db, dfirst = Scan(a, dh, dlast) in the other direction, and leaving if this is not, else not: as a matrix, what maps
// first and b to h and last is transposed by that. With g = db, da[t] = g[t] h[t - 1], which is g times the delayed
// states; where this is leaving, h times the delayed g. So there are derivatives of any order. Backward reads a, and,
// if da is wanted, h and first; without h, b, from which h is computed again.
#include "operators/reduce/scan.h"

#include <algorithm>

#include "core/compute/threads.h"
#include "operators/loops/one_state.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_scan {
namespace {

constexpr int64_t kLine = 64;      // elements that one thread takes at least, so that no two write to one cache line
constexpr int64_t kPiece = 16384;  // elements of a row whose states stay in the cache until the next timestep

// y = a x + b; what is null is 0, but a factor 1. x and b may be y.
template <class T>
void step(const T* a, const T* x, const T* b, T* y, int64_t count) {
  if (!x && b) {
    if (b != y) std::copy_n(b, count, y);
  } else if (!x) {
    std::fill_n(y, count, T(0));
  } else if (!a && !b) {
    std::copy_n(x, count, y);
  } else if (!a) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[i] = x[i] + b[i];
  } else if (!b) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[i] = a[i] * x[i];
  } else {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[i] = a[i] * x[i] + b[i];
  }
}

// Elements [begin, begin + count) of all timesteps. States that nobody asked for take each other's place.
template <class T>
void scan(const ScanArgs& args, const ScanRows& rows, const ScanPointers<T>& p, int64_t begin, int64_t count) {
  T* const alone = p.h ? nullptr : thread_buffer<T>(ThreadBuffer::line, static_cast<size_t>(count)).data();
  const T *state = p.first ? p.first + begin : nullptr, *factor = nullptr;
  for (int64_t k = 0; k < rows.steps; ++k) {
    const int64_t at = rows.row(k) + begin;
    T* const next = p.h ? p.h + at : alone;
    step(args.leaving ? factor : p.a + at, state, p.b + at, next, count);
    state = next;
    factor = p.a + at;
  }
  if (p.last) step<T>(args.leaving ? factor : nullptr, state, nullptr, p.last + begin, count);
}

template <class T>
void forward(const ScanArgs& args, In<T> a, In<T> b, In<T> first, Out<T> h, Out<T> last, Call& call) {
  const ScanRows rows(args, call.in(0).shape());
  const ScanPointers<T> p{a.data(), b.data(), first.data(), h.data(), last.data()};
  // Of a single element's states each waits for the one before it, in a register for the shortest time. Blocks of
  // timesteps that are joined afterwards would not wait, but compute twice as much, and take longer.
  if (rows.inner == 1) return scan_element(args, rows, p, 0);
  auto range = [&](int64_t begin, int64_t end) {
    const int64_t stop = std::min(end * kLine, rows.inner);
    for (int64_t i = begin * kLine; i < stop; i += kPiece) scan(args, rows, p, i, std::min(kPiece, stop - i));
  };
  parallel_for((rows.inner + kLine - 1) / kLine, 2 + 0.2 * kLine * static_cast<double>(rows.steps), range);
}

void infer(const ScanArgs&, ShapeCall& c) {
  if (c.known(0) && c.known(1))
    require(c.shape(0) == c.shape(1), "factors are {}, but terms {}; both must have one shape", c.shape(0), c.shape(1));
  const int given = c.known(0) ? 0 : 1;
  if (!c.known(given)) return;
  c.set_like(0, given);
  c.set(1, c.dtype(given), one_state(c, 2, given == 0 ? "factors" : "terms", c.shape(given)));
}

// A product and a sum for each state, but for the first one: without a state before it there is nothing to do, and a
// state that enters with no factor is only added. On leaving, the last one is multiplied.
double flops(const ScanArgs& a, const ShapeCall& c) {
  if (!c.known(0) || c.shape(0).size() == 0) return 0;
  const auto steps = static_cast<double>(c.shape(0)[0]);
  const double first = c.has(2) ? a.leaving ? 1 : 2 : 0;
  return (first + 2 * (steps - 1) + (a.leaving && c.wants(1))) * static_cast<double>(c.shape(0).size()) / steps;
}

std::vector<Gradient> derivatives(Formula& f) {
  const auto& a = f.args<ScanArgs>();
  const Value factors = f.x("factors"), first = f.has_x("first") ? f.x("first") : Value();
  const Value dh = f.has_dy("states") ? f.dy("states") : f.op("ZerosLike", {factors}), dlast = f.dy("last");
  const std::vector<Value> d =
      f.ops("Scan", {factors, dh, dlast}, {make_arg("reverse", !a.reverse), make_arg("leaving", !a.leaving)},
            {f.wants("factors") || f.wants("terms"), first.defined() && f.wants("first")});
  const Gradient of_terms = f.wants("terms") ? d[0] : Value(), of_first = d[1];
  if (!f.wants("factors")) return {Gradient(), of_terms, of_first};
  Value states = f.y("states");
  if (!states.defined()) states = f.op("Scan", {factors, f.x("terms"), first}, f.forward_args());
  const Value at_leaving = a.leaving ? states : d[0], delayed = a.leaving ? d[0] : states;
  const Value before =
      f.op("Delay", {delayed, a.leaving ? dlast : first}, {make_arg("reverse", a.leaving != a.reverse)});
  return {f.op("Mul", {at_leaving, before}), of_terms, of_first};
}

REGISTER(scan) {
  return op<ScanArgs>("Scan")
      .own()
      .doc("The linear recurrence states[t] = factors[t] * states[t - 1] + terms[t], element by element.")
      .arg("reverse", &ScanArgs::reverse, false, "from the last timestep to the first")
      .arg("leaving", &ScanArgs::leaving, false,
           "a state is multiplied by its own timestep's factor as it goes on to the next, as gradients are; the first "
           "one is only added, and the last one is multiplied")
      .input("factors", "[T, ...], what the state before is multiplied by")
      .input("terms", "as factors: what is added")
      .input("first", "[1, ...], the state before the first timestep; zeros if it is left out")
      .optional()
      .output("states", "as factors: the state after each timestep", like("factors"))
      .optional()
      .output("last", "[1, ...], the state after the last timestep")
      .optional()
      .shape(infer)
      .in_place("terms", "states")
      .example({"factors=3,2", "terms=3,2", "first=1,2"})
      .example({"factors=3,2,2", "terms=3,2,2"}, {"reverse=true"})
      .example({"factors=3,2", "terms=3,2", "first=1,2"}, {"leaving=true"})
      .example({"factors=2,3", "terms=2,3"}, {"reverse=true", "leaving=true"})
      .example({"factors=0,2", "terms=0,2", "first=1,2"})
      .flops(flops)
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>)
      .whole_derivative(derivatives);
}

}  // namespace
}  // namespace stepnet::cpu_scan
