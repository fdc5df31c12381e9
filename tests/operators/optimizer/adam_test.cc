// Adam, AdamW and SparseAdam against plain loops.
#include <cmath>

#include "tests/operators/op_test.h"
#include "tests/operators/optimizer_steps.h"

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

// As Caffe2 1.10 gives them.
TEST(Adam, GivesWhatItMultipliesByTheRate) {
  const std::vector<Argument> args = {make_arg("beta1", 0.9F), make_arg("beta2", 0.99F), make_arg("epsilon", 0.01F)};
  const Feeds feeds = {{"p", Tensor::of<float>({2}, {1, 2})},        {"m1", Tensor::of<float>({2}, {0.1F, 0.2F})},
                       {"m2", Tensor::of<float>({2}, {0.3F, 0.4F})}, {"g", Tensor::of<float>({2}, {0.5F, -0.6F})},
                       {"lr", Tensor::of<float>({1}, {-0.1F})},      {"iter", Tensor::of<int64_t>({1}, {3})}};
  const auto y =
      run_op_on(make_op("Adam", {"p", "m1", "m2", "g", "lr", "iter"}, {"q", "n1", "n2", "step"}, args), feeds);
  EXPECT_EQ(compare(y[0], Tensor::of<float>({2}, {0.98549885F, 1.9892132F}), 1e-6), "");
  EXPECT_EQ(compare(y[3], Tensor::of<float>({2}, {0.14501177F, 0.10786725F}), 1e-6), "");
  const Feeds table = {{"p", Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6})},
                       {"m1", Tensor::of<float>({3, 2}, {0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F})},
                       {"m2", Tensor::of<float>({3, 2}, {0.2F, 0.4F, 0.6F, 0.8F, 1, 1.2F})},
                       {"i", Tensor::of<int64_t>({2}, {2, 0})},
                       {"g", Tensor::of<float>({2, 2}, {0.1F, 0.2F, 0.3F, 0.4F})},
                       {"lr", Tensor::of<float>({1}, {-0.1F})},
                       {"iter", Tensor::of<int64_t>({1}, {3})}};
  const auto sparse = run_op_on(
      make_op("SparseAdam", {"p", "m1", "m2", "i", "g", "lr", "iter"}, {"p", "m1", "m2", "step"}, args), table);
  EXPECT_EQ(compare(sparse[0], Tensor::of<float>({3, 2}, {0.9848095F, 1.9801754F, 3, 4, 4.9735813F, 5.9706182F}), 1e-6),
            "");
  EXPECT_EQ(compare(sparse[3], Tensor::of<float>({2, 2}, {0.26418802F, 0.29381815F, 0.15190467F, 0.19824566F}), 1e-6),
            "");
}

