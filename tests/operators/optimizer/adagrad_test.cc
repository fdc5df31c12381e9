// Adagrad, SparseAdagrad and RowWiseSparseAdagrad against plain loops.
#include <cmath>

#include "tests/operators/optimizer_steps.h"

namespace stepnet::testing::adagrad_test {
namespace {

OptimizerSteps adagrad(const Shape& shape, double decay) {
  return {
      make_op("Adagrad", {"p", "h", "g", "lr"}, {"p", "h"},
              {make_arg("epsilon", 0.25f), make_arg("decay", static_cast<float>(decay))}),
      {{"p", normal<double>(shape, 1)}, {"h", uniform<double>(shape, 0, 2, 2)}, {"lr", Tensor::scalar<float>(-0.5f)}},
      {"p", "h"},
      shape.size(),
      [decay](int, int64_t, std::span<const double> grad, std::map<std::string, Values>& states) {
        for (size_t i = 0; i < grad.size(); ++i) {
          const double h = states["h"][i] = decay * states["h"][i] + grad[i] * grad[i];
          states["p"][i] -= 0.5 * grad[i] / (std::sqrt(h) + 0.25);
        }
      }};
}

TEST(Adagrad, FollowsItsFormula) {
  for (const Shape& shape : {Shape{3, 4}, Shape{0}, Shape{}, Shape{100000}})
    for (const double decay : {1.0, 0.5}) EXPECT_EQ(check_dense_steps(adagrad(shape, decay), shape), "");
}

TEST(Adagrad, HasDefaults) {
  const Feeds feeds = {{"p", Tensor::of<double>({1}, {1})},
                       {"h", Tensor::of<double>({1}, {3e-10})},
                       {"g", Tensor::of<double>({1}, {1e-5})},
                       {"lr", Tensor::of<double>({1}, {-1})}};
  const auto out = run_op_on(make_op("Adagrad", {"p", "h", "g", "lr"}, {"p", "h"}), feeds);
  EXPECT_NEAR(out[0].item<double>(), 1 - 1.0 / 3, 1e-6);  // 1e-5 / (2e-5 + epsilon)
  EXPECT_NEAR(out[1].item<double>(), 4e-10, 1e-20);
}

TEST(Adagrad, RefusesWhatDoesNotFit) {
  const std::string name = "Adagrad: ";
  const OptimizerSteps steps = adagrad({6}, 1);
  EXPECT_EQ(step_error(steps, "g", normal<double>({3, 2})), name + "grad has shape [3, 2], but param [6]");
  EXPECT_EQ(step_error(steps, "h", normal<double>({1})), name + "moment has shape [1], but param [6]");
  EXPECT_EQ(step_error(steps, "lr", normal<float>({2})), name + "lr must be one value, but has shape [2]");
  EXPECT_NE(step_error(steps, "h", normal<float>({6})).find("must have the same type"), std::string::npos);
  EXPECT_EQ(step_error(adagrad({6}, 1.5), "", Tensor()), name + "argument \"decay\" must be from 0 to 1, but is 1.5");
  OptimizerSteps swapped = steps;
  swapped.def.set_output(0, "h");
  swapped.def.set_output(1, "p");
  EXPECT_NE(step_error(swapped, "", Tensor()).find("cannot have the name of the input"), std::string::npos);
}

void sparse_step(int, int64_t at, std::span<const double> grad, std::map<std::string, Values>& states) {
  for (size_t i = 0; i < grad.size(); ++i) {
    const size_t e = static_cast<size_t>(at) * grad.size() + i;
    const double h = states["h"][e] += grad[i] * grad[i];
    states["p"][e] -= 0.5 * grad[i] / (std::sqrt(h) + 0.25);
  }
}

OptimizerSteps sparse_adagrad(const Shape& table = {5, 3, 2}) {
  return {make_op("SparseAdagrad", {"p", "h", "i", "g", "lr"}, {"p", "h"}, {make_arg("epsilon", 0.25f)}),
          {{"p", normal<double>(table, 1)},
           {"h", uniform<double>(table, 0, 2, 2)},
           {"lr", Tensor::of<float>({1, 1}, {-0.5f})}},
          {"p", "h"},
          table.size_between(1, table.rank()),
          sparse_step};
}

TEST(SparseAdagrad, StepsRowAfterRow) {
  EXPECT_EQ(check_table_steps(sparse_adagrad()), "");
  EXPECT_EQ(check_table_steps(sparse_adagrad({5})), "");
  EXPECT_EQ(check_table_steps(sparse_adagrad({5, 0})), "");
  EXPECT_EQ(check_table_threads(sparse_adagrad({70, 64}), {70, 64}), "");
}

TEST(SparseAdagrad, HasTheDenseDefault) {
  const Feeds feeds = {{"p", Tensor::of<double>({1}, {0})},
                       {"h", Tensor::of<double>({1}, {0})},
                       {"i", Tensor::of<int32_t>({1}, {0})},
                       {"g", Tensor::of<double>({1}, {1e-5})},
                       {"lr", Tensor::scalar<double>(-1)}};
  const auto out = run_op_on(make_op("SparseAdagrad", {"p", "h", "i", "g", "lr"}, {"p", "h"}), feeds);
  EXPECT_NEAR(out[0].item<double>(), -0.5, 1e-6);  // 1e-5 / (1e-5 + epsilon)
}

TEST(SparseAdagrad, RefusesWhatDoesNotFit) {
  const std::string name = "SparseAdagrad: ";
  EXPECT_EQ(step_error(sparse_adagrad(), "i", Tensor::of<int32_t>({2}, {0, 5})),
            name + "index 1 is 5, which is outside of 0 to 4");
  EXPECT_EQ(step_error(sparse_adagrad(), "i", Tensor::of<int64_t>({2}, {0, -1})),
            name + "index 1 is -1, which is outside of 0 to 4");
  EXPECT_EQ(step_error(sparse_adagrad(), "g", normal<double>({6, 2})),
            name + "grad has shape [6, 2], but for indices [2] it must be 2 rows of param [5, 3, 2]");
  EXPECT_EQ(step_error(sparse_adagrad(), "h", normal<double>({5})), name + "moment has shape [5], but param [5, 3, 2]");
  EXPECT_EQ(step_error(sparse_adagrad(), "lr", normal<float>({2})), name + "lr must be one value, but has shape [2]");
  OptimizerSteps scalar = sparse_adagrad();
  scalar.feeds[0].second = scalar.feeds[1].second = Tensor::scalar<double>(1);
  EXPECT_EQ(step_error(scalar, "", Tensor()), name + "param is a single value, which has no rows");
  OptimizerSteps apart = sparse_adagrad();
  apart.def.set_output(0, "other");
  EXPECT_NE(step_error(apart, "", Tensor()).find("\"output_param\" must be the same blob as input \"param\""),
            std::string::npos);
}

void row_wise_step(int, int64_t at, std::span<const double> grad, std::map<std::string, Values>& states) {
  double sum = 0;
  for (const double g : grad) sum += g * g / static_cast<double>(grad.size());
  const double h = states["h"][static_cast<size_t>(at)] += sum;
  for (size_t i = 0; i < grad.size(); ++i)
    states["p"][static_cast<size_t>(at) * grad.size() + i] -= 0.5 * grad[i] / (std::sqrt(h) + 0.25);
}

OptimizerSteps row_wise(const Shape& table = {5, 3, 2}) {
  return {make_op("RowWiseSparseAdagrad", {"p", "h", "i", "g", "lr"}, {"p", "h"}, {make_arg("epsilon", 0.25f)}),
          {{"p", normal<double>(table, 1)},
           {"h", uniform<double>({table[0]}, 0.5, 2, 2)},
           {"lr", Tensor::scalar<float>(-0.5f)}},
          {"p", "h"},
          table.size_between(1, table.rank()),
          row_wise_step};
}

TEST(RowWiseSparseAdagrad, StepsRowAfterRow) {
  EXPECT_EQ(check_table_steps(row_wise()), "");
  EXPECT_EQ(check_table_steps(row_wise({5})), "");
  EXPECT_EQ(check_table_steps(row_wise({5, 0})), "");
  EXPECT_EQ(check_table_threads(row_wise({70, 64}), {70, 64}), "");
}

TEST(RowWiseSparseAdagrad, RefusesWhatDoesNotFit) {
  const std::string name = "RowWiseSparseAdagrad: ";
  EXPECT_EQ(step_error(row_wise(), "i", Tensor::of<int64_t>({2}, {0, 5})),
            name + "index 1 is 5, which is outside of 0 to 4");
  EXPECT_EQ(step_error(row_wise(), "i", Tensor::of<int32_t>({2}, {-2147483647, 0})),
            name + "index 0 is -2147483647, which is outside of 0 to 4");
  EXPECT_EQ(step_error(row_wise(), "h", normal<double>({5, 3, 2})),
            name + "moment has shape [5, 3, 2], but param [5, 3, 2] needs one value for each row");
  EXPECT_EQ(step_error(row_wise(), "g", normal<double>({2, 2})),
            name + "grad has shape [2, 2], but for indices [2] it must be 2 rows of param [5, 3, 2]");
  EXPECT_EQ(step_error(row_wise(), "lr", normal<float>({0})), name + "lr must be one value, but has shape [0]");
  OptimizerSteps apart = row_wise();
  apart.def.set_output(1, "other");
  EXPECT_NE(step_error(apart, "", Tensor()).find("\"output_moment_1\" must be the same blob as input \"moment\""),
            std::string::npos);
}

// What Caffe2 1.10 gives.

const Argument kHundredth = make_arg("epsilon", 0.01F), kDecays = make_arg("weight_decay", 0.5F);
const Tensor kRate = Tensor::of<float>({1}, {-0.1F});

Feeds table_feeds(const Tensor& moments) {
  return {{"p", Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6})},
          {"h", moments},
          {"i", Tensor::of<int64_t>({2}, {2, 0})},
          {"g", Tensor::of<float>({2, 2}, {0.1F, 0.2F, 0.3F, 0.4F})},
          {"lr", kRate}};
}

