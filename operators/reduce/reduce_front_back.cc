// Reductions over the first dimensions of a tensor, or over the last ones: ReduceFrontSum, ReduceBackSum, and the same
// for Mean and Max. With LENGTHS, one for each result, only so many elements of each are reduced, from the first on.
// The sum, mean and maximum of nothing are 0.
//
// dX = dY, or dY / n for a mean of n elements, repeated along what was reduced; it reads LENGTHS, and of X the shape
// alone. For a maximum it reads X and Y, and each of several elements that equal the maximum gets all of dY. Elements
// past their LENGTHS get 0. Of dY the derivatives are the reductions again.
#include "operators/reduce/reduce_front_back.h"

#include <algorithm>

#include "core/operator/flops.h"
#include "operators/loops/composing.h"
#include "operators/loops/indices.h"
#include "operators/reduce/reduce_axes.h"

namespace stepnet::cpu_reduce_front_back {
namespace {

// How many elements of each stretch count: `size`, or what an input says.
class Counts {
 public:
  // Throws Error on a length that is not from 0 to `size`.
  Counts(const Call& call, int input, int64_t size) : size_(size) {
    if (!call.has(input)) return;
    with_indices(call.in(input), [&](auto lengths) {
      for (size_t i = 0; i < lengths.size(); ++i) {
        require(lengths[i] >= 0 && lengths[i] <= size, "length {} is {}, which is outside of 0 to {}", i, lengths[i],
                size);
        lengths_.push_back(lengths[i]);
      }
    });
  }
  int64_t operator[](int64_t value) const { return lengths_.empty() ? size_ : lengths_[value]; }

