// Sum: any number of terms, one blob several times, in place.
#include "tests/operators/op_test.h"

namespace stepnet::testing::sum_test {
namespace {

TEST(Sum, AddsItsInputs) {
  const Tensor a = normal<double>({700}, 1), b = normal<double>({700}, 2), c = normal<double>({700}, 3);
  Tensor sum = a.clone();
  for (int64_t i = 0; i < sum.size(); ++i) sum.data<double>()[i] += b.data<double>()[i] + c.data<double>()[i];
  const Feeds feeds = {{"a", a}, {"b", b}, {"c", c}};
  EXPECT_EQ(compare(run_op_on(make_op("Sum", {"a", "b", "c"}, {"y"}), feeds)[0], sum, 1e-14), "");
  EXPECT_EQ(compare(run_op_on(make_op("Sum", {"a", "b", "c"}, {"a"}), feeds)[0], sum, 1e-14), "");
  EXPECT_EQ(compare(run_op_on(make_op("Sum", {"a"}, {"y"}), feeds)[0], a, 0), "");
}

TEST(Sum, OneBlobSeveralTimes) {
  const Tensor a = normal<float>({700}, 1);
  Tensor thrice = a.clone();
  for (float& v : thrice.span<float>()) v = v + v + v;
  EXPECT_EQ(compare(run_op_on(make_op("Sum", {"a", "a", "a"}, {"y"}), {{"a", a}})[0], thrice, 0), "");
}

// Any of the inputs may be the output, once or several times.
TEST(Sum, InPlaceOfAnyInput) {
  const Feeds feeds = {{"a", integers<int64_t>({700}, -9, 9, 1)},
                       {"b", integers<int64_t>({700}, -9, 9, 2)},
                       {"c", integers<int64_t>({700}, -9, 9, 3)}};
  for (const std::vector<std::string>& in : std::vector<std::vector<std::string>>{
           {"b", "a"}, {"a", "a"}, {"b", "c", "a"}, {"b", "a", "c"}, {"a", "b", "a"}, {"a", "a", "a"}}) {
    const Tensor apart = run_op_on(make_op("Sum", in, {"y"}), feeds)[0];
    EXPECT_EQ(compare(run_op_on(make_op("Sum", in, {"a"}), feeds)[0], apart, 0), "")
        << fmt::format("{}", fmt::join(in, " "));
  }
}

TEST(Sum, Gradients) {
  for (const Shape& shape : {Shape{}, Shape{0, 2}, Shape{3, 2}}) {
    const Feeds feeds = {{"a", normal<double>(shape, 1)}, {"b", normal<double>(shape, 2)}};
    EXPECT_EQ(check_gradient(make_op("Sum", {"a", "b"}, {"y"}), feeds, {"a", "b"}), "");
    EXPECT_EQ(check_gradient(make_op("Sum", {"a", "b", "a"}, {"y"}), feeds, {"a", "b"}), "");
  }
}

TEST(Sum, ShapesMustBeEqual) {
  const Feeds feeds = {{"a", normal<float>({2, 3})}, {"b", normal<float>({3})}};
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("Sum", {"a", "b"}, {"y"}), feeds);
            }).find("inputs 0 and 1 must have one shape, but are [2, 3] and [3]"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::sum_test
