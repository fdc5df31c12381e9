// What operators on two tensors share: the kernel of C = A op B over broadcast operands, and declarations of arithmetic
// (Add, Sub, Mul, Div) and of what gives bools (comparisons and logic).
#pragma once

#include <functional>
#include <string>

#include "core/compute/threads.h"
#include "operators/loops/broadcast.h"

namespace stepnet {

constexpr double kBinaryCost = 0.3;  // about the nanoseconds of one element, for parallel_for

template <class Op, class T, class R>
void apply_run(const BroadcastRun& run, const T* a, const T* b, R* c) {
  a += run.a;
  b += run.b;
  c += run.out;
  if (run.a_moves && run.b_moves) {
#pragma omp simd
    for (int64_t i = 0; i < run.size; ++i) c[i] = Op()(a[i], b[i]);
  } else if (run.a_moves) {
    const T right = *b;
#pragma omp simd
    for (int64_t i = 0; i < run.size; ++i) c[i] = Op()(a[i], right);
  } else {
    const T left = *a;
    const int64_t step = run.b_moves ? 1 : 0;
    for (int64_t i = 0; i < run.size; ++i) c[i] = Op()(left, b[i * step]);
  }
}

template <class Op, class T, class R>
void elementwise_binary(const BroadcastArgs& args, In<T> a, In<T> b, Out<R> c, Call& call) {
  // Not asked of equal shapes, as the answer takes longer than a few numbers.
  if (!(call.in(0).shape() == call.in(1).shape()))
    if (const Broadcast shapes = broadcast_shapes(args, call.in(0).shape(), call.in(1).shape()); !shapes.plain())
      return BroadcastRuns(shapes).each(
          [&](const BroadcastRun& run) { apply_run<Op>(run, a.data(), b.data(), c.data()); });
  auto range = [&](int64_t begin, int64_t end) {
    apply_run<Op>(BroadcastRun{begin, begin, begin, end - begin, true, true}, a.data(), b.data(), c.data());
  };
  parallel_for(static_cast<int64_t>(c.size()), kBinaryCost, std::ref(range));
}

// What stands before and after the sizes in an example's inputs.
struct ExampleValues {
  const char *type, *range;
};
inline constexpr ExampleValues kRealExamples = {"", ",0.5..2"}, kBoolExamples = {"bool,", ""},
                               kIntegerExamples = {"int32,", ",-1..1"};

// Examples with B laid over A in every way.
inline void add_binary_examples(OpBuilder<BroadcastArgs>& b, const ExampleValues& values) {
  auto input = [&](const char* name, const char* sizes) {
    return fmt::format("{}{}{}{}", name, values.type, sizes, values.range);
  };
  auto add = [&](const char* a_sizes, const char* b_sizes, std::vector<std::string> args) {
    b.example({input("A=", a_sizes), input("B=", b_sizes)}, std::move(args));
  };
  add("2,3", "2,3", {});
  add("2,3,2", "3,1", {});
  add("3", "2,3", {});
  add("2,1,3", "2,1", {});
  add("2,1,1", "0,3", {});
  add("1", "1", {"equal_shapes=1"});
  add("2,3,2", "2", {"broadcast=1"});
  add("2,3,2", "3", {"broadcast=1", "axis=1"});
  add("2,3,2", "3", {"broadcast=1", "axis_str=C"});
  add("2,3", "1", {"broadcast=1"});
  add("3,1,2", "2,1", {"broadcast=1"});
  add("0,3", "3", {"broadcast=1"});
}

// `type`, whose sign is `sign`, with all but its doc, its kernels, in what it may be computed in place and derivatives.
// `values`: of its examples.
inline OpBuilder<BroadcastArgs> binary_op(const std::string& type, const std::string& sign,
                                          const ExampleValues& values = kRealExamples) {
  OpBuilder<BroadcastArgs> b(type);
  add_binary_examples(b, values);
  add_broadcast_args(b)
      .input("A", "any shape")
      .input("B", "a shape that goes with A's")
      .output("C", "A " + sign + " B, of the shape to which both repeat")
      .shape(infer_broadcast)
      .rowwise(broadcast_rows);
  return b;
}

// The same of one that is `code` when fused.
inline OpBuilder<BroadcastArgs> binary_op(const std::string& type, const std::string& sign, FusedCode code) {
  OpBuilder<BroadcastArgs> b = binary_op(type, sign);
  b.fused([code](const BroadcastArgs& a, int) { return a.aligned() ? FusedBody{} : FusedBody{{code, 0, 1}}; });
  return b;
}

inline void infer_predicate(const BroadcastArgs& args, ShapeCall& call) {
  if (!call.known(0) || !call.known(1)) return;
  call.set(0, DType::boolean, broadcast_shapes(args, call.shape(0), call.shape(1)).out);
}

// The same of one whose C is bools, at which gradients end.
inline OpBuilder<BroadcastArgs> predicate_op(const std::string& type, const std::string& sign,
                                             const ExampleValues& values = kRealExamples) {
  OpBuilder<BroadcastArgs> b = binary_op(type, sign, values);
  b.types({DType::boolean}).shape(infer_predicate).stop_gradient();
  return b;
}

// The gradient of operand 0 or 1 from `repeated`, that of the operand as it was repeated. Formulas know no shapes, so
// without `broadcast` an operator sums it that does nothing where the shapes are equal; not where they must be: if the
// operands are one, or the result is written over this one. With an axis only B repeats. Args is or has as its base
// BroadcastArgs.
template <class Args = BroadcastArgs>
Gradient gradient_of_operand(Formula& f, Value repeated, int operand) {
  const BroadcastArgs& args = f.args<Args>();
  const OperatorDef& def = f.def();
  if (args.broadcast) {
    if (operand == 0 && args.aligned()) return repeated;
    return f.op("SumReduceLike", {repeated, f.x_at(operand)}, f.forward_args());
  }
  const bool is_over = def.output_size() > 0 && def.input(operand) == def.output(0);
  if (args.equal_shapes || is_over || def.input(0) == def.input(1)) return repeated;
  return f.op("MatchShape", {f.same_shape(repeated, f.dy_at(0)), f.x_at(operand)});
}
template <class Args = BroadcastArgs>
Gradient gradient_of_a(Formula& f, Value repeated) {
  return gradient_of_operand<Args>(f, repeated, 0);
}
template <class Args = BroadcastArgs>
Gradient gradient_of_b(Formula& f, Value repeated) {
  return gradient_of_operand<Args>(f, repeated, 1);
}

}  // namespace stepnet
