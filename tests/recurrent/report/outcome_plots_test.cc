#include "recurrent/report/outcome_plots.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/data/csv.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::testing::outcome_plots_test {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// What a score tells of these tensors.
std::vector<Outcome> outcomes(const std::string& metric, const Tensor& prediction, const Tensor& target,
                              const Tensor& mask = {}) {
  std::vector<Outcome> told;
  Score score(metric);
  score.watch([&](const Outcome& outcome) { told.push_back(outcome); });
  score.add(prediction, target, mask);
  return told;
}

TEST(Outcomes, AreThoseThatCount) {
  const Tensor scores = Tensor::of<float>({4, 3}, {1, 5, 2, 3, 2, 1, 4, 4, 0, 9, 1, 0});
  const Tensor target = Tensor::of<int32_t>({4}, {1, 1, 0, 2}), mask = Tensor::of<float>({4}, {1, 0, 1, 1});
  for (const char* metric : {"accuracy", "top_2", "recall", "perplexity"}) {
    ASSERT_EQ(outcome_kind(metric), OutcomeKind::classes);
    ConfusionMatrix matrix;
    for (const Outcome& outcome : outcomes(metric, scores, target, mask)) matrix.add(outcome);
    EXPECT_EQ(matrix.csv(), "target,predicted_0,predicted_1,predicted_2\n0,1,0,0\n1,0,1,0\n2,1,0,0\n") << metric;
  }
  const std::vector<Outcome> two =
      outcomes("f1", Tensor::of<float>({3}, {0.9f, 0.5f, 0.6f}), Tensor::of<int32_t>({3}, {1, 1, 0}));
  ASSERT_EQ(two.size(), 3);
  EXPECT_EQ(two[1].prediction, 0);
  EXPECT_EQ(two[2].prediction, 1);
  EXPECT_EQ(two[2].classes, 2);
  for (const char* metric : {"r2", "mean_absolute_error", "mean_squared_error"}) {
    ASSERT_EQ(outcome_kind(metric), OutcomeKind::numbers);
    const std::vector<Outcome> told = outcomes(metric, Tensor::of<float>({2}, {1, 2}), Tensor::of<double>({2}, {3, 4}),
                                               Tensor::of<float>({2}, {0, 1}));
    ASSERT_EQ(told.size(), 1);
    EXPECT_EQ(told[0].target, 4);
    EXPECT_EQ(told[0].prediction, 2);
    EXPECT_EQ(told[0].classes, 0);
  }
  for (const char* metric : {"mean", "auc", "edit_distance"}) EXPECT_EQ(outcome_kind(metric), OutcomeKind::none);
  expect_contains(error_text([&] {
                    outcomes("accuracy", Tensor::of<float>({1, 2}, {NAN, 0}), Tensor::of<int32_t>({1}, {1}));
                  }),
                  "a score that is nan");
}

TEST(ConfusionMatrix, IsATableAndAPicture) {
  ConfusionMatrix matrix;
  for (int i = 0; i < 7; ++i) matrix.add({1, 0, 3});
  matrix.add({1, 1, 3});
  matrix.add({0, 0, 3});
  EXPECT_EQ(matrix.count(1, 0), 7);
  const TempFolder folder;
  write_all(folder.file("m.csv"), matrix.csv());
  const Table table = read_table(folder.file("m.csv"));
  EXPECT_EQ(table.names[1], "predicted_0");
  EXPECT_EQ(table.columns[1], (std::vector<double>{1, 7, 0}));
  const std::string svg = matrix.svg("a < b");
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  EXPECT_EQ(count(svg, "<rect x="), 9);
  EXPECT_EQ(count(svg, "fill-opacity=\"0.875\" stroke=\"#dddddd\"><title>target 1, predicted 0: 7</title>"), 1);
  EXPECT_EQ(count(svg, "fill=\"white\">7</text>"), 1);
  EXPECT_EQ(count(svg, ">a &lt; b<"), 1);
  EXPECT_EQ(count(svg, ">predicted<") + count(svg, ">target<"), 2);
  EXPECT_EQ(svg.find("nan"), svg.npos);  // nothing is a target of class 2
}

TEST(ConfusionMatrix, OfTooManyClassesIsRefused) {
  ConfusionMatrix drawn(ConfusionMatrix::kMostDrawn), large;
  const std::string text = error_text([&] { drawn.add({0, 0, 51}); });
  expect_contains(text, "there are 51 classes, but the picture of a confusion matrix has at most 50");
  expect_contains(text, "fix write it to FILE.csv");
  large.add({50, 3, 51});
  EXPECT_EQ(large.count(50, 3), 1);
  expect_contains(error_text([&] { large.svg(""); }), "FILE.csv");
  expect_contains(error_text([&] { large.add({0, 0, 52}); }), "52 classes, but were 51 before");
  expect_contains(error_text([] { ConfusionMatrix().add({0, 0, 1 << 20}); }), "1048576 classes, but");
  expect_contains(error_text([] { return ConfusionMatrix().svg(""); }), "no target counts");
  ConfusionMatrix most(50);
  most.add({49, 0, 50});
  EXPECT_EQ(count(most.svg(""), "<rect x="), 2500);
}

TEST(ScatterPlot, HasThePointsInPlace) {
  ScatterPlot plot;
  plot.add({0, 10, 0});
  plot.add({5, 5, 0});
  const std::string svg = plot.svg("r2 0.5");
  EXPECT_EQ(count(svg, "<circle"), 2);
  EXPECT_EQ(count(svg, "cx=\"80.0\" cy=\"64.0\""), 1) << svg;    // the corner at the top left
  EXPECT_EQ(count(svg, "cx=\"320.0\" cy=\"304.0\""), 1) << svg;  // the middle
  EXPECT_EQ(count(svg, "drawn"), 0);
  expect_contains(error_text([&] { plot.add({0, NAN, 0}); }), "a prediction of nan for a target of 0");
  expect_contains(error_text([] { return ScatterPlot().svg(""); }), "nothing to draw");
}

TEST(ScatterPlot, OfManyPointsDrawsSome) {
  ScatterPlot plot, again;
  for (int i = 0; i < 100'000; ++i)
    for (ScatterPlot* each : {&plot, &again}) each->add({static_cast<double>(i), static_cast<double>(i % 2), 0});
  const std::string svg = plot.svg("many");
  EXPECT_EQ(svg, again.svg("many"));
  EXPECT_EQ(count(svg, "<circle"), 5000);
  EXPECT_EQ(count(svg, "5000 of 100000 drawn"), 1);
  size_t late = 0;  // of the second half
  for (size_t at = svg.find("cx=\""); at != svg.npos; at = svg.find("cx=\"", at + 1))
    late += std::stod(svg.substr(at + 4)) > 320 ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(late), 2500, 150);
}

}  // namespace
}  // namespace stepnet::testing::outcome_plots_test