TEST(Adagrad, GivesRatesAndUpdates) {
  const Feeds feeds = {{"p", Tensor::of<float>({2}, {1, 2})},
                       {"h", Tensor::of<float>({2}, {0.3F, 0.4F})},
                       {"g", Tensor::of<float>({2}, {0.5F, -0.6F})},
                       {"lr", kRate}};
  const auto run = [&](std::vector<Argument> args) {
    args.insert(args.end(), {kHundredth, make_arg("decay", 0.9F)});
    return run_op_on(make_op("Adagrad", {"p", "h", "g", "lr"}, {"q", "n", "rate", "update"}, args), feeds);
  };
  const auto plain = run({}), decayed = run({kDecays});
  EXPECT_EQ(compare(plain[0], Tensor::of<float>({2}, {0.9316109F, 2.0698872F}), 1e-6), "");
  EXPECT_EQ(compare(plain[2], Tensor::of<float>({2}, {-0.13677828F, -0.11647842F}), 1e-6), "");
  EXPECT_EQ(compare(plain[3], Tensor::of<float>({2}, {-0.06838914F, 0.06988706F}), 1e-6), "");
  EXPECT_EQ(compare(decayed[0], Tensor::of<float>({2}, {0.9120448F, 1.9452887F}), 1e-6), "");
  EXPECT_EQ(compare(decayed[1], Tensor::of<float>({2}, {1.27F, 0.52F}), 1e-6), "");
  EXPECT_EQ(compare(decayed[3], Tensor::of<float>({2}, {-0.08795518F, -0.05471131F}), 1e-6), "");
}

