// Wngrad and SparseWngrad against plain loops, and against what Caffe2 1.10 gives.
#include "tests/operators/optimizer_steps.h"

namespace stepnet::testing::wngrad_test {
namespace {

const Argument kEpsilon = make_arg("epsilon", 0.01F);
const Tensor kRate = Tensor::of<float>({1}, {-0.1F});

TEST(Wngrad, FollowsItsFormula) {
  for (const Shape& shape : {Shape{3, 4}, Shape{0}, Shape{}, Shape{100000}}) {
    const OptimizerSteps steps = {
        make_op("Wngrad", {"p", "b", "g", "lr"}, {"p", "b"}, {make_arg("epsilon", 0.25f)}),
        {{"p", normal<double>(shape, 1)}, {"b", Tensor::of<double>({1}, {2})}, {"lr", Tensor::scalar<float>(-0.5f)}},
        {"p", "b"},
        shape.size(),
        [](int, int64_t, std::span<const double> grad, std::map<std::string, Values>& states) {
          const double root = states["b"][0] + 0.25;
          double squares = 0;
          for (size_t i = 0; i < grad.size(); ++i) {
            squares += grad[i] * grad[i];
            states["p"][i] -= 0.5 / root * grad[i];
          }
          states["b"][0] += squares / root;
        }};
    EXPECT_EQ(check_dense_steps(steps, shape), "") << shape.str();
  }
}

TEST(Wngrad, IsThatOfThePublicFormat) {
  const Feeds feeds = {{"p", Tensor::of<float>({2}, {1, 2})},
                       {"b", Tensor::of<float>({1}, {2})},
                       {"g", Tensor::of<float>({2}, {0.5F, -0.6F})},
                       {"lr", kRate}};
  const auto y = run_op_on(make_op("Wngrad", {"p", "b", "g", "lr"}, {"q", "c", "rate", "update"}, {kEpsilon}), feeds);
  EXPECT_EQ(compare(y[0], Tensor::of<float>({2}, {0.97512436F, 2.0298507F}), 1e-6), "");
  EXPECT_EQ(compare(y[1], Tensor::of<float>({1}, {2.3034825F}), 1e-6), "");
  EXPECT_EQ(compare(y[2], Tensor::of<float>({1}, {-0.04975124F}), 1e-6), "");
  EXPECT_EQ(compare(y[3], Tensor::of<float>({2}, {-0.02487562F, 0.02985075F}), 1e-6), "");
}

TEST(SparseWngrad, IsThatOfThePublicFormat) {
  const Feeds feeds = {{"p", Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6})},
                       {"b", Tensor::of<float>({1}, {2})},
                       {"i", Tensor::of<int64_t>({2}, {2, 0})},
                       {"g", Tensor::of<float>({2, 2}, {0.1F, 0.2F, 0.3F, 0.4F})},
                       {"lr", kRate}};
  const OperatorDef def = make_op("SparseWngrad", {"p", "b", "i", "g", "lr"}, {"p", "b"}, {kEpsilon});
  const auto y = run_op_on(def, feeds);
  EXPECT_EQ(compare(y[0], Tensor::of<float>({3, 2}, {0.98507464F, 1.9800996F, 3, 4, 4.9950247F, 5.99005F}), 1e-6), "");
  EXPECT_EQ(compare(y[1], Tensor::of<float>({1}, {2.15F}), 1e-6), "");
}

TEST(Wngrad, RefusesWhatDoesNotFit) {
  const auto error = [](const Shape& b, const Shape& g) {
    return error_of([&] {
      run_op_on(make_op("Wngrad", {"p", "b", "g", "lr"}, {"p", "b"}),
                {{"p", normal<float>({6})}, {"b", normal<float>(b)}, {"g", normal<float>(g)}, {"lr", kRate}});
    });
  };
  EXPECT_NE(error({2}, {6}).find("Wngrad: seq_b must be one value, but has shape [2]"), std::string::npos);
  EXPECT_NE(error({1}, {3}).find("Wngrad: grad has shape [3], but param [6]"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::wngrad_test
