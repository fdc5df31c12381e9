// Sum, Max and Min: of any number of tensors of one shape, element by element.
//
// Of a sum every input's gradient is dY itself; nothing is read.

#include <algorithm>
#include <array>
#include <functional>

#include "core/compute/threads.h"
#include "core/tensor/small_vector.h"
#include "operators/loops/composing.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_sum {
namespace {

void infer(const NoArgs&, ShapeCall& c) {
  int first = -1;
  for (int i = 0; i < c.inputs(); ++i) {
    if (!c.known(i)) continue;
    if (first < 0) first = i;
    require(c.shape(i) == c.shape(first), "inputs {} and {} must have one shape, but are {} and {}", first, i,
            c.shape(first), c.shape(i));
  }
  if (first >= 0) c.set_like(0, first);
}

// Adds in small blocks, so that no input is read after its block of the output is written: the output may be any of
// the inputs, and one blob may be several of them.
template <class T>
void add_blocks(Call& call, int64_t begin, int64_t end) {
  constexpr int64_t kBlock = 512;
  std::array<T, kBlock> sum;
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t size = std::min(kBlock, end - at);
    std::copy_n(call.in(0).data<T>() + at, size, sum.begin());
    for (int k = 1; k < call.inputs(); ++k) {
      const T* x = call.in(k).data<T>() + at;
#pragma omp simd
      for (int64_t i = 0; i < size; ++i) sum[i] += x[i];
    }
    std::copy_n(sum.begin(), size, call.out(0).data<T>() + at);
  }
}

template <class T>
void add_range(Call& call, int64_t begin, int64_t end) {
  if (call.inputs() != 2) return add_blocks<T>(call, begin, end);
  const T *a = call.in(0).data<T>(), *b = call.in(1).data<T>();
  T* sum = call.out(0).data<T>();
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) sum[i] = a[i] + b[i];
}

template <class T>
void forward(Call& call) {
  auto range = [&call](int64_t begin, int64_t end) { add_range<T>(call, begin, end); };
  parallel_for(call.out(0).size(), 0.2 * call.inputs(), std::ref(range));
}

double flops(const NoArgs&, const ShapeCall& c) {
  return c.known(0) ? static_cast<double>(c.shape(0).size()) * (c.inputs() - 1) : 0;
}

// Sums of more terms than one launch of gpu/reduce/sum.cu adds grow beside the output.
std::vector<int64_t> gpu_workspace(const NoArgs&, const Call& c) {
  constexpr int kTerms = 64;
  if (c.inputs() <= kTerms) return {};
  return {static_cast<int64_t>(c.out(0).bytes())};
}

// All inputs, from the first to the last.
FusedBody joined_by(FusedCode code, int inputs) {
  if (inputs == 1) return {{FusedCode::copy, 0}};
  if (inputs > kMostFusedValues) return {};
  FusedBody body = {{code, 0, 1}};
  for (int i = 2; i < inputs; ++i) body.push_back({code, inputs + i - 2, i});
  return body;
}

REGISTER(sum) {
  auto builder = op("Sum");
  for (const char* name : {"broadcast", "axis", "axis_str", "allow_broadcast_fastpath"})
    builder.accepts(name, "the inputs have one shape");
  return builder.doc("Sum of any number of tensors of one shape, element by element.")
      .input("X", "the terms")
      .variadic()
      .output("Y", "their sum")
      .in_place_anywhere("X", "Y")
      .shape(infer)
      .flops(flops)
      .elementwise()
      .sums_inputs()
      .role(Role::sum)
      .gpu_workspace(gpu_workspace)
      .fused([](const NoArgs&, int inputs) { return joined_by(FusedCode::add, inputs); })
      .example({"X0=2,3"})
      .example({"X0=2,3", "X1=2,3"})
      .example({"X0=2,3", "X1=2,3", "X2=2,3"})
      .example({"X0=0,3", "X1=0,3"})
      .cpu_for<float>(forward<float>)
      .cpu_for<double>(forward<double>)
      .cpu_for<int32_t>(forward<int32_t>)
      .cpu_for<int64_t>(forward<int64_t>)
      .variadic_derivative("X", [](Formula& f, int) { return f.dy("Y"); });
}

