// Gradient descent with momentum against plain loops.
#include "tests/operators/optimizer_steps.h"

namespace stepnet::testing::momentum_sgd_test {
namespace {

Feeds feeds_for(const Shape& shape) {
  return {{"g", normal<double>(shape, 1)},
          {"m", normal<double>(shape, 2)},
          {"lr", Tensor::of<float>({1}, {0.25f})},
          {"p", normal<double>(shape, 3)}};
}

// Step, momentum and parameter by the formulas.
std::vector<Tensor> naive(const Feeds& feeds, bool nesterov) {
  std::vector<Tensor> out = {feeds[0].second.clone(), feeds[1].second.clone(), feeds[3].second.clone()};
  for (int64_t i = 0; i < out[0].size(); ++i) {
    const double m = feeds[1].second.data<double>()[i];
    const double next = 0.5 * m + 0.25 * feeds[0].second.data<double>()[i];
    const double step = nesterov ? 1.5 * next - 0.5 * m : next;
    out[0].data<double>()[i] = step;
    out[1].data<double>()[i] = next;
    out[2].data<double>()[i] -= step;
  }
  return out;
}

TEST(MomentumSGD, FollowsItsFormulas) {
  for (const bool nesterov : {false, true})
    for (const Shape& shape : {Shape{3, 4}, Shape{0}, Shape{1}, Shape{100000}}) {
      const Feeds feeds = feeds_for(shape);
      const auto expected = naive(feeds, nesterov);
      const std::vector<Argument> args = {make_arg("momentum", 0.5f), make_arg("nesterov", nesterov)};
      const auto plain = run_op_on(make_op("MomentumSGD", {"g", "m", "lr"}, {"g", "m"}, args), feeds);
      const auto update = run_op_on(make_op("MomentumSGDUpdate", {"g", "m", "lr", "p"}, {"g", "m", "p"}, args), feeds);
      const auto apart = run_op_on(make_op("MomentumSGDUpdate", {"g", "m", "lr", "p"}, {"h", "n", "q"}, args), feeds);
      for (int i = 0; i < 3; ++i) {
        if (i < 2) {
          EXPECT_EQ(compare(plain[i], expected[i], 1e-14), "") << i;
        }
        EXPECT_EQ(compare(update[i], expected[i], 1e-14), "") << i;
        EXPECT_EQ(compare(apart[i], expected[i], 1e-14), "") << i;
      }
    }
}

// Several steps: what the momentum keeps of one is seen in the next.
TEST(MomentumSGD, GoesOnFromStepToStep) {
  for (const bool nesterov : {false, true}) {
    const OptimizerSteps steps = {
        make_op("MomentumSGDUpdate", {"g", "m", "lr", "p"}, {"g", "m", "p"},
                {make_arg("momentum", 0.5f), make_arg("nesterov", nesterov)}),
        {{"p", normal<double>({3, 2}, 1)}, {"m", normal<double>({3, 2}, 2)}, {"lr", Tensor::of<float>({1}, {0.25f})}},
        {"p", "m"},
        6,
        [nesterov](int, int64_t, std::span<const double> grad, std::map<std::string, Values>& states) {
          for (size_t i = 0; i < grad.size(); ++i) {
            const double before = states["m"][i];
            const double after = states["m"][i] = 0.5 * before + 0.25 * grad[i];
            states["p"][i] -= nesterov ? 1.5 * after - 0.5 * before : after;
          }
        }};
    EXPECT_EQ(check_dense_steps(steps, {3, 2}), "");
  }
}

TEST(MomentumSGD, RunsInFloat) {
  const Feeds feeds = {
      {"g", Tensor::of<float>({1}, {2})}, {"m", Tensor::of<float>({1}, {3})}, {"lr", Tensor::scalar<float>(0.5f)}};
  const auto out = run_op_on(make_op("MomentumSGD", {"g", "m", "lr"}, {"g", "m"}), feeds);
  EXPECT_EQ(compare(out[0], Tensor::of<float>({1}, {1}), 0), "");  // no momentum by default
}

TEST(MomentumSGD, RefusesShapesThatDiffer) {
  Feeds feeds = feeds_for({3});
  const OperatorDef def = make_op("MomentumSGDUpdate", {"g", "m", "lr", "p"}, {"g", "m", "p"});
  feeds[3].second = normal<double>({4});
  EXPECT_NE(error_of([&] { run_op_on(def, feeds); }).find("param has shape [4], but grad [3]"), std::string::npos);
  feeds[2].second = normal<float>({2});
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("MomentumSGD", {"g", "m", "lr"}, {"g", "m"}), feeds);
            }).find("lr must be one value"),
            std::string::npos);
}

