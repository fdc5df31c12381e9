#include "recurrent/report/curves.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/core/errors.h"

namespace stepnet::testing::curves_test {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Curves, LinesAreRead) {
  const Curves curves = read_curves(
      "{\"iteration\":1,\"loss\":2.5,\"lr\":0.1,\"seconds\":3}\n{\"iteration\":1,\"validation_loss\":2}\n"
      "{\"iteration\":2,\"loss\":null,\"lr\":0.2,\"seconds\":4}\n{\"iteration\":3,\"lo",
      "m");
  ASSERT_EQ(curves.size(), 3);
  EXPECT_EQ(curves.at("loss").size(), 1);  // what is not finite is no point, and the last line is not whole
  EXPECT_EQ(curves.at("lr")[1].iteration, 2);
  EXPECT_EQ(curves.at("lr")[1].value, 0.2);
  EXPECT_EQ(curves.at("validation_loss")[0].value, 2);
  expect_contains(error_text([] { read_curves("{\"iteration\":1}\nnothing\n", "m"); }), "line 2 of m");
  expect_contains(error_text([] { read_curves("{\"loss\":1}\n", "m"); }), "line 1 of m");
}

TEST(Curves, APanelForEachFigure) {
  Curves curves;
  curves["loss"] = {{1, 4}, {2, 2}, {3, 1}};
  curves["validation_loss"] = {{3, 1.5}};
  curves["validation_a<b"] = {{3, 0.5}};
  curves["lr"] = {{1, 0.1}, {3, 0.1}};
  const std::string svg = curves_svg(curves, "run & more");
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  EXPECT_EQ(count(svg, "<polyline"), 4);
  EXPECT_EQ(count(svg, "<circle"), 2);
  EXPECT_EQ(count(svg, ">training<"), 2);
  EXPECT_EQ(count(svg, ">held out<"), 2);
  EXPECT_EQ(count(svg, ">run &amp; more<"), 1);
  EXPECT_EQ(count(svg, "a&lt;b"), 1);
  EXPECT_LT(svg.find(">loss<"), svg.find(">a&lt;b<"));
  EXPECT_LT(svg.find(">a&lt;b<"), svg.find(">lr<"));
  // The first point is the largest of its panel, the last one the least.
  EXPECT_NE(svg.find("points=\"80.0,48.0 408.0,168.0 736.0,228.0\""), svg.npos) << svg;
  EXPECT_EQ(svg.find("nan"), svg.npos);
  expect_contains(error_text([] { curves_svg({}, "m"); }), "m has no metrics");
}

TEST(Curves, PeaksOfLongCurvesAreDrawn) {
  Curves curves;
  for (int i = 0; i < 100'000; ++i) curves["loss"].push_back({static_cast<double>(i), i == 54'321 ? 100.0 : 0.0});
  const std::string svg = curves_svg(curves, "m");
  EXPECT_LT(svg.size(), 40'000);
  EXPECT_EQ(count(svg, ",48.0 "), 1);  // at the top of the panel
}

}  // namespace
}  // namespace stepnet::testing::curves_test