 private:
  int64_t size_;
  std::vector<int64_t> lengths_;
};

// Calls fn(value, i) for the elements i of the stretches [begin, end), in the order in which they stand.
template <bool kFront, class Fn>
void each_element(const Stretches<kFront>& x, const Counts& counts, int64_t begin, int64_t end, Fn fn) {
  if constexpr (kFront) {
    for (int64_t k = 0; k < x.size; ++k)
      for (int64_t j = begin; j < end; ++j)
        if (k < counts[j]) fn(j, x.at(j, k));
  } else {
    for (int64_t j = begin; j < end; ++j)
      for (int64_t k = 0, n = counts[j]; k < n; ++k) fn(j, x.at(j, k));
  }
}

// About the nanoseconds of a stretch.
double cost(int64_t size) { return 3 + 0.5 * static_cast<double>(size); }

template <bool kFront, class Kind, class T>
void forward(const FrontBackArgs& a, In<T> x, Out<T> y, Call& call) {
  using Wide = ReductionType<T>;
  const Stretches<kFront> stretches(a, call.in(0).shape());
  const Counts counts(call, 1, stretches.size);
  parallel_for(stretches.values, cost(stretches.size), [&](int64_t begin, int64_t end) {
    std::vector<Wide> all(static_cast<size_t>(end - begin), Kind::template first<Wide>());
    each_element(stretches, counts, begin, end,
                 [&](int64_t j, int64_t i) { all[j - begin] = Kind()(all[j - begin], static_cast<Wide>(x[i])); });
    for (int64_t j = begin; j < end; ++j) y[j] = static_cast<T>(Kind::finish(all[j - begin], counts[j]));
  });
}

// dY, X, LENGTHS.
template <bool kFront, class Kind, class T>
void gradient(const FrontBackArgs& a, In<T> dy, Out<T> dx, Call& call) {
  const Stretches<kFront> stretches(a, call.in(1).shape());
  const Counts counts(call, 2, stretches.size);
  if (call.has(2)) std::ranges::fill(dx, T(0));
  parallel_for(stretches.values, cost(stretches.size), [&](int64_t begin, int64_t end) {
    each_element(stretches, counts, begin, end, [&](int64_t j, int64_t i) { dx[i] = Kind::share(dy[j], counts[j]); });
  });
}

// dY, X, Y, LENGTHS.
template <bool kFront, class T>
void max_gradient(const FrontBackArgs& a, In<T> dy, In<T> x, In<T> y, Out<T> dx, Call& call) {
  const Stretches<kFront> stretches(a, call.in(1).shape());
  const Counts counts(call, 3, stretches.size);
  if (call.has(3)) std::ranges::fill(dx, T(0));
  parallel_for(stretches.values, cost(stretches.size), [&](int64_t begin, int64_t end) {
    each_element(stretches, counts, begin, end, [&](int64_t j, int64_t i) { dx[i] = x[i] == y[j] ? dy[j] : T(0); });
  });
}

template <bool kFront>
Shape result_shape(const FrontBackArgs& a, const Shape& x) {
  const int cut = front_dims<kFront>(a, x);
  return kFront ? x.from(cut) : Shape(x.dims().first(static_cast<size_t>(cut)));
}

// LENGTHS are input i, X is input `x`.
template <bool kFront>
void check_lengths(const FrontBackArgs& a, const ShapeCall& c, int x, int i) {
  if (!c.has(i)) return;
  require(a.num_reduce_dim == 1, "with LENGTHS one dimension is reduced, but argument \"num_reduce_dim\" is {}",
          a.num_reduce_dim);
  if (!c.known(x) || !c.known(i)) return;
  const int64_t values = Stretches<kFront>(a, c.shape(x)).values;
  require(c.shape(i) == Shape{values}, "LENGTHS is {}, but X {} has {} results", c.shape(i), c.shape(x), values);
}

template <bool kFront>
void infer(const FrontBackArgs& a, ShapeCall& c) {
  check_lengths<kFront>(a, c, 0, 1);
  if (c.known(0)) c.set(0, c.dtype(0), result_shape<kFront>(a, c.shape(0)));
}

template <bool kFront, int kLengths>
void infer_gradient(const FrontBackArgs& a, ShapeCall& c) {
  check_lengths<kFront>(a, c, 1, kLengths);
  if (!c.known(1)) return;
  const Shape y = result_shape<kFront>(a, c.shape(1));
  if (c.known(0)) require(c.shape(0) == y, "dY is {}, but X {} is reduced to {}", c.shape(0), c.shape(1), y);
  if (kLengths == 3 && c.known(2))
    require(c.shape(2) == y, "Y is {}, but X {} is reduced to {}", c.shape(2), c.shape(1), y);
  c.set_like(0, 1);
}

// Dimensions before the last ones that are reduced are rows, unless LENGTHS, input kLengths, go with them.
template <bool kFront, int kX, int kLengths>
int rows(const FrontBackArgs& a, const ShapeCall& c) {
  return kFront || c.has(kLengths) || !c.known(kX) ? 0 : front_dims<kFront>(a, c.shape(kX));
}

template <bool kFront>
std::string name(const char* what) {
  return std::string(kFront ? "ReduceFront" : "ReduceBack") + what;
}

// The inputs of a gradient, or of a derivative of one, with LENGTHS if there are any.
std::vector<Value> with_lengths(Formula& f, std::vector<Value> values) {
  if (f.has_x("LENGTHS")) values.push_back(f.x("LENGTHS"));
  return values;
}

OpBuilder<FrontBackArgs> builder(const std::string& type, bool front) {
  OpBuilder<FrontBackArgs> b(type);
  b.accepts("num_reduce_dims", "the public format reads num_reduce_dim alone");
  b.arg("num_reduce_dim", &FrontBackArgs::num_reduce_dim, int64_t{1},
        front ? "how many of the first dimensions are reduced" : "how many of the last dimensions are reduced",
        at_least(0));
  return b;
}

void add_lengths(OpBuilder<FrontBackArgs>& b) {
  b.input("LENGTHS", "how many elements of each result are reduced, one dimension, if not all")
      .types({DType::int32, DType::int64})
      .optional();
}

template <bool kFront>
OpBuilder<FrontBackArgs> reduction(const char* what, const char* result) {
  OpBuilder<FrontBackArgs> b = builder(name<kFront>(what), kFront);
  b.doc(std::string(result) +
        (kFront ? " over the first dimensions; 0 for nothing." : " over the last dimensions; 0 for nothing."))
      .input("X", "any shape of as many dimensions as are reduced");
  add_lengths(b);
  b.output("Y", "X's other dimensions")
      .shape(infer<kFront>)
      .rowwise(rows<kFront, 0, 1>)
      .example({"X=2,3"})
      .example({"X=2,3,2"}, {"num_reduce_dim=2"})
      .example({"X=2,3"}, {"num_reduce_dim=0"})
      .example({kFront ? "X=4,3" : "X=3,4", "LENGTHS=int32,3:0,2,4"})
      .example({"X=0,2"})
      .example({"X=2,0"});
  return b;
}

template <bool kFront>
OpBuilder<FrontBackArgs> reduction_gradient(const char* what, bool of_maximum) {
  const std::string type = name<kFront>(what);
  OpBuilder<FrontBackArgs> b = builder(type + "Gradient", kFront);
  b.doc("Gradient of " + type + ".").input("dY", "gradient of Y").input("X", type + "'s X");
  if (of_maximum)
    b.input("Y", type + "'s Y");
  else
    b.shape_only();
  add_lengths(b);
  b.output("dX", "like X");
  if (of_maximum)
    b.shape(infer_gradient<kFront, 3>).rowwise(rows<kFront, 1, 3>);
  else
    b.shape(infer_gradient<kFront, 2>).rowwise(rows<kFront, 1, 2>);
  return b;
}

// Of a sum or a mean.
template <bool kFront, class Kind>
Registration linear(const char* what, const char* result) {
  const std::string gradient_type = name<kFront>(what) + "Gradient";
  return reduction<kFront>(what, result)
      .flops([](const auto&, const ShapeCall& c) {
        return input_size(c, 0) + (std::is_same_v<Kind, MeanOfStretch> ? output_size(c, 0) : 0);
      })
      .precision(Precision::float32)
      .cpu(forward<kFront, Kind, float>, forward<kFront, Kind, double>, forward<kFront, Kind, int32_t>,
           forward<kFront, Kind, int64_t>)
      .derivative("X", [gradient_type](Formula& f) {
        return f.op(gradient_type, with_lengths(f, {f.dy("Y"), f.x("X")}), f.forward_args());
      });
}

template <bool kFront, class Kind>
Registration linear_gradient(const char* what) {
  const std::string type = name<kFront>(what);
  return reduction_gradient<kFront>(what, false)
      .flops(flops_per_input(std::is_same_v<Kind, MeanOfStretch> ? 1 : 0))
      .cpu(gradient<kFront, Kind, float>, gradient<kFront, Kind, double>)
      .derivative("dY", [type](Formula& f) { return f.op(type, with_lengths(f, {f.dy("dX")}), f.forward_args()); })
      .derivative("X", [](Formula&) { return Gradient::none(); });
}

template <bool kFront>
Registration maximum() {
  const std::string gradient_type = name<kFront>("MaxGradient");
  return reduction<kFront>("Max", "Maxima")
      .cpu(forward<kFront, MaxOfStretch, float>, forward<kFront, MaxOfStretch, double>,
           forward<kFront, MaxOfStretch, int32_t>, forward<kFront, MaxOfStretch, int64_t>)
      .derivative("X", [gradient_type](Formula& f) {
        return f.op(gradient_type, with_lengths(f, {f.dy("Y"), f.x("X"), f.y("Y")}), f.forward_args());
      });
}

// The gradient is a factor of dY: 1 for an element that is the maximum, else 0, which is its gradient of ones.
template <bool kFront>
Registration maximum_gradient() {
  return reduction_gradient<kFront>("Max", true)
      .cpu(max_gradient<kFront, float>, max_gradient<kFront, double>)
      .derivative("dY",
                  [](Formula& f) {
                    const Value ones = composing::fill(f, f.x("dY"), 1);
                    const Value slope = f.op(name<kFront>("MaxGradient"), with_lengths(f, {ones, f.x("X"), f.x("Y")}),
                                             f.forward_args());
                    return f.op(name<kFront>("Sum"), {f.op("Mul", {f.dy("dX"), slope})}, f.forward_args());
                  })
      .derivative("X", [](Formula&) { return Gradient::zero(); })
      .derivative("Y", [](Formula&) { return Gradient::zero(); });
}

REGISTER(reduce_front_sum) { return linear<true, SumOfStretch>("Sum", "Sums"); }
REGISTER(reduce_back_sum) { return linear<false, SumOfStretch>("Sum", "Sums"); }
REGISTER(reduce_front_mean) { return linear<true, MeanOfStretch>("Mean", "Means"); }
REGISTER(reduce_back_mean) { return linear<false, MeanOfStretch>("Mean", "Means"); }
REGISTER(reduce_front_max) { return maximum<true>(); }
REGISTER(reduce_back_max) { return maximum<false>(); }
REGISTER(reduce_front_sum_gradient) { return linear_gradient<true, SumOfStretch>("Sum"); }
REGISTER(reduce_back_sum_gradient) { return linear_gradient<false, SumOfStretch>("Sum"); }
REGISTER(reduce_front_mean_gradient) { return linear_gradient<true, MeanOfStretch>("Mean"); }
REGISTER(reduce_back_mean_gradient) { return linear_gradient<false, MeanOfStretch>("Mean"); }
REGISTER(reduce_front_max_gradient) { return maximum_gradient<true>(); }
REGISTER(reduce_back_max_gradient) { return maximum_gradient<false>(); }

}  // namespace
}  // namespace stepnet::cpu_reduce_front_back
