// Arithmetic on two tensors against plain loops and central differences.
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "tests/operators/elementwise_check.h"
#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::arithmetic_test {
namespace {

OperatorDef add_op(const std::vector<Argument>& args = {}) { return make_op("Add", {"A", "B"}, {"C"}, args); }

Argument broadcast() { return make_arg("broadcast", 1); }

TEST(Add, EqualShapes) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{0, 3}, Shape{4, 5}}) {
    const Tensor a = normal<double>(shape, 1), b = normal<double>(shape, 2);
    Tensor c = a.clone();
    for (int64_t i = 0; i < c.size(); ++i) c.data<double>()[i] = a.data<double>()[i] + b.data<double>()[i];
    EXPECT_EQ(compare(run_op_on(add_op(), {{"A", a}, {"B", b}})[0], c, 0), "") << shape.str();
    EXPECT_EQ(check_gradient(add_op(), {{"A", a}, {"B", b}}, {"A", "B"}), "") << shape.str();
  }
}

TEST(Add, RowsAndColumns) {
  const Tensor a = normal<double>({2, 3, 4}, 1), row = normal<double>({4}, 2), middle = normal<double>({3}, 3);
  Tensor with_row = a.clone(), with_middle = a.clone();
  for (int64_t i = 0; i < a.size(); ++i) {
    with_row.data<double>()[i] = a.data<double>()[i] + row.data<double>()[i % 4];
    with_middle.data<double>()[i] = a.data<double>()[i] + middle.data<double>()[i / 4 % 3];
  }
  EXPECT_EQ(compare(run_op_on(add_op({broadcast()}), {{"A", a}, {"B", row}})[0], with_row, 0), "");
  EXPECT_EQ(check_gradient(add_op({broadcast()}), {{"A", a}, {"B", row}}, {"A", "B"}), "");
  for (const Argument& axis : {make_arg("axis", 1), make_arg("axis_str", "C")}) {
    const OperatorDef def = add_op({broadcast(), axis});
    EXPECT_EQ(compare(run_op_on(def, {{"A", a}, {"B", middle}})[0], with_middle, 0), "");
    EXPECT_EQ(check_gradient(def, {{"A", a}, {"B", middle}}, {"A", "B"}), "");
  }
}

TEST(Add, BothSidesRepeat) {
  const Tensor a = normal<double>({3, 1, 4}, 1), b = normal<double>({2, 1}, 2);
  Tensor c = Tensor::zeros(DType::float64, {3, 2, 4});
  for (int64_t i = 0; i < c.size(); ++i)
    c.data<double>()[i] = a.data<double>()[i / 8 * 4 + i % 4] + b.data<double>()[i / 4 % 2];
  EXPECT_EQ(compare(run_op_on(add_op({broadcast()}), {{"A", a}, {"B", b}})[0], c, 0), "");
  EXPECT_EQ(check_gradient(add_op({broadcast()}), {{"A", a}, {"B", b}}, {"A", "B"}), "");
  EXPECT_EQ(check_gradient(add_op({broadcast()}), {{"A", b}, {"B", a}}, {"A", "B"}), "");
}

TEST(Add, IntegersAndInPlace) {
  const Tensor a = integers<int32_t>({3, 4}, -9, 9, 1), b = integers<int32_t>({4}, -9, 9, 2);
  const Tensor apart = run_op_on(add_op({broadcast()}), {{"A", a}, {"B", b}})[0];
  EXPECT_EQ(apart.dtype(), DType::int32);
  const OperatorDef on_a = make_op("Add", {"A", "B"}, {"A"}, {broadcast()});
  const OperatorDef on_b = make_op("Add", {"A", "B"}, {"B"}, {broadcast()});
  EXPECT_EQ(compare(run_op_on(on_a, {{"A", a}, {"B", b}})[0], apart, 0), "");
  EXPECT_NE(error_of([&] {
              run_op_on(on_b, {{"A", a}, {"B", b}});
            }).find("output 0 is to be written in place of input 1, but would be [3, 4] instead of [4]"),
            std::string::npos);
}

TEST(Add, BadShapesAreNamed) {
  const Feeds feeds = {{"A", normal<float>({2, 3})}, {"B", normal<float>({2})}};
  EXPECT_NE(error_of([&] {
              run_op_on(add_op(), feeds);
            }).find("A [2, 3] and B [2] cannot be broadcast together: 3 against 2"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              run_op_on(add_op({broadcast()}), feeds);
            }).find("A [2, 3] and B [2] cannot be broadcast together: 3 against 2"),
            std::string::npos);
}

TEST(Arithmetic, OperandsThatRepeat) {
  const std::map<std::string, BinaryFunction> functions = {
      {"Add", std::plus<>()}, {"Sub", std::minus<>()}, {"Mul", std::multiplies<>()}};
  for (const auto& [type, fn] : functions)
    for (const BroadcastCase& shapes : broadcast_cases()) {
      const Feeds feeds = {{"A", normal<double>(shapes.a, 1)}, {"B", normal<double>(shapes.b, 2)}};
      const OperatorDef def = make_op(type, {"A", "B"}, {"C"}, shapes.args);
      const Tensor c = run_op_on(def, feeds)[0];
      EXPECT_EQ(c.shape(), shapes.c) << type;
      EXPECT_EQ(compare(c, combined(shapes, feeds[0].second, feeds[1].second, fn), 0), "") << type << shapes.c.str();
      EXPECT_EQ(check_gradient(def, feeds, {"A", "B"}), "") << type << shapes.a.str() << shapes.b.str();
    }
}

