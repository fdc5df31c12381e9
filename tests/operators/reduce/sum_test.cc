// Sum, Max and Min: any number of terms, one blob several times, in place.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/operators/gradient_reads.h"
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

// What Caffe2 1.10 gives.
struct Extreme {
  const char* type;
  std::vector<float> result;
  std::vector<float> gradients[2];  // of a gradient of 7 everywhere
};
const std::vector<Extreme>& extremes() {
  static const std::vector<Extreme> all = {{"Max", {2, 5, 3, 4, 2, 9}, {{0, 7, 7, 7, 7, 0}, {7, 7, 0, 0, 7, 7}}},
                                           {"Min", {1, 5, 1, 0, 2, 3}, {{7, 7, 0, 0, 7, 7}, {0, 7, 7, 7, 7, 0}}}};
  return all;
}
const Feeds kPair = {{"a", Tensor::of<float>({2, 3}, {1, 5, 3, 4, 2, 3})},
                     {"b", Tensor::of<float>({2, 3}, {2, 5, 1, 0, 2, 9})}};

TEST(Extremes, AreThoseOfThePublicFormat) {
  for (const Extreme& e : extremes()) {
    const OperatorDef def = make_op(e.type, {"a", "b"}, {"y"});
    const Tensor y = run_op_on(def, kPair)[0];
    EXPECT_EQ(compare(y, Tensor::of<float>({2, 3}, std::span<const float>(e.result)), 0), "") << e.type;
    EXPECT_EQ(compare(run_op_on(make_op(e.type, {"a", "b"}, {"a"}), kPair)[0], y, 0), "") << e.type;
    Feeds feeds = kPair;
    feeds.insert(feeds.end(), {{"y", y}, {"dy", Tensor::of<float>({2, 3}, {7, 7, 7, 7, 7, 7})}});
    const std::string gradient = std::string(e.type) + "Gradient";
    const auto d = run_op_on(make_op(gradient, {"y", "dy", "a", "b"}, {"da", "db"}), feeds);
    for (int k = 0; k < 2; ++k)
      EXPECT_EQ(compare(d[k], Tensor::of<float>({2, 3}, std::span<const float>(e.gradients[k])), 0), "") << gradient;
  }
}

TEST(Extremes, OfAnyNumberAndType) {
  const Tensor a = integers<int64_t>({700}, -9, 9, 1), b = integers<int64_t>({700}, -9, 9, 2),
               c = integers<int64_t>({700}, -9, 9, 3);
  Tensor most = a.clone(), least = a.clone();
  for (int64_t i = 0; i < a.size(); ++i) {
    most.data<int64_t>()[i] = std::max({a.data<int64_t>()[i], b.data<int64_t>()[i], c.data<int64_t>()[i]});
    least.data<int64_t>()[i] = std::min({a.data<int64_t>()[i], b.data<int64_t>()[i], c.data<int64_t>()[i]});
  }
  const Feeds feeds = {{"a", a}, {"b", b}, {"c", c}};
  EXPECT_EQ(compare(run_op_on(make_op("Max", {"a", "b", "c"}, {"y"}), feeds)[0], most, 0), "");
  EXPECT_EQ(compare(run_op_on(make_op("Min", {"a", "b", "c"}, {"a"}), feeds)[0], least, 0), "");
  EXPECT_EQ(compare(run_op_on(make_op("Min", {"a"}, {"y"}), feeds)[0], a, 0), "");
}

TEST(Extremes, NaNWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Feeds feeds = {{"a", Tensor::of<float>({2}, {nan, 1})}, {"b", Tensor::of<float>({2}, {1, nan})}};
  for (const char* type : {"Max", "Min"}) {
    const Tensor y = run_op_on(make_op(type, {"a", "b"}, {"y"}), feeds)[0];
    for (const float v : y.span<float>()) EXPECT_TRUE(std::isnan(v)) << type;
  }
}

TEST(Extremes, Gradients) {
  for (const std::string type : {"Max", "Min"})
    for (const Shape& shape : {Shape{}, Shape{0, 2}, Shape{3, 2}}) {
      const Tensor a = normal<double>(shape, 1), b = normal<double>(shape, 2), c = normal<double>(shape, 3);
      const Feeds feeds = {{"a", a}, {"b", b}, {"c", c}};
      const OperatorDef def = make_op(type, {"a", "b", "c"}, {"y"});
      EXPECT_EQ(check_gradient(def, feeds, {"a", "b", "c"}), "");
      EXPECT_EQ(check_gradient(def, feeds, {"b"}), "");
      Feeds more = feeds;
      more.insert(more.end(), {{"y", run_op_on(def, feeds)[0]}, {"dy", normal<double>(shape, 4)}});
      const std::vector<std::string> inputs = {"y", "dy", "a", "b", "c"};
      EXPECT_EQ(check_gradient(make_op(type + "Gradient", inputs, {"da", "db", "dc"}), more, {"dy"}), "");
      EXPECT_EQ(check_gradient(make_op(type + "Gradient", inputs, {"da", "", "dc"}), more, {"dy"}), "");
    }
}

// Of more than two inputs a gradient reads its own and the result.
TEST(Extremes, GradientsReadOneOrTwoInputsOrTheResult) {
  const OperatorDef def = make_op("Max", {"a", "b", "c"}, {"y"});
  EXPECT_EQ(gradient_reads(def, "b"), "b y");
  EXPECT_EQ(gradient_reads(make_op("Max", {"a", "b"}, {"y"}), "b"), "a b");
  EXPECT_EQ(gradient_reads(make_op("Max", {"a"}, {"y"}), "a"), "a");
  const Shape shape{40, 3};
  Feeds feeds = {{"a", normal<float>(shape, 1)}, {"b", normal<float>(shape, 2)}};
  std::copy_n(feeds[0].second.data<float>(), 50, feeds[1].second.data<float>());
  feeds[0].second.data<float>()[0] = feeds[1].second.data<float>()[1] = std::numeric_limits<float>::quiet_NaN();
  feeds.emplace_back("dy", normal<float>(shape, 3));
  for (const std::string type : {"Max", "Min"}) {
    Feeds more = feeds;
    more.emplace_back("y", run_op_on(make_op(type, {"a", "b"}, {"y"}), feeds)[0]);
    const auto d = run_op_on(make_op(type + "Gradient", {"y", "dy", "a", "b"}, {"da", "db"}), more);
    const auto without = run_op_on(make_op(type + "Gradient", {"", "dy", "a", "b"}, {"da", "db"}), feeds);
    const auto of_b = run_op_on(make_op(type + "Gradient", {"y", "dy", "b"}, {"db"}), more);
    for (size_t k = 0; k < 2; ++k) EXPECT_EQ(compare(without[k], d[k], 0), "") << type;
    EXPECT_EQ(compare(of_b[0], d[1], 0), "") << type;
  }
}

TEST(Extremes, Errors) {
  const auto error = [](const OperatorDef& def, const Feeds& feeds) {
    return error_of([&] { run_op_on(def, feeds); });
  };
  const Feeds feeds = {{"a", normal<float>({2, 3})}, {"b", normal<float>({3})}};
  EXPECT_NE(error(make_op("Max", {"a", "b"}, {"y"}), feeds)
                .find("inputs 0 and 1 must have one shape, but are [2, 3] and [3]"),
            std::string::npos);
  EXPECT_NE(error(make_op("MaxGradient", {"a", "a", "a", "a"}, {"d"}), feeds)
                .find("it has 1 outputs for 2 inputs X, but must have one for each"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::sum_test