TEST(SparseAdagrad, DecaysWeights) {
  const Feeds feeds = table_feeds(Tensor::of<float>({3, 2}, {0.2F, 0.4F, 0.6F, 0.8F, 1, 1.2F}));
  const auto y =
      run_op_on(make_op("SparseAdagrad", {"p", "h", "i", "g", "lr"}, {"p", "h"}, {kHundredth, kDecays}), feeds);
  EXPECT_EQ(compare(y[0], Tensor::of<float>({3, 2}, {0.9136549F, 1.9094572F, 3, 4, 4.906999F, 5.9056687F}), 1e-6), "");
  EXPECT_EQ(compare(y[1], Tensor::of<float>({3, 2}, {0.84F, 2.36F, 0.6F, 0.8F, 7.76F, 11.44F}), 1e-6), "");
}

TEST(RowWiseSparseAdagrad, DecaysWeightsByCounter) {
  Feeds feeds = table_feeds(Tensor::of<float>({3}, {0.2F, 0.6F, 1}));
  const auto run = [&](const std::vector<std::string>& inputs, std::vector<Argument> args) {
    args.insert(args.end(), {kHundredth, kDecays});
    return run_op_on(make_op("RowWiseSparseAdagrad", inputs, {"p", "h"}, args), feeds);
  };
  const std::vector<std::string> without = {"p", "h", "i", "g", "lr"}, with = {"p", "h", "i", "g", "lr", "c"};
  const auto plain = run(without, {});
  EXPECT_EQ(compare(plain[0], Tensor::of<float>({3, 2}, {0.9352093F, 1.8866162F, 3, 4, 4.915918F, 5.896514F}), 1e-6),
            "");
  EXPECT_EQ(compare(plain[1], Tensor::of<float>({3}, {1.5F, 0.6F, 9.5F}), 1e-6), "");
  feeds.emplace_back("c", Tensor::of<double>({3}, {2, 3, 4}));
  const Argument halflife = make_arg("counter_halflife", 2);
  const auto counted = run(with, {halflife});
  EXPECT_EQ(compare(counted[0], Tensor::of<float>({3, 2}, {0.9352093F, 1.8866162F, 3, 4, 4.9267106F, 5.907709F}), 1e-6),
            "");
  EXPECT_EQ(compare(counted[1], Tensor::of<float>({3}, {1.5F, 0.6F, 3.35625F}), 1e-6), "");
  EXPECT_EQ(compare(run(with, {})[1], plain[1], 0), "");
  EXPECT_NE(error_of([&] { run(without, {halflife}); }).find("\"counter_halflife\" needs the input counter"),
            std::string::npos);
  feeds.back().second = Tensor::of<double>({1}, {2});
  EXPECT_NE(error_of([&] { run(with, {halflife}); }).find("counter has shape [1], but param [3, 2] needs one value"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::adagrad_test