// The result may take the place of an operand that has its shape, and of no other: not even of as many elements.
TEST(Arithmetic, InPlaceOfWhatHasTheResultsShape) {
  const auto feeds = [](const Shape& a, const Shape& b) {
    return Feeds{{"A", normal<double>(a, 1)}, {"B", normal<double>(b, 2)}};
  };
  const auto in_place = [&](const std::string& type, const Shape& a, const Shape& b, const char* output) {
    const OperatorDef def = make_op(type, {"A", "B"}, {output});
    const Tensor apart = run_op_on(make_op(type, {"A", "B"}, {"C"}), feeds(a, b))[0];
    EXPECT_EQ(compare(run_op_on(def, feeds(a, b))[0], apart, 0), "") << type;
    if (type == "Mul") return;
    EXPECT_EQ(check_gradient(def, feeds(a, b), {"A", "B"}), "") << type << a.str();
  };
  const auto refused = [&](const std::string& type, const Shape& a, const Shape& b, const char* output) {
    const std::string error = error_of([&] { run_op_on(make_op(type, {"A", "B"}, {output}), feeds(a, b)); });
    return error.substr(0, error.find(';'));
  };
  for (const std::string type : {"Add", "Sub", "Mul"}) {
    in_place(type, {2, 3}, {3}, "A");
    in_place(type, {3}, {2, 3}, "B");
    const std::string wrong = type + ": output 0 is to be written in place of input ";
    EXPECT_EQ(refused(type, {3}, {2, 3}, "A"), wrong + "0, but would be [2, 3] instead of [3]");
    EXPECT_EQ(refused(type, {2, 3}, {3}, "B"), wrong + "1, but would be [2, 3] instead of [3]");
    EXPECT_EQ(refused(type, {3}, {1, 3}, "A"), wrong + "0, but would be [1, 3] instead of [3]");
    EXPECT_EQ(refused(type, {1, 3}, {3}, "B"), wrong + "1, but would be [1, 3] instead of [3]");
  }
}

TEST(Arithmetic, EqualShapesOnRequest) {
  const OperatorDef def = add_op({make_arg("equal_shapes", 1)});
  const Tensor a = normal<double>({2, 3}, 1);
  EXPECT_EQ(check_gradient(def, {{"A", a}, {"B", a}}, {"A", "B"}), "");
  EXPECT_NE(error_of([&] {
              run_op_on(def, {{"A", a}, {"B", normal<double>({3})}});
            }).find("A is [2, 3] and B [3], but the argument equal_shapes says that they have one shape"),
            std::string::npos);
}

OperatorDef sub_op(const std::vector<Argument>& args = {}) { return make_op("Sub", {"A", "B"}, {"C"}, args); }

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
            }).find("A [2, 3] and B [2] cannot be broadcast together: 3 against 2"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              run_op_on(sub_op({broadcast()}), feeds);
            }).find("A [2, 3] and B [2] cannot be broadcast together: 3 against 2"),
            std::string::npos);
}

OperatorDef mul_op(const std::vector<Argument>& args = {}) { return make_op("Mul", {"A", "B"}, {"C"}, args); }

TEST(Mul, EqualShapes) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{0, 3}, Shape{4, 5}}) {
    const Tensor a = normal<double>(shape, 1), b = normal<double>(shape, 2);
    Tensor c = a.clone();
    for (int64_t i = 0; i < c.size(); ++i) c.data<double>()[i] = a.data<double>()[i] * b.data<double>()[i];
    EXPECT_EQ(compare(run_op_on(mul_op(), {{"A", a}, {"B", b}})[0], c, 0), "") << shape.str();
    EXPECT_EQ(check_gradient(mul_op(), {{"A", a}, {"B", b}}, {"A", "B"}), "") << shape.str();
  }
}

TEST(Mul, RowsAndColumns) {
  const Tensor a = normal<double>({2, 3, 4}, 1), row = normal<double>({4}, 2), middle = normal<double>({3}, 3);
  Tensor with_row = a.clone(), with_middle = a.clone();
  for (int64_t i = 0; i < a.size(); ++i) {
    with_row.data<double>()[i] = a.data<double>()[i] * row.data<double>()[i % 4];
    with_middle.data<double>()[i] = a.data<double>()[i] * middle.data<double>()[i / 4 % 3];
  }
  EXPECT_EQ(compare(run_op_on(mul_op({broadcast()}), {{"A", a}, {"B", row}})[0], with_row, 0), "");
  EXPECT_EQ(check_gradient(mul_op({broadcast()}), {{"A", a}, {"B", row}}, {"A", "B"}), "");
  for (const Argument& axis : {make_arg("axis", 1), make_arg("axis_str", "C")}) {
    const OperatorDef def = mul_op({broadcast(), axis});
    EXPECT_EQ(compare(run_op_on(def, {{"A", a}, {"B", middle}})[0], with_middle, 0), "");
    EXPECT_EQ(check_gradient(def, {{"A", a}, {"B", middle}}, {"A", "B"}), "");
  }
}

TEST(Mul, BothSidesRepeat) {
  const Tensor a = normal<double>({3, 1, 4}, 1), b = normal<double>({2, 1}, 2);
  Tensor c = Tensor::zeros(DType::float64, {3, 2, 4});
  for (int64_t i = 0; i < c.size(); ++i)
    c.data<double>()[i] = a.data<double>()[i / 8 * 4 + i % 4] * b.data<double>()[i / 4 % 2];
  EXPECT_EQ(compare(run_op_on(mul_op({broadcast()}), {{"A", a}, {"B", b}})[0], c, 0), "");
  EXPECT_EQ(check_gradient(mul_op({broadcast()}), {{"A", a}, {"B", b}}, {"A", "B"}), "");
  EXPECT_EQ(check_gradient(mul_op({broadcast()}), {{"A", b}, {"B", a}}, {"A", "B"}), "");
}

