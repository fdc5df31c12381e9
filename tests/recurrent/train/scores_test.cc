#include "recurrent/train/scores.h"

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
