// Sub against plain loops and central differences, with every kind of broadcasting.
#include "tests/operators/op_test.h"

namespace stepnet::testing::sub_test {
namespace {

OperatorDef sub_op(const std::vector<Argument>& args = {}) { return make_op("Sub", {"A", "B"}, {"C"}, args); }

Argument broadcast() { return make_arg("broadcast", 1); }

TEST(Sub, EqualShapes) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{0, 3}, Shape{4, 5}}) {
    const Tensor a = normal<double>(shape, 1), b = normal<double>(shape, 2);
    Tensor c = a.clone();
    for (int64_t i = 0; i < c.size(); ++i) c.data<double>()[i] = a.data<double>()[i] - b.data<double>()[i];
    EXPECT_EQ(compare(run_op_on(sub_op(), {{"A", a}, {"B", b}})[0], c, 0), "") << shape.str();
    EXPECT_EQ(check_gradient(sub_op(), {{"A", a}, {"B", b}}, {"A", "B"}), "") << shape.str();
  }
}

TEST(Sub, RowsAndColumns) {
  const Tensor a = normal<double>({2, 3, 4}, 1), row = normal<double>({4}, 2), middle = normal<double>({3}, 3);
  Tensor with_row = a.clone(), with_middle = a.clone();
  for (int64_t i = 0; i < a.size(); ++i) {
    with_row.data<double>()[i] = a.data<double>()[i] - row.data<double>()[i % 4];
    with_middle.data<double>()[i] = a.data<double>()[i] - middle.data<double>()[i / 4 % 3];
  }
  EXPECT_EQ(compare(run_op_on(sub_op({broadcast()}), {{"A", a}, {"B", row}})[0], with_row, 0), "");
  EXPECT_EQ(check_gradient(sub_op({broadcast()}), {{"A", a}, {"B", row}}, {"A", "B"}), "");
  for (const Argument& axis : {make_arg("axis", 1), make_arg("axis_str", "C")}) {
    const OperatorDef def = sub_op({broadcast(), axis});
    EXPECT_EQ(compare(run_op_on(def, {{"A", a}, {"B", middle}})[0], with_middle, 0), "");
    EXPECT_EQ(check_gradient(def, {{"A", a}, {"B", middle}}, {"A", "B"}), "");
  }
}

TEST(Sub, BothSidesRepeat) {
  const Tensor a = normal<double>({3, 1, 4}, 1), b = normal<double>({2, 1}, 2);
  Tensor c = Tensor::zeros(DType::float64, {3, 2, 4});
  for (int64_t i = 0; i < c.size(); ++i)
    c.data<double>()[i] = a.data<double>()[i / 8 * 4 + i % 4] - b.data<double>()[i / 4 % 2];
  EXPECT_EQ(compare(run_op_on(sub_op({broadcast()}), {{"A", a}, {"B", b}})[0], c, 0), "");
  EXPECT_EQ(check_gradient(sub_op({broadcast()}), {{"A", a}, {"B", b}}, {"A", "B"}), "");
  EXPECT_EQ(check_gradient(sub_op({broadcast()}), {{"A", b}, {"B", a}}, {"A", "B"}), "");
}

TEST(Sub, IntegersAndInPlace) {
  const Tensor a = integers<int32_t>({3, 4}, -9, 9, 1), b = integers<int32_t>({4}, -9, 9, 2);
  const Tensor apart = run_op_on(sub_op({broadcast()}), {{"A", a}, {"B", b}})[0];
  EXPECT_EQ(apart.dtype(), DType::int32);
  const OperatorDef on_a = make_op("Sub", {"A", "B"}, {"A"}, {broadcast()});
  const OperatorDef on_b = make_op("Sub", {"A", "B"}, {"B"}, {broadcast()});
  EXPECT_EQ(compare(run_op_on(on_a, {{"A", a}, {"B", b}})[0], apart, 0), "");
  EXPECT_NE(error_of([&] {
              run_op_on(on_b, {{"A", a}, {"B", b}});
            }).find("output 0 is to be written in place of input 1, but would be [3, 4] instead of [4]"),
            std::string::npos);
}

TEST(Sub, BadShapesAreNamed) {
  const Feeds feeds = {{"A", normal<float>({2, 3})}, {"B", normal<float>({2})}};
  EXPECT_NE(error_of([&] {
              run_op_on(sub_op(), feeds);
            }).find("A is [2, 3] and B [2]; without the argument broadcast: 1 they must have one shape"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              run_op_on(sub_op({broadcast()}), feeds);
            }).find("A [2, 3] and B [2] cannot be broadcast together: 3 against 2"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::sub_test