TEST(Mul, IntegersAndInPlace) {
  const Tensor a = integers<int32_t>({3, 4}, -9, 9, 1), b = integers<int32_t>({4}, -9, 9, 2);
  const Tensor apart = run_op_on(mul_op({broadcast()}), {{"A", a}, {"B", b}})[0];
  EXPECT_EQ(apart.dtype(), DType::int32);
  const OperatorDef on_a = make_op("Mul", {"A", "B"}, {"A"}, {broadcast()});
  const OperatorDef on_b = make_op("Mul", {"A", "B"}, {"B"}, {broadcast()});
  EXPECT_EQ(compare(run_op_on(on_a, {{"A", a}, {"B", b}})[0], apart, 0), "");
  EXPECT_NE(error_of([&] {
              run_op_on(on_b, {{"A", a}, {"B", b}});
            }).find("output 0 is to be written in place of input 1, but would be [3, 4] instead of [4]"),
            std::string::npos);
}

TEST(Mul, InPlaceLosesWhatTheOtherGradientReads) {
  const Feeds feeds = {{"A", normal<double>({2}, 1)}, {"B", normal<double>({2}, 2)}};
  const OperatorDef on_a = make_op("Mul", {"A", "B"}, {"A"});
  EXPECT_NE(error_of([&] {
              check_gradient(on_a, feeds, {"B"});
            }).find("\"A\" is overwritten in place, but the gradient of \"B\" is computed from it"),
            std::string::npos);
  EXPECT_EQ(check_gradient(on_a, feeds, {"A"}), "");
}

TEST(Mul, BadShapesAreNamed) {
  const Feeds feeds = {{"A", normal<float>({2, 3})}, {"B", normal<float>({2})}};
  EXPECT_NE(error_of([&] {
              run_op_on(mul_op(), feeds);
            }).find("A [2, 3] and B [2] cannot be broadcast together: 3 against 2"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              run_op_on(mul_op({broadcast()}), feeds);
            }).find("A [2, 3] and B [2] cannot be broadcast together: 3 against 2"),
            std::string::npos);
}

TEST(Mul, EachGradientReadsTheOtherOperandAlone) {
  for (const OperatorDef& def : {mul_op(), mul_op({broadcast()}), mul_op({broadcast(), make_arg("axis", 1)})}) {
    EXPECT_EQ(gradient_reads(def, "A"), "B");
    EXPECT_EQ(gradient_reads(def, "B"), "A");
  }
}

OperatorDef div_op(const std::vector<Argument>& args = {}, const char* output = "C") {
  return make_op("Div", {"A", "B"}, {output}, args);
}

double quotient(double a, double b) { return a / b; }

TEST(Div, ValuesAndGradients) {
  for (const BroadcastCase& shapes : broadcast_cases()) {
    const Feeds feeds = {{"A", normal<double>(shapes.a, 1)}, {"B", uniform<double>(shapes.b, 0.5, 2, 2)}};
    const Tensor expected = combined(shapes, feeds[0].second, feeds[1].second, quotient);
    EXPECT_EQ(compare(run_op_on(div_op(shapes.args), feeds)[0], expected, 0), "") << shapes.b.str();
    EXPECT_EQ(check_gradient(div_op(shapes.args), feeds, {"A", "B"}), "") << shapes.b.str();
  }
}

TEST(Div, IntegersAreTruncated) {
  constexpr int32_t least = std::numeric_limits<int32_t>::min();
  const Feeds feeds = {{"A", Tensor::of<int32_t>({4}, {7, -7, 9, least})},
                       {"B", Tensor::of<int32_t>({4}, {2, 2, -3, -1})}};
  EXPECT_EQ(compare(run_op_on(div_op(), feeds)[0], Tensor::of<int32_t>({4}, {3, -3, -3, least}), 0), "");
}

TEST(Div, IntegersCannotBeDividedByZero) {
  const Feeds feeds = {{"A", Tensor::of<int64_t>({2}, {1, 2})}, {"B", Tensor::of<int64_t>({2}, {1, 0})}};
  EXPECT_NE(error_of([&] { run_op_on(div_op(), feeds); }).find("B has a 0, by which integers cannot be divided"),
            std::string::npos);
}

TEST(Div, InPlaceOfWhatTheGradientDoesNotRead) {
  const Feeds feeds = {{"A", normal<double>({2, 3}, 1)}, {"B", uniform<double>({2, 3}, 0.5, 2, 2)}};
  const Tensor apart = run_op_on(div_op(), feeds)[0];
  EXPECT_EQ(compare(run_op_on(div_op({}, "A"), feeds)[0], apart, 0), "");
  EXPECT_EQ(compare(run_op_on(div_op({}, "B"), feeds)[0], apart, 0), "");
  EXPECT_EQ(check_gradient(div_op({}, "A"), feeds, {"A", "B"}), "");
  for (const char* wanted : {"A", "B"})
    EXPECT_NE(error_of([&] {
                check_gradient(div_op({}, "B"), feeds, {wanted});
              }).find("\"B\" is overwritten in place, but the gradient of"),
              std::string::npos);
}

TEST(Div, BadShapesAreNamed) {
  const Feeds feeds = {{"A", normal<float>({2, 3})}, {"B", normal<float>({2})}};
  EXPECT_NE(error_of([&] {
              run_op_on(div_op(), feeds);
            }).find("A [2, 3] and B [2] cannot be broadcast together: 3 against 2"),
            std::string::npos);
}

