// Words for bodies (OpBuilder::composed): small operators on values of one shape, and on the rows of a matrix. They say
// which results have the shape of an operand, so that derivatives that read a shape alone need not compute these again.
// Threads: pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "stepnet/operator.h"

namespace stepnet::composing {

inline Value like_first(Formula& f, const std::string& type, Value a, Value b, std::vector<Argument> args = {}) {
  return f.same_shape(f.op(type, {a, b}, std::move(args)), a);
}
inline Value add(Formula& f, Value a, Value b) { return like_first(f, "Add", a, b); }
inline Value sub(Formula& f, Value a, Value b) { return like_first(f, "Sub", a, b); }
inline Value mul(Formula& f, Value a, Value b) { return like_first(f, "Mul", a, b); }
inline Value div(Formula& f, Value a, Value b) { return like_first(f, "Div", a, b); }

// An operator on one tensor whose result has its shape.
inline Value map(Formula& f, const std::string& type, Value x, std::vector<Argument> args = {}) {
  return f.same_shape(f.op(type, {x}, std::move(args)), x);
}
inline Value negative(Formula& f, Value x) { return map(f, "Negative", x); }
inline Value scaled(Formula& f, Value x, float factor) { return map(f, "Scale", x, {make_arg("scale", factor)}); }
inline Value zeros(Formula& f, Value like) { return map(f, "ZerosLike", like); }

// `number` everywhere. A fill has its value in float: the rest is added.
inline Value fill(Formula& f, Value like, double number) {
  const auto filled = [&](float part) {
    const Value v = map(f, "ConstantFill", like, {make_arg("value", part)});
    f.set_reads({false});
    return v;
  };
  const auto most = static_cast<float>(number), rest = static_cast<float>(number - static_cast<double>(most));
  return rest == 0 ? filled(most) : add(f, filled(most), filled(rest));
}

// The sum of two values of which either may be missing.
inline Value add_given(Formula& f, Value a, Value b) {
  return a.defined() && b.defined() ? add(f, a, b) : a.defined() ? a : b;
}

inline Value where(Formula& f, Value condition, Value x, Value y) {
  return f.same_shape(f.op("Where", {condition, x, y}), x);
}

// x, but `least` where it is not greater; the slope there is 0.
inline Value at_least(Formula& f, Value x, double least) {
  const Value bound = fill(f, x, least);
  return where(f, f.op("GT", {x, bound}), x, bound);
}

// b laid over a: as the arguments of Broadcast operators say, or a value for each row of a matrix.
inline std::vector<Argument> laid_over() { return {make_arg("broadcast", true)}; }
inline std::vector<Argument> by_row() { return {make_arg("broadcast", true), make_arg("axis", 0)}; }

// The elements of `x` in the shape of `like`.
inline Value reshaped(Formula& f, Value x, Value like) { return f.same_shape(f.op("ResizeLike", {x, like}), like); }
// As a matrix whose rows are the dimensions before `axis`.
inline Value matrix(Formula& f, Value x, int64_t axis) { return f.op("Flatten", {x}, {make_arg("axis", axis)}); }
// In one dimension.
inline Value vector(Formula& f, Value x) { return f.op("FlattenToVec", {x}); }

// A number for each row of a matrix: [rows].
inline Value row_sums(Formula& f, Value x) {
  return f.op("ReduceSum", {x}, {make_arg("axes", std::vector<int64_t>{1}), make_arg("keepdims", false)});
}
inline Value row_means(Formula& f, Value x) {
  return f.op("ReduceMean", {x}, {make_arg("axes", std::vector<int64_t>{1}), make_arg("keepdims", false)});
}

}  // namespace stepnet::composing
