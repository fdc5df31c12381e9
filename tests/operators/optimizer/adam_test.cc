#include <cmath>

#include "tests/operators/op_test.h"

namespace stepnet::testing::adam_test {
namespace {

Feeds feeds_for(const Shape& shape) {
  return {{"p", normal<double>(shape, 1)},         {"m1", normal<double>(shape, 2)},
          {"m2", uniform<double>(shape, 0, 2, 3)}, {"g", normal<double>(shape, 4)},
          {"lr", Tensor::scalar<float>(-0.125f)},  {"iter", Tensor::of<int64_t>({1}, {4})}};
}

OperatorDef adam(const std::vector<std::string>& outputs) {
  return make_op("Adam", {"p", "m1", "m2", "g", "lr", "iter"}, outputs,
                 {make_arg("beta1", 0.75f), make_arg("beta2", 0.5f), make_arg("epsilon", 0.25f)});
}

// param, moment 1 and moment 2 by the formula, in double.
std::vector<Tensor> naive(const Feeds& feeds) {
  std::vector<Tensor> out = {feeds[0].second.clone(), feeds[1].second.clone(), feeds[2].second.clone()};
  const double correction = std::sqrt(1 - std::pow(0.5, 5)) / (1 - std::pow(0.75, 5));
  for (int64_t i = 0; i < out[0].size(); ++i) {
    const double g = feeds[3].second.data<double>()[i];
    double& m1 = out[1].data<double>()[i];
    double& m2 = out[2].data<double>()[i];
    m1 = 0.75 * m1 + 0.25 * g;
    m2 = 0.5 * m2 + 0.5 * g * g;
    out[0].data<double>()[i] += -0.125 * correction * m1 / (std::sqrt(m2) + 0.25);
  }
  return out;
}

TEST(Adam, FollowsItsFormula) {
  for (const Shape& shape : {Shape{3, 4}, Shape{0}, Shape{1}, Shape{100000}}) {
    const Feeds feeds = feeds_for(shape);
    const auto expected = naive(feeds);
    const auto apart = run_op_on(adam({"q", "n1", "n2"}), feeds);
    const auto in_place = run_op_on(adam({"p", "m1", "m2"}), feeds);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(compare(apart[i], expected[i], 1e-12), "") << i;
      EXPECT_EQ(compare(in_place[i], expected[i], 1e-12), "") << i;
    }
  }
}

TEST(Adam, RunsInFloat) {
  Feeds feeds = feeds_for({5});
  const auto expected = naive(feeds);
  for (int i = 0; i < 4; ++i) {
    Tensor narrow = Tensor::empty(DType::float32, {5});
    for (int k = 0; k < 5; ++k) narrow.data<float>()[k] = static_cast<float>(feeds[i].second.data<double>()[k]);
    feeds[i].second = narrow;
  }
  const auto out = run_op_on(adam({"p", "m1", "m2"}), feeds);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(compare(out[i], expected[i], 1e-6), "") << i;
}

TEST(Adam, RefusesWhatDoesNotFit) {
  auto error = [](int input, const Tensor& t) {
    Feeds feeds = feeds_for({3});
    feeds[input].second = t;
    return error_of([&] { run_op_on(adam({"p", "m1", "m2"}), feeds); });
  };
  EXPECT_NE(error(3, normal<double>({4})).find("grad has shape [4], but param [3]"), std::string::npos);
  EXPECT_NE(error(3, normal<float>({3})).find("must have the same type"), std::string::npos);
  EXPECT_NE(error(4, normal<float>({2})).find("lr must be one value, but has shape [2]"), std::string::npos);
  EXPECT_NE(error(5, Tensor::scalar<int64_t>(-1)).find("iter is -1"), std::string::npos);
  EXPECT_NE(error_of([] {
              run_op_on(
                  make_op("Adam", {"p", "m1", "m2", "g", "lr", "iter"}, {"p", "m1", "m2"}, {make_arg("beta1", 1.0f)}),
                  feeds_for({3}));
            }).find("\"beta1\" must be from 0 to less than 1, but is 1"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::adam_test