TEST(Div, NoGradientReadsTheDividend) {
  const OperatorDef def = make_op("Div", {"A", "B"}, {"C"});
  EXPECT_EQ(gradient_reads(def, "A"), "B");
  EXPECT_EQ(gradient_reads(def, "B"), "B C");
}

OperatorDef fmod_op(const std::vector<Argument>& args = {}, const char* output = "C") {
  return make_op("FMod", {"A", "B"}, {output}, args);
}

double remainder_of(double a, double b) { return std::fmod(a, b); }

// No quotient is near a whole number, where FMod jumps.
TEST(FMod, ValuesAndGradients) {
  for (const BroadcastCase& shapes : broadcast_cases()) {
    const Feeds feeds = {{"A", uniform<double>(shapes.a, -9, 9, 5)}, {"B", uniform<double>(shapes.b, 1, 3, 6)}};
    const OperatorDef def = fmod_op(shapes.args);
    EXPECT_EQ(compare(run_op_on(def, feeds)[0], combined(shapes, feeds[0].second, feeds[1].second, remainder_of), 0),
              "");
    EXPECT_EQ(check_gradient(def, feeds, {"A", "B"}), "") << shapes.c.str();
  }
}

TEST(FMod, FloatsAndTheSignOfA) {
  const Feeds feeds = {{"A", Tensor::of<float>({5}, {5.5F, -5.5F, 5.5F, -5.5F, 1})},
                       {"B", Tensor::of<float>({5}, {2, 2, -2, -2, 0})}};
  const Tensor c = run_op_on(fmod_op(), feeds)[0];
  EXPECT_EQ(compare(c.rows(0, 4), Tensor::of<float>({4}, {1.5F, -1.5F, 1.5F, -1.5F}), 0), "");
  EXPECT_TRUE(std::isnan(c.data<float>()[4]));
}

TEST(FMod, Integers) {
  const int32_t least = std::numeric_limits<int32_t>::min();
  const Feeds feeds = {{"A", Tensor::of<int32_t>({4}, {7, -7, least, least})},
                       {"B", Tensor::of<int32_t>({4}, {3, 3, -1, 5})}};
  EXPECT_EQ(compare(run_op_on(fmod_op(), feeds)[0], Tensor::of<int32_t>({4}, {1, -1, 0, least % 5}), 0), "");
  const Feeds zero = {{"A", Tensor::of<int64_t>({1}, {7})}, {"B", Tensor::of<int64_t>({1}, {0})}};
  EXPECT_NE(error_of([&] { run_op_on(fmod_op(), zero); }).find("B has a 0, by which integers cannot be divided"),
            std::string::npos);
}

TEST(FMod, OnlyTheDivisorsGradientReadsTheInputs) {
  EXPECT_EQ(gradient_reads(fmod_op(), "A"), "");
  EXPECT_EQ(gradient_reads(fmod_op(), "B"), "A B");
}

TEST(FMod, InPlaceLosesWhatTheDivisorsGradientReads) {
  const Feeds feeds = {{"A", uniform<double>({6}, -9, 9, 5)}, {"B", uniform<double>({6}, 1, 3, 6)}};
  const Tensor apart = run_op_on(fmod_op(), feeds)[0];
  for (const char* output : {"A", "B"}) {
    EXPECT_EQ(compare(run_op_on(fmod_op({}, output), feeds)[0], apart, 0), "");
    EXPECT_EQ(check_gradient(fmod_op({}, output), feeds, {"A"}), "");
    EXPECT_NE(error_of([&] {
                check_gradient(fmod_op({}, output), feeds, {"B"});
              }).find("is overwritten in place, but the gradient of \"B\" is computed from it"),
              std::string::npos);
  }
}

TEST(FMod, BadShapesAreNamed) {
  EXPECT_NE(error_of([] {
              run_op_on(fmod_op(), {{"A", normal<float>({2, 3})}, {"B", normal<float>({2})}});
            }).find("A [2, 3] and B [2] cannot be broadcast together: 3 against 2"),
            std::string::npos);
}

// 0.3 / 0.1 is rounded up to 3, but twice 0.1 goes into 0.3 as it is in binary.
TEST(TruncDiv, GoesWithTheRemainder) {
  const Feeds feeds = {{"A", Tensor::of<double>({4}, {0.3, 7, -7, 1e15})},
                       {"B", Tensor::of<double>({4}, {0.1, 2, 2, 3})}};
  const Tensor whole = run_op_on(make_op("TruncDiv", {"A", "B"}, {"C"}), feeds)[0];
  EXPECT_EQ(compare(whole, Tensor::of<double>({4}, {2, 3, -3, 333333333333333}), 0), "");
  EXPECT_EQ(op_spec("TruncDiv").gradient_rule, GradientRule::stop);
}

namespace of_scale {

OperatorDef scale(float by, const char* output = "Y") {
  return make_op("Scale", {"X"}, {output}, {make_arg("scale", by)});
}

TEST(Scale, MultipliesByTheConstant) {
  EXPECT_EQ(compare(run_op_on(scale(-2.5F), {{"X", Tensor::of<float>({3}, {1, 0, -4})}})[0],
                    Tensor::of<float>({3}, {-2.5F, 0, 10}), 0),
            "");
  EXPECT_EQ(compare(run_op_on(make_op("Scale", {"X"}, {"Y"}), {{"X", Tensor::of<double>({1, 2}, {7, 8})}})[0],
                    Tensor::of<double>({1, 2}, {7, 8}), 0),
            "");
}

TEST(Scale, Gradients) {
  for (const Shape& x : {Shape{3, 4}, Shape{1}, Shape{0, 2}})
    EXPECT_EQ(check_gradient(scale(0.75F), {{"X", normal<double>(x)}}, {"X"}), "");
  EXPECT_EQ(check_gradient(scale(0.75F, "X"), {{"X", normal<double>({3})}}, {"X"}), "");
}

}  // namespace of_scale