// Max and Min: Y = the greatest, or the least, of the inputs. NaN counts as greater, or less, than any number.
//
// dX_k = dY where X_k equals Y, and 0 elsewhere: of equal elements each gets all of dY, as in the public format. It
// reads X_k and Y, or of one or two inputs these, from which it finds Y again. They choose, and so have no part in its
// own derivative.

// NaN is before all numbers.
template <class Before>
struct FirstOf {
  template <class T>
  T operator()(T a, T b) const {
    return Before()(b, a) || b != b ? b : a;
  }
};

template <class T>
using Pointers = InlineVector<T*, 8>;

// The inputs from `first` on, of which there is at least one.
template <class T>
void find_inputs(const Call& call, int first, Pointers<const T>& x) {
  for (size_t k = 0; k < x.size(); ++k) x[k] = call.in(first + static_cast<int>(k)).data<T>();
}

// Elements that are worked on at once.
constexpr int64_t kPiece = 256;

// The first of all inputs, of `count` elements from `at` on. It is not written before all are read.
template <class Before, class T>
void extreme_of(const Pointers<const T>& x, int64_t at, int64_t count, T* first) {
  std::copy_n(x[0] + at, count, first);
  for (size_t k = 1; k < x.size(); ++k) {
    const T* next = x[k] + at;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) first[i] = FirstOf<Before>()(first[i], next[i]);
  }
}

template <class Fn>
void each_piece(int64_t begin, int64_t end, const Fn& fn) {
  for (int64_t at = begin; at < end; at += kPiece) fn(at, std::min(kPiece, end - at));
}

// Y may be any of the inputs.
template <class Before, class T>
void extreme(Call& call) {
  Pointers<const T> x(static_cast<size_t>(call.inputs()));
  find_inputs(call, 0, x);
  T* y = call.out(0).data<T>();
  const auto piece = [&](int64_t at, int64_t count) {
    T first[kPiece];
    extreme_of<Before>(x, at, count, first);
    std::copy_n(first, count, y + at);
  };
  const auto range = [&](int64_t begin, int64_t end) { each_piece(begin, end, piece); };
  parallel_for(call.out(0).size(), 0.1 * call.inputs(), std::ref(range));
}

// Y, or none, dY and the inputs.
template <class Before, class T>
void extreme_gradient(Call& call) {
  const In<T> y = call.in_span<T>(0), dy = call.in_span<T>(1);
  const bool has_y = call.has(0);
  Pointers<const T> x(static_cast<size_t>(call.outputs()));
  find_inputs(call, 2, x);
  Pointers<T> dx(x.size());
  for (size_t k = 0; k < dx.size(); ++k) {
    const auto o = static_cast<int>(k);
    dx[k] = call.wants(o) ? call.out(o).data<T>() : nullptr;
  }
  const auto piece = [&](int64_t at, int64_t count) {
    T found[kPiece];
    if (!has_y) extreme_of<Before>(x, at, count, found);
    const T *first = has_y ? y.data() + at : found, *given = dy.data() + at;
    for (size_t k = 0; k < dx.size(); ++k) {
      if (!dx[k]) continue;
      const T* from = x[k] + at;
      T* to = dx[k] + at;
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) to[i] = from[i] == first[i] ? given[i] : T(0);
    }
  };
  const auto range = [&](int64_t begin, int64_t end) { each_piece(begin, end, piece); };
  parallel_for(static_cast<int64_t>(dy.size()), 0.2 * call.outputs(), std::ref(range));
}

void infer_extreme_gradient(const NoArgs& a, ShapeCall& c) {
  require(c.outputs() == c.inputs() - 2, "it has {} outputs for {} inputs X, but must have one for each", c.outputs(),
          c.inputs() - 2);
  infer(a, c);
  for (int k = 0; k < c.outputs(); ++k) c.set_like(k, 2 + k);
}

// Y, where it is left out.
std::vector<int64_t> extreme_gradient_workspace(const NoArgs&, const Call& c) {
  if (c.has(0)) return {};
  return {static_cast<int64_t>(c.in(1).bytes())};
}

