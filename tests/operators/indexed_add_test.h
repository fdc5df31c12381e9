// What the tests of IndexAdd and ScatterAdd share: forward against plain loops, gradients, and in place.
#pragma once

#include "tests/core/errors.h"
#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {

struct IndexedAdd {
  std::string type;
  bool own_indices;  // each element of SRC has one; else they are one list along the axis

  OperatorDef def(int axis, const char* output = "Y") const {
    return make_op(type, {"DATA", "INDICES", "SRC"}, {output}, {make_arg("axis", axis)});
  }
};

template <class T>
Feeds indexed_feeds(const IndexedAdd& add, const Shape& data, int axis, int64_t count) {
  const Shape source = data.with(axis, count);
  const int64_t last = data[axis] - 1;
  return {{"DATA", normal<T>(data, 1)},
          {"INDICES", add.own_indices ? integers<int64_t>(source, 0, last, 2) : integers<int32_t>({count}, 0, last, 2)},
          {"SRC", normal<T>(source, 3)}};
}

inline Tensor indexed_naive(const IndexedAdd& add, const Feeds& feeds, int axis) {
  Tensor y = to_double(feeds[0].second);
  const Tensor &indices = feeds[1].second, source = to_double(feeds[2].second);
  const int64_t inner = y.shape().size_between(axis + 1, y.rank()), count = source.dim(axis);
  for (int64_t i = 0; i < source.size(); ++i) {
    const int64_t outer = i / inner / count, k = i / inner % count;
    const int64_t row = add.own_indices ? indices.data<int64_t>()[i] : indices.data<int32_t>()[k];
    y.data<double>()[(outer * y.dim(axis) + row) * inner + i % inner] += source.data<double>()[i];
  }
  return y;
}

struct IndexedCase {
  Shape data;
  int axis;
  int64_t count;
};
inline const IndexedCase kIndexedCases[] = {{{4, 3}, 0, 6}, {{4, 3}, 1, 2}, {{2, 3, 2}, 1, 4}, {{5}, 0, 7},
                                            {{1, 1}, 0, 1}, {{3, 0}, 0, 2}, {{4, 3}, 0, 0},    {{3, 2000}, 0, 4}};

inline void expect_forward_is_the_formula(const IndexedAdd& add) {
  for (const auto& [data, axis, count] : kIndexedCases) {
    const Feeds feeds = indexed_feeds<double>(add, data, axis, count);
    const Feeds single = indexed_feeds<float>(add, data, axis, count);
    const Tensor expected = indexed_naive(add, feeds, axis);
    EXPECT_EQ(compare(run_op_on(add.def(axis), feeds)[0], expected, 1e-15), "") << data.str();
    EXPECT_EQ(compare(run_op_on(add.def(axis - data.rank()), feeds)[0], expected, 1e-15), "") << data.str();
    EXPECT_EQ(compare(run_op_on(add.def(axis), single)[0], indexed_naive(add, single, axis), 1e-6), "") << data.str();
  }
}

inline void expect_gradients_are_right(const IndexedAdd& add) {
  for (const auto& [data, axis, count] : kIndexedCases)
    if (data.size() < 100) {
      const Feeds feeds = indexed_feeds<double>(add, data, axis, count);
      EXPECT_EQ(check_gradient(add.def(axis), feeds, {"DATA", "SRC"}), "") << data.str();
    }
}

// Of the gradient's gradient along axis 1, for dY [2, 3].
inline void expect_second_order_is_right(const IndexedAdd& add, const Tensor& indices) {
  const OperatorDef def = make_op(add.type + "Gradient", {"INDICES", "dY"}, {"dSRC"}, {make_arg("axis", 1)});
  EXPECT_EQ(check_gradient(def, {{"INDICES", indices}, {"dY", normal<double>({2, 3}, 1)}}, {"dY"}), "");
}

inline void expect_only_the_sources_gradient_reads_the_indices(const IndexedAdd& add) {
  EXPECT_EQ(gradient_reads(add.def(0), "DATA"), "");
  EXPECT_EQ(gradient_reads(add.def(0), "SRC"), "INDICES");
}

// `indices`: for adding DATA [4, 3] to itself, which must not change while it is added.
inline void expect_in_place_of_data(const IndexedAdd& add, const Tensor& indices) {
  const Feeds feeds = indexed_feeds<double>(add, {4, 3}, 0, 6);
  EXPECT_EQ(compare(run_op_on(add.def(0, "DATA"), feeds)[0], indexed_naive(add, feeds, 0), 1e-15), "");
  EXPECT_EQ(check_gradient(add.def(0, "DATA"), feeds, {"DATA", "SRC"}), "");
  const OperatorDef to_itself = make_op(add.type, {"DATA", "INDICES", "DATA"}, {"DATA"});
  expect_contains(error_of([&] {
                    run_op_on(to_itself, {feeds[0], {"INDICES", indices}});
                  }),
                  "output \"Y\" cannot have the name of the input \"SRC\"");
}

// With one input of the feeds replaced.
inline std::string indexed_error(const IndexedAdd& add, Feeds feeds, int input, const Tensor& value, int axis = 0) {
  feeds[input].second = value;
  return error_of([&] { run_op_on(add.def(axis), feeds); });
}

}  // namespace stepnet::testing