namespace of_pow {

OperatorDef constant(float exponent) { return make_op("Pow", {"X"}, {"Y"}, {make_arg("exponent", exponent)}); }
OperatorDef pow_op(const std::vector<Argument>& args = {}, const char* output = "Y") {
  return make_op("Pow", {"X", "exponent"}, {output}, args);
}

double power(double x, double e) { return std::pow(x, e); }

TEST(Pow, ConstantExponents) {
  for (const float e : {0.0F, 1.0F, 2.0F, 3.0F, -1.0F, 0.5F, 2.5F})
    EXPECT_EQ(check_unary(
                  constant(e), [e](double x) { return std::pow(x, e); }, 0.5, 2, InPlace::no_gradient),
              "")
        << e;
  for (const float e : {1.0F, 2.0F, 3.0F, -2.0F})
    EXPECT_EQ(check_unary(
                  constant(e), [e](double x) { return std::pow(x, e); }, -2, -0.5, InPlace::no_gradient),
              "")
        << e;
}

TEST(Pow, GradientsAtZero) {
  const Tensor x = Tensor::of<double>({2}, {0, 0});
  for (const float e : {0.0F, 1.0F, 2.0F}) EXPECT_EQ(check_gradient(constant(e), {{"X", x}}, {"X"}, 1e-4), "") << e;
}

TEST(Pow, TensorsOfExponents) {
  for (const BroadcastCase& shapes : broadcast_cases()) {
    const Feeds feeds = {{"X", uniform<double>(shapes.a, 0.5, 2, 1)}, {"exponent", normal<double>(shapes.b, 2)}};
    const Tensor expected = combined(shapes, feeds[0].second, feeds[1].second, power);
    EXPECT_EQ(compare(run_op_on(pow_op(shapes.args), feeds)[0], expected, 1e-14), "") << shapes.b.str();
    EXPECT_EQ(check_gradient(pow_op(shapes.args), feeds, {"X", "exponent"}), "") << shapes.b.str();
  }
}

TEST(Pow, InPlaceOfWhatTheGradientDoesNotRead) {
  const Feeds feeds = {{"X", uniform<double>({2, 3}, 0.5, 2, 1)}, {"exponent", normal<double>({2, 3}, 2)}};
  const Tensor apart = run_op_on(pow_op(), feeds)[0];
  EXPECT_EQ(compare(run_op_on(pow_op({}, "X"), feeds)[0], apart, 0), "");
  EXPECT_EQ(compare(run_op_on(pow_op({}, "exponent"), feeds)[0], apart, 0), "");
  EXPECT_EQ(check_gradient(pow_op({}, "exponent"), feeds, {"exponent"}), "");
  EXPECT_NE(error_of([&] {
              check_gradient(pow_op({}, "exponent"), feeds, {"X"});
            }).find("\"exponent\" is overwritten in place, but the gradient of \"X\" is computed from it"),
            std::string::npos);
}

TEST(Pow, OneExponentIsNeeded) {
  const Feeds feeds = {{"X", normal<float>({2})}, {"exponent", normal<float>({2})}};
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("Pow", {"X"}, {"Y"}), feeds);
            }).find("there is no exponent: give the argument \"exponent\" or a second input"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              run_op_on(pow_op({make_arg("exponent", 2.0F)}), feeds);
            }).find("the exponent is given both as an argument and as the second input; give one"),
            std::string::npos);
}

}  // namespace of_pow

// Elementwise operators and their gradient operators against numbers that Caffe2 1.x has computed, and the gradient
// operators in place and in the form of 2018.
struct Row {
  const char* type;
  std::vector<Argument> args;
  Shape a_shape, b_shape, c_shape;
  std::vector<float> a, b, c, dc, da, db;
};

