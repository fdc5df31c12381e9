#include "recurrent/report/scores.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/core/errors.h"

namespace stepnet::testing::scores_test {
namespace {

double score(const std::string& name, const Tensor& prediction, const Tensor& target) {
  Score s(name);
  s.add(prediction, target);
  return s.value();
}

TEST(Scores, OfClasses) {
  // Rows: right, the second best, equal scores of which the first counts, wrong.
  const Tensor scores = Tensor::of<float>({4, 3}, {1, 5, 2, 3, 2, 1, 4, 4, 0, 9, 1, 0});
  const Tensor target = Tensor::of<int32_t>({4}, {1, 1, 0, 2});
  EXPECT_EQ(score("accuracy", scores, target), 0.5);
  EXPECT_EQ(score("top_2", scores, target), 0.75);
  EXPECT_EQ(score("top_5", scores, target), 1);
  EXPECT_EQ(score("accuracy", scores.reshaped({2, 2, 3}), target.reshaped({2, 2})), 0.5);
  EXPECT_EQ(score("accuracy", Tensor::of<float>({1, 2}, {NAN, 0}), Tensor::of<int32_t>({1}, {0})), 0);
}

TEST(Scores, OfNumbers) {
  const Tensor prediction = Tensor::of<float>({4}, {1, 2, 3, 5});
  const Tensor target = Tensor::of<double>({4, 1}, {1, 1, 4, 2});
  EXPECT_DOUBLE_EQ(score("mean_absolute_error", prediction, target), 5.0 / 4);
  EXPECT_DOUBLE_EQ(score("mean_squared_error", prediction, target), 11.0 / 4);
  EXPECT_DOUBLE_EQ(score("r2", prediction, target), 1 - 11.0 / 6);  // the mean is 2
  EXPECT_TRUE(std::isnan(score("r2", Tensor::of<float>({2}, {1, 2}), Tensor::of<float>({2}, {3, 3}))));
}

TEST(Scores, OfSeveralBatchesAreThoseOfAll) {
  for (const char* name : {"mean_absolute_error", "mean_squared_error", "r2"}) {
    Tensor p = Tensor::empty(DType::float64, {9}), t = Tensor::empty(DType::float64, {9});
    for (int i = 0; i < 9; ++i) {
      p.data<double>()[i] = std::sin(3 * i);
      t.data<double>()[i] = 1e6 + std::cos(2 * i);
    }
    Score parts(name);
    for (const auto& [begin, count] : {std::pair{0, 4}, {4, 1}, {5, 0}, {5, 4}})
      parts.add(p.rows(begin, count), t.rows(begin, count));
    EXPECT_NEAR(parts.value(), score(name, p, t), 1e-9 * std::abs(parts.value())) << name;
  }
  EXPECT_TRUE(std::isnan(Score("accuracy").value()));
}

TEST(Scores, SharesOfClasses) {
  // Predicted 0, 1, 1, 2, 0; targets 0, 1, 0, 0, 1. Class 2 is predicted, but no target.
  const Tensor scores = Tensor::of<float>({5, 4}, {3, 1, 2, 0, 1, 3, 2, 0, 0, 2, 1, 0, 0, 0, 9, 1, 5, 1, 1, 1});
  const Tensor target = Tensor::of<int32_t>({5}, {0, 1, 0, 0, 1});
  EXPECT_DOUBLE_EQ(score("precision", scores, target), (1 / 2.0 + 1 / 2.0 + 0) / 3);
  EXPECT_DOUBLE_EQ(score("recall", scores, target), (1 / 3.0 + 1 / 2.0 + 0) / 3);
  EXPECT_DOUBLE_EQ(score("f1", scores, target), (2 / 5.0 + 2 / 4.0 + 0) / 3);
  const Tensor chance = Tensor::of<double>({5}, {0.9, 0.8, 0.5, 0.7, 0.1});
  const Tensor is = Tensor::of<float>({5}, {1, 0, 1, 1, 0});
  EXPECT_DOUBLE_EQ(score("precision", chance, is), 2 / 3.0);
  EXPECT_DOUBLE_EQ(score("recall", chance, is), 2 / 3.0);
  EXPECT_DOUBLE_EQ(score("f1", chance, is), 2 / 3.0);
  EXPECT_EQ(score("f1", Tensor::of<double>({2}, {0, 0}), Tensor::of<double>({2}, {0, 1})), 0);
}

TEST(Scores, AreaUnderTheCurve) {
  const Tensor target = Tensor::of<int32_t>({5}, {1, 0, 1, 0, 0});
  EXPECT_DOUBLE_EQ(score("auc", Tensor::of<float>({5}, {5, 1, 4, 3, 2}), target), 1);
  EXPECT_DOUBLE_EQ(score("auc", Tensor::of<float>({5}, {5, 1, 2, 3, 2}), target), 4.5 / 6);
  EXPECT_TRUE(std::isnan(score("auc", Tensor::of<float>({1}, {5}), Tensor::of<int32_t>({1}, {1}))));
}

TEST(Scores, OfLanguageModels) {
  const Tensor scores = Tensor::of<double>({2, 2}, {std::log(1.0), std::log(3.0), 1000, 1000});
  const Tensor target = Tensor::of<int32_t>({2}, {1, 0});
  const double entropy = (std::log(4 / 3.0) + std::log(2.0)) / 2;
  EXPECT_NEAR(score("perplexity", scores, target), std::exp(entropy), 1e-12);
  EXPECT_NEAR(score("bits", scores, target), entropy / std::log(2.0), 1e-12);
}

TEST(Scores, EditDistance) {
  // kitten and sitting differ by 3 of 7; an empty target by 2 insertions; padding does not count.
  const Tensor from = Tensor::of<int32_t>({2, 7}, {1, 2, 3, 3, 4, 5, -1, 8, -1, 8, -1, -1, -1, -1});
  const Tensor to = Tensor::of<int64_t>({2, 7}, {6, 2, 3, 3, 2, 5, 7, -1, -1, -1, -1, -1, -1, -1});
  EXPECT_DOUBLE_EQ(score("edit_distance", from, to), 5 / 7.0);
}

TEST(Scores, MasksLeaveTargetsOut) {
  const Tensor mask = Tensor::of<float>({2, 2}, {1, 0, 0, 1});
  const auto masked = [&](const std::string& name, const Tensor& prediction, const Tensor& target) {
    Score s(name);
    s.add(prediction, target, mask);
    return s.value();
  };
  const Tensor scores = Tensor::of<float>({2, 2, 2}, {1, 0, 1, 0, 0, 1, 0, 1});
  EXPECT_EQ(masked("accuracy", scores, Tensor::of<int32_t>({2, 2}, {0, 9, 9, 0})), 0.5);
  EXPECT_EQ(masked("mean_absolute_error", mask, Tensor::of<float>({4}, {0, 7, NAN, 4})), 2);
  EXPECT_EQ(score("mean", scores, {}), 0.5);
}

TEST(Scores, MistakesAreNamed) {
  const auto has = [](const auto& fn, const std::string& part) {
    return error_text(fn).find(part) != std::string::npos;
  };
  EXPECT_TRUE(has([] { Score("acuracy"); }, "there is no metric \"acuracy\""));
  EXPECT_TRUE(has([] { Score("top_0"); }, "there is no metric"));
  EXPECT_TRUE(has([] { Score("top_x"); }, "there is no metric"));
  const Tensor scores = Tensor::of<float>({2, 2}, {1, 0, 0, 1});
  EXPECT_TRUE(has([&] { score("accuracy", scores, Tensor::of<int32_t>({3}, {0, 0, 0})); }, "a score for each class"));
  EXPECT_TRUE(has([&] { score("accuracy", scores, Tensor::of<float>({2}, {0, 0})); }, "whole numbers as targets"));
  EXPECT_TRUE(has([&] { score("accuracy", scores, Tensor::of<int32_t>({2}, {0, 2})); }, "none of 2 classes"));
  EXPECT_TRUE(has([&] { score("r2", scores, Tensor::of<float>({2}, {0, 0})); }, "a prediction for each target"));
}

}  // namespace
}  // namespace stepnet::testing::scores_test
