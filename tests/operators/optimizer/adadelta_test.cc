// Adadelta and SparseAdadelta against plain loops, and against what Caffe2 1.10 gives.
#include <cmath>

#include "tests/operators/optimizer_steps.h"

namespace stepnet::testing::adadelta_test {
namespace {

void step(int, int64_t at, std::span<const double> grad, std::map<std::string, Values>& states) {
  for (size_t i = 0; i < grad.size(); ++i) {
    const size_t e = static_cast<size_t>(at) * grad.size() + i;
    double &h = states["h"][e], &d = states["d"][e];
    h = 0.75 * h + 0.25 * grad[i] * grad[i];
    const double made = std::sqrt(d + 0.25) / std::sqrt(h + 0.25) * grad[i];
    states["p"][e] -= 0.5 * made;
    d = 0.75 * d + 0.25 * made * made;
  }
}

OptimizerSteps adadelta(const Shape& shape, bool sparse) {
  const std::vector<Argument> args = {make_arg("epsilon", 0.25f), make_arg("decay", 0.75f)};
  const OperatorDef def = sparse ? make_op("SparseAdadelta", {"p", "h", "d", "i", "g", "lr"}, {"p", "h", "d"}, args)
                                 : make_op("Adadelta", {"p", "h", "d", "g", "lr"}, {"p", "h", "d"}, args);
  return {def,
          {{"p", normal<double>(shape, 1)},
           {"h", uniform<double>(shape, 0, 2, 2)},
           {"d", uniform<double>(shape, 0, 2, 3)},
           {"lr", Tensor::scalar<float>(-0.5f)}},
          {"p", "h", "d"},
          sparse ? shape.size_between(1, shape.rank()) : shape.size(),
          step};
}

TEST(Adadelta, FollowsItsFormula) {
  for (const Shape& shape : {Shape{3, 4}, Shape{0}, Shape{}, Shape{100000}})
    EXPECT_EQ(check_dense_steps(adadelta(shape, false), shape), "") << shape.str();
}

TEST(Adadelta, StepsRowAfterRow) {
  for (const Shape& table : {Shape{5, 3, 2}, Shape{5}, Shape{5, 0}})
    EXPECT_EQ(check_table_steps(adadelta(table, true)), "") << table.str();
  EXPECT_EQ(check_table_threads(adadelta({70, 64}, true), {70, 64}), "");
}

TEST(Adadelta, IsThatOfThePublicFormat) {
  const Feeds feeds = {{"p", Tensor::of<float>({2}, {1, 2})},
                       {"h", Tensor::of<float>({2}, {0.3F, 0.4F})},
                       {"d", Tensor::of<float>({2}, {0.5F, 0.6F})},
                       {"g", Tensor::of<float>({2}, {0.5F, -0.6F})},
                       {"lr", Tensor::of<float>({1}, {-0.1F})}};
  const auto y = run_op_on(make_op("Adadelta", {"p", "h", "d", "g", "lr"}, {"p", "h", "d"},
                                   {make_arg("epsilon", 0.01F), make_arg("decay", 0.9F)}),
                           feeds);
  EXPECT_EQ(compare(y[0], Tensor::of<float>({2}, {0.9353445F, 2.073545F}), 1e-6), "");
  EXPECT_EQ(compare(y[1], Tensor::of<float>({2}, {0.295F, 0.396F}), 1e-6), "");
  EXPECT_EQ(compare(y[2], Tensor::of<float>({2}, {0.4918033F, 0.59408873F}), 1e-6), "");
}

TEST(Adadelta, RefusesWhatDoesNotFit) {
  EXPECT_EQ(step_error(adadelta({6}, false), "g", normal<double>({3, 2})),
            "Adadelta: grad has shape [3, 2], but param [6]");
  EXPECT_EQ(step_error(adadelta({6}, false), "d", normal<double>({1})),
            "Adadelta: moment_delta has shape [1], but param [6]");
  EXPECT_EQ(step_error(adadelta({5, 2}, true), "i", Tensor::of<int32_t>({2}, {0, 5})),
            "SparseAdadelta: index 1 is 5, which is outside of 0 to 4");
}

}  // namespace
}  // namespace stepnet::testing::adadelta_test