// Of core.GradientRegistry.GetGradientForOp, run by Caffe2 1.10.2.
const std::vector<Row>& rows() {
  static const std::vector<Row> rows = {
      // clang-format off
      {"Add", {}, {2, 3}, {2, 3}, {2, 3}, {-1, 2, 2, -4, 4, 0}, {8, 1, -4, 8, -4, 2}, {7, 3, -2, 4, 0, 2}, {-3, 1, 3, -4, -3, 0}, {-3, 1, 3, -4, -3, 0}, {-3, 1, 3, -4, -3, 0}},
      {"Add", {}, {2, 3}, {3}, {2, 3}, {2, -2, -3, -2, 3, -4}, {8, 4, -1}, {10, 2, -4, 6, 7, -5}, {-4, -4, 0, 0, -1, -2}, {-4, -4, 0, 0, -1, -2}, {-4, -5, -2}},
      {"Add", {}, {3}, {2, 3}, {2, 3}, {0, 2, -1}, {1, -1, -2, 4, 2, 2}, {1, 1, -3, 4, 4, 1}, {-1, -3, 3, -1, -3, 1}, {-2, -6, 4}, {-1, -3, 3, -1, -3, 1}},
      {"Add", {}, {2, 1}, {1, 3}, {2, 3}, {3, -4}, {8, 8, -1}, {11, 11, 2, 4, 4, -5}, {2, -4, 1, -2, 4, 2}, {-1, 4}, {0, 0, 3}},
      {"Add", {}, {2, 1, 2}, {3, 1}, {2, 3, 2}, {4, -4, 1, -2}, {-4, 8, 1}, {0, -8, 12, 4, 5, -3, -3, -6, 9, 6, 2, -1}, {-4, -4, 4, 1, 1, 2, 0, 1, -2, 4, 4, -3}, {1, -1, 2, 2}, {-7, 7, 4}},
      {"Add", {}, {1, 1}, {2}, {1, 2}, {2}, {1, 2}, {3, 4}, {-3, 4}, {1}, {-3, 4}},
      {"Add", {}, {0, 2}, {1, 2}, {0, 2}, {}, {-4, -1}, {}, {}, {}, {0, 0}},
      {"Add", {make_arg("broadcast", 1)}, {2, 3}, {3}, {2, 3}, {-2, 0, -3, 2, -1, 0}, {1, 2, 1}, {-1, 2, -2, 3, 1, 1}, {-3, 0, -2, -1, 0, 0}, {-3, 0, -2, -1, 0, 0}, {-4, 0, -2}},
      {"Add", {make_arg("broadcast", 1), make_arg("axis", 0)}, {2, 3}, {2}, {2, 3}, {-4, 2, 2, -2, -1, -4}, {-4, -4}, {-8, -2, -2, -6, -5, -8}, {3, 0, 4, 2, 4, -4}, {3, 0, 4, 2, 4, -4}, {7, 2}},
      {"Add", {make_arg("broadcast", 1)}, {2, 2}, {1, 1, 1}, {2, 2}, {1, -1, 0, -4}, {-1}, {0, -2, -1, -5}, {-2, -3, -3, 3}, {-2, -3, -3, 3}, {-5}},
      {"Sub", {}, {2, 3}, {2, 3}, {2, 3}, {-3, 3, -2, 2, -1, 2}, {-4, -4, 4, -2, -2, -2}, {1, 7, -6, 4, 1, 4}, {-4, 4, 3, 3, 0, -3}, {-4, 4, 3, 3, 0, -3}, {4, -4, -3, -3, -0, 3}},
      {"Sub", {}, {2, 3}, {3}, {2, 3}, {0, -2, -3, 3, 1, 0}, {-1, -1, 8}, {1, -1, -11, 4, 2, -8}, {-3, -2, -1, -3, -2, 0}, {-3, -2, -1, -3, -2, 0}, {6, 4, 1}},
      {"Sub", {}, {3}, {2, 3}, {2, 3}, {-4, -3, -2}, {8, 1, 8, -4, -1, 4}, {-12, -4, -10, 0, -2, -6}, {1, 0, -1, 1, 2, 1}, {2, 2, 0}, {-1, -0, 1, -1, -2, -1}},
      {"Sub", {}, {2, 1}, {1, 3}, {2, 3}, {-3, -3}, {-4, 2, -4}, {1, -5, 1, 1, -5, 1}, {-4, 1, -1, -1, -4, -1}, {-4, -6}, {5, 3, 2}},
      {"Sub", {}, {2, 1, 2}, {3, 1}, {2, 3, 2}, {3, -1, 3, -1}, {-1, 8, 4}, {4, 0, -5, -9, -1, -5, 4, 0, -5, -9, -1, -5}, {2, -2, 3, -4, -1, 3, 1, -3, 2, 3, -1, 3}, {4, -3, 2, 3}, {2, -4, -4}},
      {"Sub", {}, {1, 1}, {2}, {1, 2}, {3}, {8, 8}, {-5, -5}, {0, 1}, {1}, {-0, -1}},
      {"Sub", {}, {0, 2}, {1, 2}, {0, 2}, {}, {-1, 2}, {}, {}, {}, {0, 0}},
      {"Sub", {make_arg("broadcast", 1)}, {2, 3}, {3}, {2, 3}, {-4, -4, -3, 1, -1, -3}, {-4, 1, 8}, {0, -5, -11, 5, -2, -11}, {4, -1, 0, 0, 2, 3}, {4, -1, 0, 0, 2, 3}, {-4, -1, -3}},
      {"Sub", {make_arg("broadcast", 1), make_arg("axis", 0)}, {2, 3}, {2}, {2, 3}, {2, -4, 3, -3, -1, -1}, {4, 2}, {-2, -8, -1, -5, -3, -3}, {-1, -1, 1, -3, -4, -4}, {-1, -1, 1, -3, -4, -4}, {1, 11}},
      {"Sub", {make_arg("broadcast", 1)}, {2, 2}, {1, 1, 1}, {2, 2}, {-2, -2, 4, -3}, {-4}, {2, 2, 8, 1}, {2, 3, 2, -3}, {2, 3, 2, -3}, {-4}},
      {"Mul", {}, {2, 3}, {2, 3}, {2, 3}, {4, -2, 0, 1, -3, 4}, {8, 2, -2, 4, -2, 1}, {32, -4, -0, 4, 6, 4}, {4, 4, 4, -1, -1, 3}, {32, 8, -8, -4, 2, 3}, {16, -8, 0, -1, 3, 12}},
      {"Mul", {}, {2, 3}, {3}, {2, 3}, {-4, 4, 3, -1, 0, 3}, {8, -1, 4}, {-32, -4, 12, -8, -0, 12}, {-4, 2, -1, -3, 1, -3}, {-32, -2, -4, -24, -1, -12}, {19, 8, -12}},
      {"Mul", {}, {3}, {2, 3}, {2, 3}, {-4, -1, 0}, {2, -4, -4, 1, -4, -1}, {-8, 4, -0, -4, 4, -0}, {1, -2, 3, 2, 1, -2}, {4, 4, -10}, {-4, 2, 0, -8, -1, 0}},
      {"Mul", {}, {2, 1}, {1, 3}, {2, 3}, {2, 3}, {8, 4, -2}, {16, 8, -4, 24, 12, -6}, {2, -4, -2, 1, 3, 1}, {4, 18}, {7, 1, -1}},
      {"Mul", {}, {2, 1, 2}, {3, 1}, {2, 3, 2}, {1, -2, 0, 0}, {1, -2, -1}, {1, -2, -2, 4, -1, 2, 0, 0, -0, -0, -0, -0}, {-4, 4, -3, -4, 0, 1, -1, 1, 0, -3, -2, -4}, {2, 11, 1, 11}, {-12, 5, -2}},
      {"Mul", {}, {1, 1}, {2}, {1, 2}, {-1}, {8, 8}, {-8, -8}, {2, 3}, {40}, {-2, -3}},
      {"Mul", {}, {0, 2}, {1, 2}, {0, 2}, {}, {-1, 2}, {}, {}, {}, {0, 0}},
      {"Mul", {make_arg("broadcast", 1)}, {2, 3}, {3}, {2, 3}, {-1, -1, 3, -1, -3, 1}, {-4, -2, 4}, {4, 2, 12, 4, 6, 4}, {-2, -2, -2, -2, 0, 0}, {8, 4, -8, 8, 0, 0}, {4, 2, -6}},
      {"Mul", {make_arg("broadcast", 1), make_arg("axis", 0)}, {2, 3}, {2}, {2, 3}, {3, -3, 1, -4, -3, 2}, {-1, 8}, {-3, 3, -1, -32, -24, 16}, {-3, -4, -3, 1, 2, 4}, {3, 4, 3, 8, 16, 32}, {0, -2}},
      {"Mul", {make_arg("broadcast", 1)}, {2, 2}, {1, 1, 1}, {2, 2}, {-4, 2, -3, 2}, {1}, {-4, 2, -3, 2}, {0, -3, -4, 2}, {0, -3, -4, 2}, {10}},
      {"Div", {}, {2, 3}, {2, 3}, {2, 3}, {0, 1, -2, 2, 2, 2}, {-1, -1, 1, 4, 8, -1}, {-0, -1, -2, 0.5, 0.25, -2}, {3, -2, -1, -3, 3, 1}, {-3, 2, -1, -0.75, 0.375, -1}, {-0, 2, -2, 0.375, -0.09375, -2}},
      {"Div", {}, {2, 3}, {3}, {2, 3}, {2, -4, -1, 2, 3, -4}, {8, 8, 4}, {0.25, -0.5, -0.25, 0.25, 0.375, -1}, {-3, 2, -4, -4, -1, -4}, {-0.375, 0.25, -1, -0.5, -0.125, -1}, {0.21875, 0.171875, -1.25}},
      {"Div", {}, {3}, {2, 3}, {2, 3}, {-3, -3, -2}, {-4, 2, 4, -2, 1, 8}, {0.75, -1.5, -0.5, 1.5, -3, -0.25}, {1, 2, 1, -3, -2, 2}, {1.25, -1, 0.5}, {0.1875, 1.5, 0.125, -2.25, -6, 0.0625}},
      {"Div", {}, {2, 1}, {1, 3}, {2, 3}, {-2, -2}, {4, 1, -4}, {-0.5, -2, 0.5, -0.5, -2, 0.5}, {3, -2, -1, 4, 0, -4}, {-1, 2}, {0.875, -4, -0.625}},
      {"Div", {}, {2, 1, 2}, {3, 1}, {2, 3, 2}, {-3, 4, -4, 2}, {-1, 2, -2}, {3, -4, -1.5, 2, 1.5, -2, 4, -2, -2, 1, 2, -1}, {-3, 3, 0, -2, -2, -1, -2, -4, -1, 3, -2, 4}, {4, -3.5, 2.5, 3.5}, {-21, -0.5, -4.5}},
      {"Div", {}, {1, 1}, {2}, {1, 2}, {4}, {-4, -2}, {-1, -2}, {-1, 2}, {-0.75}, {0.25, -2}},
      {"Div", {}, {0, 2}, {1, 2}, {0, 2}, {}, {-1, 4}, {}, {}, {}, {0, 0}},
      {"Div", {make_arg("broadcast", 1)}, {2, 3}, {3}, {2, 3}, {-4, -1, 3, -3, 4, 3}, {2, -2, 4}, {-2, 0.5, 0.75, -1.5, -2, 0.75}, {1, -3, 0, 2, -3, 2}, {0.5, 1.5, 0, 1, 1.5, 0.5}, {2.5, 2.25, -0.375}},
      {"Div", {make_arg("broadcast", 1), make_arg("axis", 0)}, {2, 3}, {2}, {2, 3}, {-4, 3, -1, 1, -1, -3}, {8, -4}, {-0.5, 0.375, -0.125, -0.25, 0.25, 0.75}, {3, 3, 0, -3, -2, -3}, {0.375, 0.375, 0, 0.75, 0.5, 0.75}, {0.046875, -0.5}},
      {"Div", {make_arg("broadcast", 1)}, {2, 2}, {1, 1, 1}, {2, 2}, {-3, 2, -3, 4}, {2}, {-1.5, 1, -1.5, 2}, {-2, -2, 3, -3}, {-1, -1, 1.5, -1.5}, {4.75}},
      // clang-format on
  };
  return rows;
}