// Of up to two inputs Y is left out, so that no more than these are kept. Of more of them only those whose gradients
// are wanted are named. What is read for some gradients is always among what is read for more.
std::vector<Gradient> extreme_derivatives(Formula& f, const std::string& gradient_type) {
  const bool by_inputs = f.inputs() <= 2;
  std::vector<Value> inputs = {by_inputs ? Value() : f.y("Y"), f.dy("Y")};
  std::vector<bool> wanted;
  std::vector<int> of;
  for (int k = 0; k < f.inputs(); ++k) {
    if (!by_inputs && !f.wants_at(k)) continue;
    of.push_back(k);
    wanted.push_back(f.wants_at(k));
    inputs.push_back(f.x_at(k));
  }
  const std::vector<Value> dx = f.ops(gradient_type, inputs, {}, wanted);
  std::vector<Gradient> result(static_cast<size_t>(f.inputs()));
  for (size_t i = 0; i < of.size(); ++i) result[of[i]] = dx[i];
  return result;
}

// The gradient is a factor of dY, which is what it gives of ones.
std::vector<Gradient> extreme_second_derivatives(Formula& f, const std::string& type) {
  std::vector<Gradient> result(static_cast<size_t>(f.inputs()));
  if (!f.wants("dY")) return result;
  std::vector<bool> there;
  for (int k = 0; k < f.outputs(); ++k) there.push_back(f.has_dy_at(k));
  const Value ones = composing::fill(f, f.x("dY"), 1);
  std::vector<Value> inputs = {f.x("Y"), ones};
  for (int i = 2; i < f.inputs(); ++i) inputs.push_back(f.x_at(i));
  const std::vector<Value> chosen = f.ops(type, inputs, {}, there);
  std::vector<Value> terms;
  for (int k = 0; k < f.outputs(); ++k)
    if (there[static_cast<size_t>(k)]) terms.push_back(f.op("Mul", {f.dy_at(k), chosen[static_cast<size_t>(k)]}));
  if (!terms.empty()) result[1] = terms.size() == 1 ? terms[0] : f.op("Sum", terms);
  return result;
}

template <class Before>
OpBuilder<> extreme_op(const std::string& type, FusedCode code, const char* result) {
  OpBuilder<> b(type);
  b.input("X", "tensors of one shape")
      .variadic()
      .output("Y", result)
      .in_place("X", "Y", {"X"})
      .shape(infer)
      .elementwise()
      .fused([code](const NoArgs&, int inputs) { return joined_by(code, inputs); })
      .example({"X0=2,3"})
      .example({"X0=2,3", "X1=2,3", "X2=2,3"})
      .example({"X0=0,3", "X1=0,3"})
      .template cpu_for<float>(extreme<Before, float>)
      .template cpu_for<double>(extreme<Before, double>)
      .template cpu_for<int32_t>(extreme<Before, int32_t>)
      .template cpu_for<int64_t>(extreme<Before, int64_t>)
      .whole_derivative([type](Formula& f) { return extreme_derivatives(f, type + "Gradient"); });
  return b;
}

template <class Before>
Registration extreme_gradient_op(const std::string& type) {
  return op(type + "Gradient")
      .doc("Gradient of " + type + ": dY for each element that equals Y, 0 for the others.")
      .input("Y", type + "'s Y; left out, it is computed from the inputs, which then are all there")
      .optional()
      .input("dY", "gradient of Y")
      .input("X", type + "'s inputs")
      .variadic()
      .output("dX", "the gradient of each")
      .variadic()
      .uses({"Y", "dY", "X"})
      .shape(infer_extreme_gradient)
      .elementwise()
      .gpu_workspace(extreme_gradient_workspace)
      .template cpu_for<float>(extreme_gradient<Before, float>)
      .template cpu_for<double>(extreme_gradient<Before, double>)
      .whole_derivative([type](Formula& f) { return extreme_second_derivatives(f, type + "Gradient"); });
}

REGISTER(max) {
  return extreme_op<std::greater<>>("Max", FusedCode::maximum, "the greatest of each place")
      .doc(
          "The greatest of any number of tensors of one shape, element by element. NaN counts as greater than any "
          "number. Each of several elements that equal the result gets the whole gradient.");
}
REGISTER(max_gradient) { return extreme_gradient_op<std::greater<>>("Max"); }

REGISTER(min) {
  return extreme_op<std::less<>>("Min", FusedCode::minimum, "the least of each place")
      .doc(
          "The least of any number of tensors of one shape, element by element. NaN counts as less than any number. "
          "Each of several elements that equal the result gets the whole gradient.");
}
REGISTER(min_gradient) { return extreme_gradient_op<std::less<>>("Min"); }

}  // namespace
}  // namespace stepnet::cpu_sum
