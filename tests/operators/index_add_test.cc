// IndexAdd and its gradient against plain loops and central differences, in place, and what its gradients read.
#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {
namespace {

OperatorDef index_add(int axis, const char* output = "Y") {
  return make_op("IndexAdd", {"DATA", "INDICES", "SRC"}, {output}, {make_arg("axis", axis)});
}

template <class T>
Feeds feeds_for(const Shape& data, int axis, int64_t count) {
  return {{"DATA", normal<T>(data, 1)},
          {"INDICES", integers<int32_t>({count}, 0, data[axis] - 1, 2)},
          {"SRC", normal<T>(data.with(axis, count), 3)}};
}

Tensor naive(const Feeds& feeds, int axis) {
  Tensor y = to_double(feeds[0].second);
  const Tensor source = to_double(feeds[2].second);
  const int64_t inner = y.shape().size_between(axis + 1, y.rank()), count = source.dim(axis);
  for (int64_t i = 0; i < source.size(); ++i) {
    const int64_t outer = i / inner / count, k = i / inner % count;
    const int64_t row = feeds[1].second.data<int32_t>()[k];
    y.data<double>()[(outer * y.dim(axis) + row) * inner + i % inner] += source.data<double>()[i];
  }
  return y;
}

struct Case {
  Shape data;
  int axis;
  int64_t count;
};
const Case kCases[] = {{{4, 3}, 0, 6}, {{4, 3}, 1, 2}, {{2, 3, 2}, 1, 4}, {{5}, 0, 7},
                       {{1, 1}, 0, 1}, {{3, 0}, 0, 2}, {{4, 3}, 0, 0},    {{3, 2000}, 0, 4}};

TEST(IndexAdd, ForwardIsTheFormula) {
  for (const Case& c : kCases) {
    const Feeds feeds = feeds_for<double>(c.data, c.axis, c.count), single = feeds_for<float>(c.data, c.axis, c.count);
    EXPECT_EQ(compare(run_op_on(index_add(c.axis), feeds)[0], naive(feeds, c.axis), 1e-15), "") << c.data.str();
    EXPECT_EQ(compare(run_op_on(index_add(c.axis - c.data.rank()), feeds)[0], naive(feeds, c.axis), 1e-15), "");
    EXPECT_EQ(compare(run_op_on(index_add(c.axis), single)[0], naive(single, c.axis), 1e-6), "") << c.data.str();
  }
}

TEST(IndexAdd, Gradients) {
  for (const Case& c : kCases)
    if (c.data.size() < 100) {
      EXPECT_EQ(check_gradient(index_add(c.axis), feeds_for<double>(c.data, c.axis, c.count), {"DATA", "SRC"}), "")
          << c.data.str();
    }
}

TEST(IndexAdd, GradientOfGradient) {
  const OperatorDef def = make_op("IndexAddGradient", {"INDICES", "dY"}, {"dSRC"}, {make_arg("axis", 1)});
  const Feeds feeds = {{"INDICES", Tensor::of<int64_t>({3}, {2, 0, 2})}, {"dY", normal<double>({2, 3}, 1)}};
  EXPECT_EQ(check_gradient(def, feeds, {"dY"}), "");
}

TEST(IndexAdd, OnlyTheSourcesGradientReadsTheIndices) {
  EXPECT_EQ(gradient_reads(index_add(0), "DATA"), "");
  EXPECT_EQ(gradient_reads(index_add(0), "SRC"), "INDICES");
}

TEST(IndexAdd, InPlaceOfData) {
  const Feeds feeds = feeds_for<double>({4, 3}, 0, 6);
  EXPECT_EQ(compare(run_op_on(index_add(0, "DATA"), feeds)[0], naive(feeds, 0), 1e-15), "");
  EXPECT_EQ(check_gradient(index_add(0, "DATA"), feeds, {"DATA", "SRC"}), "");
  // What is added must not change while it is.
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("IndexAdd", {"DATA", "INDICES", "DATA"}, {"DATA"}),
                        {feeds[0], {"INDICES", Tensor::of<int32_t>({4}, {3, 2, 1, 0})}});
            }).find("output \"Y\" cannot have the name of the input \"SRC\""),
            std::string::npos);
}

std::string error_with(int input, const Tensor& value, int axis = 0) {
  Feeds feeds = feeds_for<float>({4, 3}, 0, 2);
  feeds[input].second = value;
  return error_of([&] { run_op_on(index_add(axis), feeds); });
}

TEST(IndexAdd, BadInputIsNamed) {
  EXPECT_NE(error_with(1, Tensor::of<int32_t>({2}, {0, 4})).find("index 1 is 4, which is outside of 0 to 3"),
            std::string::npos);
  EXPECT_NE(error_with(1, Tensor::of<int32_t>({2}, {-1, 0})).find("index 0 is -1, which is outside of 0 to 3"),
            std::string::npos);
  EXPECT_NE(error_with(1, Tensor::of<int32_t>({1, 2}, {0, 1})).find("INDICES must have one dimension, but are [1, 2]"),
            std::string::npos);
  EXPECT_NE(
      error_with(2, normal<float>({3, 3})).find("SRC must be [2, 3] for DATA [4, 3] and 2 indices, but is [3, 3]"),
      std::string::npos);
  error_with(1, Tensor::of<int32_t>({2}, {0, 1}), 2);
  error_with(0, Tensor::scalar<float>(1));
}

}  // namespace
}  // namespace stepnet::testing