Feeds feeds_of(const Row& r) {
  Feeds feeds = {{"dC", Tensor::of<float>(r.c_shape, r.dc)},
                 {"A", Tensor::of<float>(r.a_shape, r.a)},
                 {"B", Tensor::of<float>(r.b_shape, r.b)}};
  if (std::string_view(r.type) == "Div") feeds.emplace_back("C", Tensor::of<float>(r.c_shape, r.c));
  return feeds;
}

OperatorDef gradient_of(const Row& r, const std::vector<std::string>& outputs = {"dA", "dB"}) {
  std::vector<std::string> inputs;
  for (const auto& feed : feeds_of(r)) inputs.push_back(feed.first);
  return make_op(std::string(r.type) + "Gradient", inputs, outputs, r.args);
}

TEST(ArithmeticGradient, RowsOfCaffe2) {
  for (const Row& r : rows()) {
    const std::string what = fmt::format("{} of {} and {}", r.type, r.a_shape, r.b_shape);
    const Feeds feeds = feeds_of(r);
    const Tensor c = run_op_on(make_op(r.type, {"A", "B"}, {"C"}, r.args), {feeds[1], feeds[2]})[0];
    EXPECT_EQ(c.shape(), r.c_shape) << what;
    EXPECT_EQ(compare(c, Tensor::of<float>(r.c_shape, r.c), 0), "") << what;
    const std::vector<Tensor> made = run_op_on(gradient_of(r), feeds);
    EXPECT_EQ(made[0].shape(), r.a_shape) << what;
    EXPECT_EQ(made[1].shape(), r.b_shape) << what;
    EXPECT_EQ(compare(made[0], Tensor::of<float>(r.a_shape, r.da), 1e-6), "") << what;
    EXPECT_EQ(compare(made[1], Tensor::of<float>(r.b_shape, r.db), 1e-6), "") << what;
  }
}

