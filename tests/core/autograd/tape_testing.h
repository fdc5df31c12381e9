// What tests of the tape share.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "core/autograd/engine.h"
#include "core/autograd/record.h"
#include "core/device.h"

namespace stepnet::autograd::testing {

inline Variable var(const Shape& shape, std::initializer_list<double> values, bool requires_grad = true) {
  return Variable(Tensor::of<double>(shape, values), requires_grad);
}
inline Variable var(std::initializer_list<double> values, bool requires_grad = true) {
  return var({static_cast<int64_t>(values.size())}, values, requires_grad);
}
inline Variable constant(std::initializer_list<double> values) { return var(values, false); }

// Operators with one output and no arguments, or numpy's broadcasting.
inline Variable apply(const std::string& type, const std::vector<Variable>& inputs, Place place = Place::here()) {
  return run(type, inputs, {}, {}, place)[0];
}
inline Variable broadcast(const std::string& type, const Variable& a, const Variable& b) {
  return run(type, {a, b}, {make_arg("broadcast", 1)})[0];
}
inline Variable apply_in_place(const std::string& type, const std::vector<Variable>& inputs,
                               Place place = Place::here()) {
  return run(type, inputs, {}, {.in_place = true}, place)[0];
}
inline Variable sum_of(const Variable& v) { return apply("SumElements", {v}); }

inline std::vector<double> values_of(const Variable& v) {
  const auto values = v.value().span<double>();
  return {values.begin(), values.end()};
}
inline std::vector<double> grad_of(const Variable& v) {
  return v.grad().defined() ? values_of(v.grad().dense) : std::vector<double>{};
}
using Numbers = std::vector<double>;

// Bytes that the CPU's allocator has handed out.
inline int64_t live_bytes() { return allocator(Device{}).counters().live; }

}  // namespace stepnet::autograd::testing