OptimizerSteps momentum(bool nesterov, const Shape& table = {5, 3, 2}) {
  return {make_op("SparseMomentumSGDUpdate", {"g", "m", "lr", "p", "i"}, {"g", "m", "p"},
                  {make_arg("momentum", 0.5f), make_arg("nesterov", nesterov)}),
          {{"p", normal<double>(table, 1)}, {"m", normal<double>(table, 2)}, {"lr", Tensor::of<float>({1}, {0.25f})}},
          {"p", "m"},
          table.size_between(1, table.rank()),
          [nesterov](int, int64_t at, std::span<const double> grad, std::map<std::string, Values>& states) {
            for (size_t i = 0; i < grad.size(); ++i) {
              const size_t e = static_cast<size_t>(at) * grad.size() + i;
              const double before = states["m"][e];
              const double after = states["m"][e] = 0.5 * before + 0.25 * grad[i];
              states["p"][e] -= nesterov ? 1.5 * after - 0.5 * before : after;
            }
          }};
}

TEST(SparseMomentumSGDUpdate, StepsRowAfterRow) {
  for (const bool nesterov : {false, true}) {
    EXPECT_EQ(check_table_steps(momentum(nesterov)), "");
    EXPECT_EQ(check_table_steps(momentum(nesterov, {5})), "");
    EXPECT_EQ(check_table_steps(momentum(nesterov, {5, 0})), "");
    EXPECT_EQ(check_table_threads(momentum(nesterov, {70, 64}), {70, 64}), "");
  }
}

TEST(SparseMomentumSGDUpdate, WritesTheSteps) {
  const Feeds feeds = {{"g", Tensor::of<float>({3, 1}, {1, 2, 4})},
                       {"m", Tensor::of<float>({2, 1}, {8, 16})},
                       {"lr", Tensor::scalar<float>(1)},
                       {"p", Tensor::of<float>({2, 1}, {100, 200})},
                       {"i", Tensor::of<int32_t>({3}, {1, 0, 1})}};
  for (const char* steps : {"g", "s"}) {
    const auto out = run_op_on(
        make_op("SparseMomentumSGDUpdate", {"g", "m", "lr", "p", "i"}, {steps, "m", "p"}, {make_arg("momentum", 0.5f)}),
        feeds);
    EXPECT_EQ(compare(out[0], Tensor::of<float>({3, 1}, {9, 6, 8.5f}), 0), "");
    EXPECT_EQ(compare(out[1], Tensor::of<float>({2, 1}, {6, 8.5f}), 0), "");
    EXPECT_EQ(compare(out[2], Tensor::of<float>({2, 1}, {94, 182.5f}), 0), "");
  }
}

TEST(SparseMomentumSGDUpdate, RefusesWhatDoesNotFit) {
  const std::string name = "SparseMomentumSGDUpdate: ";
  const OptimizerSteps steps = momentum(false);
  EXPECT_EQ(step_error(steps, "i", Tensor::of<int64_t>({2}, {0, 5})),
            name + "index 1 is 5, which is outside of 0 to 4");
  EXPECT_EQ(step_error(steps, "i", Tensor::of<int64_t>({2}, {0, -1})),
            name + "index 1 is -1, which is outside of 0 to 4");
  EXPECT_EQ(step_error(steps, "g", normal<double>({2, 3})),
            name + "grad has shape [2, 3], but for indices [2] it must be 2 rows of param [5, 3, 2]");
  EXPECT_EQ(step_error(steps, "m", normal<double>({5})), name + "momentum has shape [5], but param [5, 3, 2]");
  EXPECT_EQ(step_error(steps, "lr", normal<float>({2})), name + "lr must be one value, but has shape [2]");
  for (const int output : {1, 2}) {
    OptimizerSteps apart = momentum(false);
    apart.def.set_output(output, "other");
    EXPECT_NE(step_error(apart, "", Tensor()).find("must be the same blob as input"), std::string::npos);
  }
}

}  // namespace
}  // namespace stepnet::testing::momentum_sgd_test