// What the operator's own derivatives say is the same.
TEST(ArithmeticGradient, Gradients) {
  for (const Row& r : rows()) {
    Feeds feeds;
    std::vector<std::string> wanted;
    for (const auto& [name, value] : feeds_of(r)) {
      feeds.emplace_back(name, name == "B" ? uniform<double>(value.shape(), 0.5, 2, 4)
                                           : normal<double>(value.shape(), feeds.size() + 1));
      wanted.push_back(name);
    }
    EXPECT_EQ(check_gradient(gradient_of(r), feeds, wanted), "") << r.type << r.a_shape.str() << r.b_shape.str();
  }
}

TEST(ArithmeticGradient, EachOutputAlone) {
  for (const Row& r : rows()) {
    const Feeds feeds = feeds_of(r);
    const std::vector<Tensor> both = run_op_on(gradient_of(r), feeds);
    EXPECT_EQ(compare(run_op_on(gradient_of(r, {"dA", ""}), feeds)[0], both[0], 0), "") << r.type;
    EXPECT_EQ(compare(run_op_on(gradient_of(r, {"", "dB"}), feeds)[1], both[1], 0), "") << r.type;
  }
}

// As in Caffe2: over dC, if it has the operand's shape; of Div, dA alone.
TEST(ArithmeticGradient, InPlace) {
  for (const Row& r : rows()) {
    const Feeds feeds = feeds_of(r);
    const std::vector<Tensor> apart = run_op_on(gradient_of(r), feeds);
    const auto check = [&](const std::vector<std::string>& outputs, const Shape& shape) {
      const auto run = [&] { return run_op_on(gradient_of(r, outputs), feeds); };
      if (!(shape == r.c_shape)) {
        EXPECT_NE(error_of(run).find("is to be written in place of input 0"), std::string::npos);
        return;
      }
      const std::vector<Tensor> made = run();
      for (size_t i = 0; i < made.size(); ++i) EXPECT_EQ(compare(made[i], apart[i], 0), "") << r.type;
    };
    check({"dC", "dB"}, r.a_shape);
    if (std::string_view(r.type) != "Div") check({"dA", "dC"}, r.b_shape);
  }
}

TEST(ArithmeticGradient, DivOfThreeInputs) {
  for (const Row& r : rows()) {
    if (std::string_view(r.type) != "Div" || !(r.a_shape == r.c_shape)) continue;
    const OperatorDef def = make_op("DivGradient", {"B", "C", "dC"}, {"dA", "dB"}, r.args);
    const std::vector<Tensor> made = run_op_on(def, feeds_of(r));
    EXPECT_EQ(compare(made[0], Tensor::of<float>(r.a_shape, r.da), 1e-6), "") << r.b_shape.str();
    EXPECT_EQ(compare(made[1], Tensor::of<float>(r.b_shape, r.db), 1e-6), "") << r.b_shape.str();
  }
  const Feeds feeds = {
      {"B", uniform<double>({2, 3}, 0.5, 2, 1)}, {"C", normal<double>({2, 3}, 2)}, {"dC", normal<double>({2, 3}, 3)}};
  const OperatorDef def = make_op("DivGradient", {"B", "C", "dC"}, {"dA", "dB"});
  EXPECT_EQ(check_gradient(def, feeds, {"B", "C", "dC"}), "");
}

TEST(ArithmeticGradient, BadShapesAreNamed) {
  const Feeds feeds = {{"dC", normal<float>({3})}, {"A", normal<float>({2, 3})}, {"B", normal<float>({3})}};
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("MulGradient", {"dC", "A", "B"}, {"dA", "dB"}), feeds);
            }).find("dC is [3], but of A [2, 3] and B [3] the result is [2, 3]"),
            std::string::npos);
  const Tensor x = normal<float>({2, 3});
  const Feeds divided = {{"dC", x}, {"A", x}, {"B", x}, {"C", normal<float>({2})}};
  const auto error = [&](const std::string& c) {
    return error_of([&] { run_op_on(make_op("DivGradient", {"dC", "A", "B", c}, {"dA", "dB"}), divided); });
  };
  EXPECT_NE(error("C").find("C is [2], but dC [2, 3]"), std::string::npos);
  EXPECT_NE(error("").find("C, input 3, is missing"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::arithmetic_test
