// Numbers that count the arithmetic done with them, and an operator's call on such numbers.
//
// What one FLOP is stands in core/operator/dry_run.h. References of tests/operators/flops_*.cc compute an operator's
// outputs by the formula in its comment, as plainly as they can, and without leaving out what data would allow to leave
// out. Threads: not for concurrent use.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "stepnet/proto/net.pb.h"
#include "stepnet/shape.h"

namespace stepnet::testing {

struct Counted {
  double value = 0;
  double terms = 0;  // the same sums, products and quotients of absolute values: what roundings are small beside
  Counted() = default;
  Counted(double v) : value(v), terms(std::abs(v)) {}  // NOLINT(google-explicit-constructor): constants of formulas

  static inline double operations = 0;
  static Counted one(double result) {
    ++operations;
    return result;
  }
  static Counted one(double result, double terms) {
    Counted c = one(result);
    c.terms = terms;
    return c;
  }
  friend Counted operator+(Counted a, Counted b) { return one(a.value + b.value, a.terms + b.terms); }
  friend Counted operator-(Counted a, Counted b) { return one(a.value - b.value, a.terms + b.terms); }
  friend Counted operator*(Counted a, Counted b) { return one(a.value * b.value, a.terms * b.terms); }
  friend Counted operator/(Counted a, Counted b) { return one(a.value / b.value, a.terms / std::abs(b.value)); }
  friend Counted operator-(Counted a) {
    a.value = -a.value;
    return a;
  }
  Counted& operator+=(Counted b) { return *this = *this + b; }
  Counted& operator-=(Counted b) { return *this = *this - b; }
  friend bool operator<(Counted a, Counted b) { return a.value < b.value; }
  friend bool operator>(Counted a, Counted b) { return a.value > b.value; }
};

inline Counted acos(Counted x) { return Counted::one(std::acos(x.value)); }
inline Counted asin(Counted x) { return Counted::one(std::asin(x.value)); }
inline Counted atan(Counted x) { return Counted::one(std::atan(x.value)); }
inline Counted cbrt(Counted x) { return Counted::one(std::cbrt(x.value)); }
inline Counted cosh(Counted x) { return Counted::one(std::cosh(x.value)); }
inline Counted cos(Counted x) { return Counted::one(std::cos(x.value)); }
inline Counted erf(Counted x) { return Counted::one(std::erf(x.value)); }
inline Counted expm1(Counted x) { return Counted::one(std::expm1(x.value)); }
inline Counted sin(Counted x) { return Counted::one(std::sin(x.value)); }
inline Counted sinh(Counted x) { return Counted::one(std::sinh(x.value)); }
inline Counted tan(Counted x) { return Counted::one(std::tan(x.value)); }
inline Counted exp(Counted x) { return Counted::one(std::exp(x.value)); }
inline Counted log(Counted x) { return Counted::one(std::log(x.value)); }
inline Counted log1p(Counted x) { return Counted::one(std::log1p(x.value)); }
inline Counted sqrt(Counted x) { return Counted::one(std::sqrt(x.value)); }
inline Counted tanh(Counted x) { return Counted::one(std::tanh(x.value)); }
inline Counted erfc(Counted x) { return Counted::one(std::erfc(x.value)); }
inline Counted pow(Counted x, Counted e) { return Counted::one(std::pow(x.value, e.value)); }
inline Counted fmod(Counted x, Counted y) { return Counted::one(std::fmod(x.value, y.value)); }
inline Counted abs(Counted x) { return {std::abs(x.value)}; }
inline Counted trunc(Counted x) { return {std::trunc(x.value)}; }
inline Counted max(Counted a, Counted b) { return b > a ? b : a; }
inline Counted min(Counted a, Counted b) { return b < a ? b : a; }
inline Counted square(Counted x) { return x * x; }
inline Counted sigmoid(Counted x) { return 1 / (1 + exp(-x)); }

using Numbers = std::vector<Counted>;

// A tensor of any numeric type; not there if it is left out.
struct CountedTensor {
  bool there = false;
  Shape shape;
  Numbers v;
  int64_t size() const { return static_cast<int64_t>(v.size()); }
  // 0 if it is not there.
  Counted at(int64_t i) const { return there ? v[static_cast<size_t>(i)] : Counted(); }
};

struct CountedCall {
  const OperatorDef& def;
  std::vector<CountedTensor> in, out;  // outputs: zeros, in the shapes that they have
  bool compares = true;                // the outputs with the operator's

  const CountedTensor& x(int i) const {
    static const CountedTensor none;
    return i < static_cast<int>(in.size()) ? in[static_cast<size_t>(i)] : none;
  }
  Numbers& y(int o) { return out[static_cast<size_t>(o)].v; }
  bool wants(int o) const { return o < static_cast<int>(out.size()) && out[static_cast<size_t>(o)].there; }
  void put(int o, int64_t i, Counted value) {
    if (wants(o)) y(o)[static_cast<size_t>(i)] = value;
  }
  const Argument* find(const std::string& name) const {
    for (const Argument& a : def.arg())
      if (a.name() == name) return &a;
    return nullptr;
  }
  double arg(const std::string& name, double fallback) const {
    const Argument* a = find(name);
    return !a ? fallback : a->has_f() ? static_cast<double>(a->f()) : static_cast<double>(a->i());
  }
  int64_t whole(const std::string& name, int64_t fallback) const { return find(name) ? find(name)->i() : fallback; }
  std::string text(const std::string& name) const { return find(name) ? find(name)->s() : ""; }
};

// Rows of a tensor flattened before the argument "axis": how many, and elements of each.
struct CountedRows {
  int64_t count = 0, size = 0;
};
inline CountedRows rows_before(const Shape& s, int64_t axis) {
  const int a = canonical_axis(axis, s.rank(), true);
  return {s.size_between(0, a), s.size_between(a, s.rank())};
}

using Reference = std::function<void(CountedCall&)>;
using References = std::map<std::string, Reference>;  // by operator type

// y = fn(x), y = fn(a, b), ...: element by element of output 0, from the inputs; one of a single element repeats.
template <class Fn>
Reference each1(Fn fn) {
  return [fn](CountedCall& c) {
    for (size_t i = 0; i < c.y(0).size(); ++i) c.y(0)[i] = fn(c.x(0).v[i]);
  };
}
template <class Fn>
Reference each2(Fn fn) {
  return [fn](CountedCall& c) {
    for (size_t i = 0; i < c.y(0).size(); ++i) c.y(0)[i] = fn(c.x(0).v[i], c.x(1).v[i]);
  };
}

void add_elementwise_references(References& r);
void add_sum_references(References& r);
void add_segment_references(References& r);
void add_row_references(References& r);
void add_norm_references(References& r);
void add_loss_references(References& r);
void add_alignment_references(References& r);
void add_unit_references(References& r);
void add_product_references(References& r);
void add_optimizer_references(References& r);
void add_window_references(References& r);
void add_convolution_references(References& r);

}  // namespace stepnet::testing