TEST(DecayAdagrad, IsThatOfThePublicFormat) {
  const Feeds feeds = {{"p", Tensor::of<float>({2}, {1, 2})},        {"m1", Tensor::of<float>({2}, {0.3F, 0.4F})},
                       {"m2", Tensor::of<float>({2}, {0.5F, 0.6F})}, {"g", Tensor::of<float>({2}, {0.5F, -0.6F})},
                       {"lr", Tensor::of<float>({1}, {-0.1F})},      {"iter", Tensor::of<int64_t>({1}, {3})}};
  const auto run = [&](float decay, int correction) {
    return run_op_on(make_op("DecayAdagrad", {"p", "m1", "m2", "g", "lr", "iter"}, {"p", "m1", "m2"},
                             {make_arg("epsilon", 0.01F), make_arg("weight_decay", decay),
                              make_arg("bias_correction_first", correction)}),
                     feeds);
  };
  EXPECT_EQ(compare(run(0, 0)[0], Tensor::of<float>({2}, {0.96347135F, 1.9696907F}), 1e-6), "");
  EXPECT_EQ(compare(run(0.1F, 0)[0], Tensor::of<float>({2}, {0.95347136F, 1.9496907F}), 1e-6), "");
  EXPECT_EQ(compare(run(0, 1)[0], Tensor::of<float>({2}, {0.8937813F, 1.9118661F}), 1e-6), "");
  const auto all = run(0.1F, 1);
  EXPECT_EQ(compare(all[0], Tensor::of<float>({2}, {0.88378125F, 1.8918661F}), 1e-6), "");
  EXPECT_EQ(compare(all[1], Tensor::of<float>({2}, {0.32F, 0.3F}), 1e-6), "");
  EXPECT_EQ(compare(all[2], Tensor::of<float>({2}, {0.75F, 0.96F}), 1e-6), "");
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

// Loshchilov and Hutter's algorithm 2 as they write it, with bias-corrected moments: eps / sqrt(1 - beta2^t) in place
// of eps makes the two forms of Adam's step equal.
OptimizerSteps adam_w(const Shape& shape, double decay) {
  return {make_op("AdamW", {"p", "m1", "m2", "g", "lr", "iter"}, {"p", "m1", "m2"},
                  {make_arg("beta1", 0.75f), make_arg("beta2", 0.5f), make_arg("epsilon", 0.25f),
                   make_arg("weight_decay", static_cast<float>(decay))}),
          {{"p", normal<double>(shape, 1)},
           {"m1", normal<double>(shape, 2)},
           {"m2", uniform<double>(shape, 0, 2, 3)},
           {"lr", Tensor::scalar<float>(-0.125f)},
           {"iter", Tensor::of<int64_t>({1}, {0})}},
          {"p", "m1", "m2"},
          shape.size(),
          [decay](int step, int64_t, std::span<const double> grad, std::map<std::string, Values>& states) {
            const double c1 = 1 - std::pow(0.75, step + 1), c2 = 1 - std::pow(0.5, step + 1);
            for (size_t i = 0; i < grad.size(); ++i) {
              double& m1 = states["m1"][i];
              double& m2 = states["m2"][i];
              m1 = 0.75 * m1 + 0.25 * grad[i];
              m2 = 0.5 * m2 + 0.5 * grad[i] * grad[i];
              const double before = states["p"][i];
              states["p"][i] =
                  before - 0.125 * decay * before - 0.125 * (m1 / c1) / (std::sqrt(m2 / c2) + 0.25 / std::sqrt(c2));
            }
          }};
}

TEST(AdamW, FollowsItsFormula) {
  for (const Shape& shape : {Shape{3, 4}, Shape{0}, Shape{1}, Shape{100000}})
    for (const double decay : {0.5, 0.0}) EXPECT_EQ(check_dense_steps(adam_w(shape, decay), shape), "");
}

TEST(AdamW, WithoutDecayIsAdam) {
  OptimizerSteps adam = adam_w({3, 4}, 0);
  adam.def.set_type("Adam");
  adam.def.mutable_arg()->RemoveLast();
  EXPECT_EQ(check_dense_steps(adam, {3, 4}), "");
}

TEST(AdamW, DecaysByOneHundredthUnlessToldOtherwise) {
  const Feeds feeds = {{"p", Tensor::of<double>({1}, {2})},    {"m1", Tensor::of<double>({1}, {0})},
                       {"m2", Tensor::of<double>({1}, {1})},   {"g", Tensor::of<double>({1}, {0})},
                       {"lr", Tensor::scalar<double>(-0.125)}, {"iter", Tensor::scalar<int32_t>(0)}};
  const auto out = run_op_on(make_op("AdamW", {"p", "m1", "m2", "g", "lr", "iter"}, {"p", "m1", "m2"}), feeds);
  EXPECT_NEAR(out[0].item<double>(), 2 * (1 - 0.125 * 0.01), 1e-9);
}

TEST(AdamW, RefusesWhatDoesNotFit) {
  const std::string name = "AdamW: ";
  const OptimizerSteps steps = adam_w({6}, 0.5);
  EXPECT_EQ(step_error(steps, "g", normal<double>({3, 2})), name + "grad has shape [3, 2], but param [6]");
  EXPECT_EQ(step_error(steps, "m1", normal<double>({5})), name + "moment_1 has shape [5], but param [6]");
  EXPECT_EQ(step_error(steps, "m2", normal<double>({5})), name + "moment_2 has shape [5], but param [6]");
  EXPECT_EQ(step_error(steps, "lr", normal<float>({2})), name + "lr must be one value, but has shape [2]");
  EXPECT_EQ(step_error(steps, "iter", Tensor::scalar<int64_t>(-1)), name + "iter is -1, which is negative");
  EXPECT_EQ(step_error(adam_w({6}, -1), "", Tensor()),
            name + "argument \"weight_decay\" must be at least 0, but is -1");
}

constexpr double kBeta1 = 0.75, kBeta2 = 0.5, kEpsilon = 0.25, kRate = -0.125;

void sparse_step(int step, int64_t at, std::span<const double> grad, std::map<std::string, Values>& states) {
  const double correction = std::sqrt(1 - std::pow(kBeta2, step + 1)) / (1 - std::pow(kBeta1, step + 1));
  for (size_t i = 0; i < grad.size(); ++i) {
    const size_t e = static_cast<size_t>(at) * grad.size() + i;
    double& m1 = states["m1"][e];
    double& m2 = states["m2"][e];
    m1 += (1 - kBeta1) * (grad[i] - m1);
    m2 += (1 - kBeta2) * (grad[i] * grad[i] - m2);
    states["p"][e] += kRate * correction * m1 / (std::sqrt(m2) + kEpsilon);
  }
}

OptimizerSteps sparse_adam(const Shape& table = {5, 3, 2}) {
  const std::vector<Argument> args = {make_arg("beta1", 0.75f), make_arg("beta2", 0.5f), make_arg("epsilon", 0.25f)};
  return {make_op("SparseAdam", {"p", "m1", "m2", "i", "g", "lr", "iter"}, {"p", "m1", "m2"}, args),
          {{"p", normal<double>(table, 1)},
           {"m1", normal<double>(table, 2)},
           {"m2", uniform<double>(table, 0, 2, 3)},
           {"lr", Tensor::scalar<float>(-0.125f)},
           {"iter", Tensor::of<int64_t>({1}, {0})}},
          {"p", "m1", "m2"},
          table.size_between(1, table.rank()),
          sparse_step};
}

TEST(SparseAdam, StepsRowAfterRow) {
  EXPECT_EQ(check_table_steps(sparse_adam()), "");
  EXPECT_EQ(check_table_steps(sparse_adam({5})), "");
  EXPECT_EQ(check_table_steps(sparse_adam({5, 0})), "");
  EXPECT_EQ(check_table_threads(sparse_adam({70, 64}), {70, 64}), "");
}

TEST(RowWiseSparseAdam, IsThatOfThePublicFormat) {
  const Feeds feeds = {{"p", Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6})},
                       {"m1", Tensor::of<float>({3, 2}, {0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F})},
                       {"m2", Tensor::of<float>({3}, {0.1F, 0.2F, 0.3F})},
                       {"i", Tensor::of<int64_t>({2}, {2, 0})},
                       {"g", Tensor::of<float>({2, 2}, {0.1F, 0.2F, 0.3F, 0.4F})},
                       {"lr", Tensor::of<float>({1}, {-0.1F})},
                       {"iter", Tensor::of<int64_t>({1}, {4})}};
  const std::vector<Argument> args = {make_arg("beta1", 0.8F), make_arg("beta2", 0.9F), make_arg("epsilon", 0.01F)};
  const auto y = run_op_on(
      make_op("RowWiseSparseAdam", {"p", "m1", "m2", "i", "g", "lr", "iter"}, {"p", "m1", "m2", "step"}, args), feeds);
  EXPECT_EQ(compare(y[0], Tensor::of<float>({3, 2}, {0.95963871F, 1.9308093F, 3, 4, 4.9248581F, 5.9069672F}), 1e-6),
            "");
  EXPECT_EQ(compare(y[1], Tensor::of<float>({3, 2}, {0.14F, 0.24F, 0.3F, 0.4F, 0.42F, 0.52F}), 1e-6), "");
  EXPECT_EQ(compare(y[2], Tensor::of<float>({3}, {0.1025F, 0.2F, 0.2725F}), 1e-6), "");
  EXPECT_EQ(compare(y[3], Tensor::of<float>({2, 2}, {0.75141776F, 0.93032676F, 0.40361273F, 0.69190758F}), 1e-5), "");
}

