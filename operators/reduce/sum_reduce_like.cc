// SumReduceLike: A summed over the dimensions in which B would repeat, so that the result has B's shape. It is the
// gradient of broadcasting B to A's shape.
//
// The derivative is that broadcast, SumReduceLikeGradient. Both read only the shape of what they are like.
//
// ExpandGradient is the same under the name that nets of the public format have for Expand's gradient.
//
// MatchShape: A summed to B's shape, or repeated to it, or another name for A if that is its shape already. It is the
// gradient of an operand that may have been broadcast, where that is not known before shapes are, and its own
// derivative: dA = MatchShape(dC, A), which reads A's shape alone.

#include "operators/reduce/sum_reduce_like.h"

#include <algorithm>

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/loops/broadcast.h"

namespace stepnet::cpu_sum_reduce_like {
namespace {

template <class T>
T total(const T* values, int64_t size) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(vec_sum(std::span<const T>(values, static_cast<size_t>(size))));
  } else {
    T sum = 0;
    for (int64_t i = 0; i < size; ++i) sum += values[i];
    return sum;
  }
}

template <class T>
void sum_to(const Broadcast& shapes, In<T> a, Out<T> c, const Call& call) {
  if (!call.accumulates(0)) std::fill(c.begin(), c.end(), T(0));
  BroadcastRuns(shapes).each([&](const BroadcastRun& run) {
    const T* from = a.data() + run.a;
    T* to = c.data() + run.b;
    if (run.b_moves) {
#pragma omp simd
      for (int64_t i = 0; i < run.size; ++i) to[i] += from[i];
    } else {
      *to += total(from, run.size);
    }
  });
}

template <class T>
void repeat_to(const Broadcast& shapes, In<T> b, Out<T> a, const Call& call) {
  BroadcastRuns(shapes).each([&](const BroadcastRun& run) {
    const T* from = b.data() + run.b;
    T* to = a.data() + run.out;
    if (call.accumulates(0)) {
      const int64_t step = run.b_moves ? 1 : 0;
      for (int64_t i = 0; i < run.size; ++i) to[i] += from[i * step];
    } else if (run.b_moves) {
      std::copy_n(from, run.size, to);
    } else {
      std::fill_n(to, run.size, *from);
    }
  });
}

template <class T>
void reduce(const BroadcastArgs& args, In<T> a, In<T>, Out<T> c, Call& call) {
  sum_to(sum_like_shapes(args, call.in(0).shape(), call.in(1).shape()), a, c, call);
}

template <class T>
void spread(const BroadcastArgs& args, In<T>, In<T> dc, Out<T> da, Call& call) {
  repeat_to(sum_like_shapes(args, call.in(0).shape(), call.in(1).shape()), dc, da, call);
}

template <class T>
void match(In<T> a, In<T>, Out<T> c, Call& call) {
  const Fit fit = fit_shapes(call.in(0).shape(), call.in(1).shape());
  fit.sums ? sum_to(fit.shapes, a, c, call) : repeat_to(fit.shapes, a, c, call);
}

void infer(const BroadcastArgs& args, ShapeCall& c) {
  if (c.known(0) && c.known(1)) sum_like_shapes(args, c.shape(0), c.shape(1));
  c.set_like(0, 1);
}

void infer_gradient(const BroadcastArgs& args, ShapeCall& c) {
  if (c.known(0) && c.known(1)) sum_like_shapes(args, c.shape(0), c.shape(1));
  c.set_like(0, 0);
}

void infer_match(const NoArgs&, ShapeCall& c) {
  if (c.known(0) && c.known(1)) fit_shapes(c.shape(0), c.shape(1));
  c.set_like(0, 1);
}

double summed(const ShapeCall& c) { return input_size(c, 0) > output_size(c, 0) ? input_size(c, 0) : 0; }

