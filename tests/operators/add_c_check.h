// What the tests of AddCMul and AddCDiv share. Threads: not for concurrent use.
#pragma once

#include "tests/operators/elementwise_check.h"
#include "tests/operators/gradient_reads.h"

namespace stepnet::testing {

inline OperatorDef add_c(const std::string& type, float value, const std::string& output = "C") {
  return make_op(type, {"T", "A", "B"}, {output}, {make_arg("value", value)});
}

template <class T>
Feeds add_c_feeds(const Shape& shape) {
  return {{"T", normal<T>(shape, 1)}, {"A", normal<T>(shape, 2)}, {"B", uniform<T>(shape, 0.5, 2, 3)}};
}

// C = T + value fn(A, B) in every shape, type and place; returns "" or what is wrong.
inline std::string check_add_c(const std::string& type, const BinaryFunction& fn) {
  auto naive = [&](const Feeds& feeds, double value) {
    Tensor c = to_double(feeds[0].second);
    const Tensor a = to_double(feeds[1].second), b = to_double(feeds[2].second);
    for (int64_t i = 0; i < c.size(); ++i) c.data<double>()[i] += value * fn(a.data<double>()[i], b.data<double>()[i]);
    return c;
  };
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{0, 3}, Shape{4, 5}})
    for (const float value : {1.0F, -0.25F}) {
      const Feeds feeds = add_c_feeds<double>(shape), single = add_c_feeds<float>(shape);
      for (const char* output : {"C", "T", "A", "B"}) {
        const OperatorDef def = add_c(type, value, output);
        std::string wrong = compare(run_op_on(def, feeds)[0], naive(feeds, value), 1e-15);
        if (wrong.empty()) wrong = compare(run_op_on(def, single)[0], naive(single, value), 1e-6);
        if (!wrong.empty()) return shape.str() + " onto " + output + ": " + wrong;
      }
      for (const char* output : {"C", "T"}) {
        const std::string wrong = check_gradient(add_c(type, value, output), feeds, {"T", "A", "B"});
        if (!wrong.empty()) return shape.str() + " onto " + output + ": " + wrong;
      }
    }
  return "";
}

}  // namespace stepnet::testing