TEST(RowWiseSparseAdam, StepsRowAfterRow) {
  for (const Shape& table : {Shape{5, 3, 2}, Shape{5}, Shape{5, 0}}) {
    const OptimizerSteps steps = {
        make_op("RowWiseSparseAdam", {"p", "m1", "m2", "i", "g", "lr", "iter"}, {"p", "m1", "m2"},
                {make_arg("beta1", 0.5F), make_arg("beta2", 0.75F), make_arg("epsilon", 0.25F)}),
        {{"p", normal<double>(table, 1)},
         {"m1", normal<double>(table, 2)},
         {"m2", uniform<double>({5}, 0, 2, 3)},
         {"lr", Tensor::scalar<float>(-0.5F)},
         {"iter", Tensor::of<int64_t>({1}, {0})}},
        {"p", "m1", "m2"},
        table.size_between(1, table.rank()),
        [](int step, int64_t at, std::span<const double> grad, std::map<std::string, Values>& states) {
          const double t = step + 1, rate = -0.5 * std::sqrt(1 - std::pow(0.75, t)) / (1 - std::pow(0.5, t));
          double squares = 0;
          for (const double g : grad) squares += g * g;
          double& m2 = states["m2"][static_cast<size_t>(at)];
          m2 = 0.75 * m2 + 0.25 * squares / std::max(1.0, static_cast<double>(grad.size()));
          for (size_t i = 0; i < grad.size(); ++i) {
            const size_t e = static_cast<size_t>(at) * grad.size() + i;
            double& m1 = states["m1"][e] = 0.5 * states["m1"][e] + 0.5 * grad[i];
            states["p"][e] += rate * m1 / (std::sqrt(m2) + 0.25);
          }
        }};
    EXPECT_EQ(check_table_steps(steps), "") << table.str();
    EXPECT_NE(step_error(steps, "m2", normal<double>({4})).find("moment_2 must hold one value for each row of param"),
              std::string::npos);
  }
}