REGISTER(sum_reduce_like) {
  auto builder = op<BroadcastArgs>("SumReduceLike");
  builder.doc("Sums A to the shape of B, which must go with A by broadcasting.");
  return add_broadcast_args(builder)
      .input("A", "the broadcast shape")
      .input("B", "a tensor of the result's shape")
      .shape_only()
      .output("C", "like B")
      .accumulates()
      .shape(infer)
      .role(Role::sum_to)
      .example({"A=2,3", "B=2,3"})
      .example({"A=2,3,2", "B=2"}, {"broadcast=1"})
      .example({"A=2,3,2", "B=3"}, {"broadcast=1", "axis=1"})
      .example({"A=2,3,2", "B=3"}, {"broadcast=1", "axis_str=C"})
      .example({"A=2,3,2", "B=2,1,2"}, {"broadcast=1"})
      .example({"A=2,3", "B=1"}, {"broadcast=1"})
      .example({"A=0,3", "B=3"}, {"broadcast=1"})
      .flops([](const auto&, const ShapeCall& c) { return summed(c); })
      .cpu(reduce<float>, reduce<double>, reduce<int32_t>, reduce<int64_t>)
      .derivative("A",
                  [](Formula& f) {
                    return f.op("SumReduceLikeGradient", {f.x("A"), f.dy("C")}, f.forward_args());
                  })
      .derivative("B", [](Formula&) { return Gradient::none(); });
}

REGISTER(sum_reduce_like_gradient) {
  auto builder = op<BroadcastArgs>("SumReduceLikeGradient");
  builder.own();
  builder.doc("Gradient of SumReduceLike: dC broadcast to the shape of A.");
  return add_broadcast_args(builder)
      .input("A", "a tensor of the result's shape")
      .shape_only()
      .input("dC", "gradient of SumReduceLike's C")
      .output("dA", "like A")
      .shape(infer_gradient)
      .cpu(spread<float>, spread<double>, spread<int32_t>, spread<int64_t>)
      .derivative("A", [](Formula&) { return Gradient::none(); })
      .derivative("dC", [](Formula& f) {
        return f.op("SumReduceLike", {f.dy("dA"), f.x("dC")}, f.forward_args());
      });
}

BroadcastArgs repeated() {
  BroadcastArgs args;
  args.broadcast = true;
  return args;
}

template <class T>
void expand_gradient(In<T> dy, In<T> x, Out<T> dx, Call& call) {
  reduce(repeated(), dy, x, dx, call);
}

REGISTER(expand_gradient) {
  return op("ExpandGradient")
      .doc("Gradient of Expand: dY summed to the shape of X.")
      .input("dY", "gradient of Expand's Y")
      .input("X", "Expand's X")
      .shape_only()
      .output("dX", "like X")
      .accumulates()
      .shape([](const NoArgs&, ShapeCall& c) { infer(repeated(), c); })
      .example({"dY=2,3,2", "X=3,1"})
      .example({"dY=2,3", "X=2,3"})
      .flops(
          [](const auto&, const ShapeCall& c) { return input_size(c, 0) == output_size(c, 0) ? 0 : input_size(c, 0); })
      .cpu(expand_gradient<float>, expand_gradient<double>, expand_gradient<int32_t>, expand_gradient<int64_t>)
      .derivative("dY",
                  [](Formula& f) {
                    return f.op("SumReduceLikeGradient", {f.x("dY"), f.dy("dX")}, {make_arg("broadcast", true)});
                  })
      .derivative("X", [](Formula&) { return Gradient::none(); });
}

REGISTER(match_shape) {
  auto builder = op("MatchShape");
  builder.own();
  return builder
      .doc(
          "A summed or repeated to the shape of B, by the rules of broadcasting. If A has that shape, C is another "
          "name for its storage, and nothing is copied. Gradients of operands that may have been broadcast are so "
          "made.")
      .input("A", "the values")
      .input("B", "a tensor of the result's shape")
      .shape_only()
      .output("C", "like B", like("B"))
      .accumulates()
      .shape(infer_match)
      .fits_output()
      .alias("A", "C")
      .example({"A=2,3", "B=2,3"})
      .example({"A=2,3", "B=3"})
      .example({"A=2,3,2", "B=1,3,1"})
      .example({"A=2,1", "B=2,2,3"})
      .example({"A=0,3", "B=1,3"})
      .flops([](const NoArgs&, const ShapeCall& c) { return summed(c); })
      .cpu(match<float>, match<double>, match<int32_t>, match<int64_t>)
      .derivative("A",
                  [](Formula& f) {
                    return f.op("MatchShape", {f.dy("C"), f.x("A")});
                  })
      .derivative("B", [](Formula&) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet::cpu_sum_reduce_like
