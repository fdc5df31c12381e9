// Where against a plain loop and central differences.
#include "tests/operators/elementwise_check.h"

namespace stepnet::testing::where_test {
namespace {

OperatorDef where_op(const std::vector<Argument>& args = {}, const char* output = "Z") {
  return make_op("Where", {"C", "X", "Y"}, {output}, args);
}

const std::vector<Argument> kByRow = {make_arg("broadcast_on_rows", 1)};

template <class T>
Feeds feeds_for(const Shape& shape, const Shape& condition) {
  return {{"C", integers<bool>(condition, 0, 1, 3)},
          {"X", integers<T>(shape, 0, 9, 1)},
          {"Y", integers<T>(shape, -9, 0, 2)}};
}

Tensor expected(const Feeds& feeds) {
  const Tensor c = to_double(feeds[0].second), x = to_double(feeds[1].second), y = to_double(feeds[2].second);
  Tensor z = x.clone();
  const int64_t block = c.size() > 0 ? x.size() / c.size() : 1;
  for (int64_t i = 0; i < z.size(); ++i)
    if (c.data<double>()[i / block] == 0) z.data<double>()[i] = y.data<double>()[i];
  return z;
}

template <class T>
void expect_values() {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{0, 3}, Shape{4, 5}}) {
    const Feeds feeds = feeds_for<T>(shape, shape);
    for (const char* output : {"Z", "X", "Y"}) {
      const Tensor z = run_op_on(where_op({}, output), feeds)[0];
      EXPECT_EQ(z.dtype(), dtype_of<T>());
      EXPECT_EQ(compare(z, expected(feeds), 0), "") << shape.str() << " " << output;
    }
  }
  for (const Shape& shape : {Shape{3}, Shape{1, 2}, Shape{0, 3}, Shape{4, 0}, Shape{6, 2, 3}}) {
    const Feeds feeds = feeds_for<T>(shape, {shape[0]});
    for (const char* output : {"Z", "X", "Y"})
      EXPECT_EQ(compare(run_op_on(where_op(kByRow, output), feeds)[0], expected(feeds), 0), "") << shape.str();
  }
}

TEST(Where, Values) {
  expect_values<float>();
  expect_values<double>();
  expect_values<int32_t>();
  expect_values<int64_t>();
  expect_values<bool>();
}

TEST(Where, HasTwoNamesForRows) {
  const Feeds feeds = feeds_for<float>({6, 2}, {6});
  EXPECT_EQ(compare(run_op_on(where_op({make_arg("enable_broadcast", 1)}), feeds)[0], expected(feeds), 0), "");
}

TEST(Where, Gradients) {
  for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{4, 5}})
    EXPECT_EQ(check_gradient(where_op(), feeds_for<double>(shape, shape), {"X", "Y"}), "");
  EXPECT_EQ(check_gradient(where_op(kByRow), feeds_for<double>({6, 2}, {6}), {"X", "Y"}), "");
  EXPECT_EQ(check_gradient(where_op({}, "X"), feeds_for<double>({6, 2}, {6, 2}), {"X", "Y"}), "");
  EXPECT_EQ(check_gradient(where_op({}, "Y"), feeds_for<double>({6, 2}, {6, 2}), {"X", "Y"}), "");
}

TEST(Where, BadInputIsNamed) {
  const auto error = [](const Feeds& feeds, const std::vector<Argument>& args) {
    return error_of([&] { run_op_on(where_op(args), feeds); });
  };
  EXPECT_NE(error(feeds_for<float>({4, 5}, {4}), {}).find("C is [4], but X [4, 5]"), std::string::npos);
  EXPECT_NE(error(feeds_for<float>({4, 5}, {5}), kByRow)
                .find("with broadcast_on_rows C must be [rows], one element for each row of X [4, 5], but is [5]"),
            std::string::npos);
  Feeds feeds = feeds_for<float>({2}, {2});
  feeds[2].second = normal<float>({3});
  EXPECT_NE(error(feeds, {}).find("X is [2], but Y [3]"), std::string::npos);
  feeds = feeds_for<float>({2}, {2});
  feeds[0].second = normal<float>({2});
  EXPECT_NE(error(feeds, {}).find("input \"C\" (C) must be bool, but is float[2]"), std::string::npos);
}

// As Caffe2 1.10 gives it.
TEST(Conditional, TakesRows) {
  const OperatorDef def = make_op("Conditional", {"C", "X", "Y"}, {"Z"});
  const Feeds feeds = {{"C", Tensor::of<bool>({2}, {true, false})},
                       {"X", Tensor::of<double>({2, 2}, {1, 2, 3, 4})},
                       {"Y", Tensor::of<double>({2, 2}, {-1, -2, -3, -4})}};
  EXPECT_EQ(compare(run_op_on(def, feeds)[0], Tensor::of<double>({2, 2}, {1, 2, -3, -4}), 0), "");
  EXPECT_EQ(check_gradient(def, feeds, {"X", "Y"}), "");
  Feeds other = feeds;
  other[0].second = Tensor::of<bool>({3}, {true, false, true});
  EXPECT_NE(error_of([&] { run_op_on(def, other); }).find("one element for each row of X [2, 2], but is [3]"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::where_test