TEST(SparseAdam, RefusesWhatDoesNotFit) {
  const std::string name = "SparseAdam: ";
  EXPECT_EQ(step_error(sparse_adam(), "i", Tensor::of<int64_t>({2}, {0, 5})),
            name + "index 1 is 5, which is outside of 0 to 4");
  EXPECT_EQ(step_error(sparse_adam(), "i", Tensor::of<int32_t>({2}, {0, -1})),
            name + "index 1 is -1, which is outside of 0 to 4");
  EXPECT_EQ(step_error(sparse_adam(), "g", normal<double>({3, 6})),
            name + "grad has shape [3, 6], but for indices [2] it must be 2 rows of param [5, 3, 2]");
  EXPECT_EQ(step_error(sparse_adam(), "i", Tensor::of<int64_t>({2, 1, 1}, {0, 1})),
            name + "grad has shape [2, 6], but for indices [2, 1, 1] it must be 2 rows of param [5, 3, 2]");
  EXPECT_EQ(step_error(sparse_adam(), "m1", normal<double>({5, 6})),
            name + "moment_1 has shape [5, 6], but param [5, 3, 2]");
  EXPECT_EQ(step_error(sparse_adam(), "m2", normal<double>({5, 6})),
            name + "moment_2 has shape [5, 6], but param [5, 3, 2]");
  EXPECT_EQ(step_error(sparse_adam(), "lr", normal<float>({2})), name + "lr must be one value, but has shape [2]");
  EXPECT_EQ(step_error(sparse_adam(), "iter", integers<int64_t>({2}, 0, 1)),
            name + "iter must be one value, but has shape [2]");
  EXPECT_EQ(step_error(sparse_adam(), "iter", Tensor::scalar<int64_t>(-1)), name + "iter is -1, which is negative");
  EXPECT_NE(step_error(sparse_adam(), "g", normal<float>({2, 6})).find("must have the same type"), std::string::npos);
}

TEST(SparseAdam, IsInPlace) {
  OptimizerSteps apart = sparse_adam();
  apart.def.set_output(1, "other");
  EXPECT_NE(step_error(apart, "", Tensor()).find("\"output_moment_1\" must be the same blob as input \"moment_1\""),
            std::string::npos);
  OptimizerSteps one_moment = sparse_adam();
  one_moment.def.set_input(2, "m1");
  one_moment.def.set_output(2, "m1");
  EXPECT_EQ(step_error(one_moment, "", Tensor()), "SparseAdam: two outputs have the same name \"m1\"");
}

}  // namespace
}  // namespace stepnet::testing::adam_test
