// The arguments of Scan, the order of its timesteps, and all of them for one element; see scan.cc.
// Threads: pure functions.
#pragma once

#include "stepnet/shape.h"

namespace stepnet {

struct ScanArgs {
  bool reverse = false;
  bool leaving = false;
};

// What is scanned: `steps` rows of `inner` elements, of which row(k) is where the k-th that is computed begins.
struct ScanRows {
  ScanRows(const ScanArgs& a, const Shape& x) : steps(x[0]), inner(x.from(1).size()), reverse(a.reverse) {}

  constexpr int64_t row(int64_t k) const { return (reverse ? steps - 1 - k : k) * inner; }

  int64_t steps, inner;
  bool reverse;
};

template <class T>
struct ScanPointers {
  const T *a, *b, *first;  // first is null if it is not there
  T *h, *last;             // null if they are not wanted
};

// Scans element i of the rows, whose state stays in a register.
template <class T>
constexpr void scan_element(const ScanArgs& args, const ScanRows& rows, const ScanPointers<T>& p, int64_t i) {
  T state = p.first ? p.first[i] : T(0);  // on leaving, multiplied already
  for (int64_t k = 0; k < rows.steps; ++k) {
    const int64_t at = rows.row(k) + i;
    const T a = p.a[at], b = p.b[at];
    const T next = k == 0 && !p.first ? b : (args.leaving ? state : a * state) + b;
    if (p.h) p.h[at] = next;
    state = args.leaving ? a * next : next;
  }
  if (p.last) p.last[i] = state;
}

}  // namespace stepnet
