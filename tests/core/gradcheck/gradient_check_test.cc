// The gradient checker finds what is wrong, says where, and finds nothing in what is right.
#include "stepnet/gradient_check.h"

#include <gtest/gtest.h>

#include "tests/core/gradient_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::gradient_check_test {
namespace {

GradientSubject subject_of(const OperatorDef& op, const Feeds& feeds) {
  GradientSubject subject{{}, {feeds.begin(), feeds.end()}, {op.output(0)}, {}};
  *subject.net.add_op() = op;
  for (const auto& [name, value] : feeds)
    if (value.dtype() == DType::float64) subject.inputs.push_back(name);
  return subject;
}

GradientSubject cube(const std::string& mistake) {
  return subject_of(make_op("PlantedCube", {"x"}, {"y"}, {make_arg("mistake", mistake)}),
                    {{"x", uniform<double>({2, 3}, 0.5, 2)}});
}

GradientCheckOptions second_order() {
  GradientCheckOptions options;
  options.order = 2;
  return options;
}

TEST(GradientCheck, FindsNothingInWhatIsRight) {
  const GradientReport report = check_gradients(cube(""), second_order());
  EXPECT_EQ(report.str(), "");
  EXPECT_TRUE(report.right());
  ASSERT_EQ(report.rows.size(), 3);  // of x; then of x and of the gradient given to y
  EXPECT_EQ(report.rows[0].tried, 6);
  EXPECT_LT(report.rows[0].error, 1e-8);
  EXPECT_EQ(report.rows[1].order, 2);
}

TEST(GradientCheck, FindsASignAndAFactor) {
  for (const char* mistake : {"sign", "factor"}) {
    const GradientReport report = check_gradients(cube(mistake));
    ASSERT_EQ(report.rows.size(), 1) << mistake;
    EXPECT_FALSE(report.rows[0].right) << mistake;
    EXPECT_NE(report.str().find("gradient of \"x\" at ["), std::string::npos) << report.str();
  }
}

TEST(GradientCheck, FindsTheOneElementThatIsWrong) {
  const GradientReport report = check_gradients(cube("element"));
  ASSERT_FALSE(report.right());
  EXPECT_EQ(report.rows[0].where, "[1, 1]");
  EXPECT_NEAR(report.rows[0].derivative / report.rows[0].differences, 1.0001, 1e-6);
}

TEST(GradientCheck, FindsItFromADirectionToo) {
  GradientCheckOptions options;
  options.directions = 2;
  EXPECT_EQ(check_gradients(cube("element"), options).rows.at(0).where, "[1, 1]");
  const GradientReport right = check_gradients(cube(""), options);
  EXPECT_TRUE(right.right()) << right.str();
  EXPECT_EQ(right.rows.at(0).tried, 2);
  EXPECT_TRUE(right.rows.at(0).where.starts_with("direction")) << right.rows[0].where;
}

GradientSubject long_cube(const std::string& mistake, int64_t size) {
  return subject_of(make_op("PlantedCube", {"x"}, {"y"}, {make_arg("mistake", mistake)}),
                    {{"x", uniform<double>({size}, 0.5, 2)}});
}

TEST(GradientCheck, OfManyElementsTriesDirections) {
  const GradientRow most = check_gradients(long_cube("", 2000)).rows.at(0);
  EXPECT_EQ(most.tried, 2000);
  EXPECT_EQ(most.elements, 2000);
  const GradientRow many = check_gradients(long_cube("", 2001)).rows.at(0);
  EXPECT_TRUE(many.right);
  EXPECT_EQ(many.tried, kManyDirections);
  EXPECT_EQ(many.elements, 2001);
  EXPECT_TRUE(many.where.starts_with("direction ")) << many.where;
  GradientCheckOptions options;
  options.directions = 0;
  EXPECT_EQ(check_gradients(long_cube("", 2001), options).rows.at(0).tried, 2001);
  options.directions = 3;
  EXPECT_EQ(check_gradients(long_cube("", 2001), options).rows.at(0).tried, 3);
  options = {};
  options.many_elements = 5;
  EXPECT_EQ(check_gradients(long_cube("", 6), options).rows.at(0).tried, kManyDirections);
}

TEST(GradientCheck, FindsAnElementOfManyByHalves) {
  GradientCheckOptions options;
  options.many_elements = 10;
  for (const char* mistake : {"element", "leaves"}) {
    const GradientRow row = check_gradients(long_cube(mistake, 300), options).rows.at(0);
    EXPECT_FALSE(row.right) << mistake;
    EXPECT_EQ(row.where, std::string(mistake) == "element" ? "[4]" : "[299]");
    EXPECT_EQ(row.tried, kManyDirections);
  }
}

TEST(GradientCheck, ForwardModeTakesDirectionsToo) {
  GradientCheckOptions options;
  options.forward = true;
  EXPECT_EQ(check_gradients(cube(""), options).rows.at(0).tried, 1);
  options.directions = 3;
  const GradientReport report = check_gradients(cube(""), options);
  EXPECT_EQ(report.str(), "");
  EXPECT_EQ(report.rows.at(0).tried, 3);
  EXPECT_TRUE(report.rows[0].where.starts_with("forward ")) << report.rows[0].where;
  EXPECT_FALSE(check_gradients(cube("factor"), options).right());
}

TEST(GradientCheck, RefusesNumbersThatMeanNothing) {
  GradientCheckOptions options;
  options.directions = -1;
  EXPECT_NE(error_of([&] { check_gradients(cube(""), options); }).find("directions: -1"), std::string::npos);
  options = {};
  options.order = 4;
  EXPECT_NE(error_of([&] { check_gradients(cube(""), options); }).find("order: 4"), std::string::npos);
}

TEST(GradientCheck, FindsWhatAddsAndWhatIsLeftOut) {
  for (const char* mistake : {"adds", "leaves"}) EXPECT_FALSE(check_gradients(cube(mistake)).right()) << mistake;
}

TEST(GradientCheck, FindsWhatIsWrongInSecondOrderOnly) {
  EXPECT_TRUE(check_gradients(cube("second")).right());
  const GradientReport report = check_gradients(cube("second"), second_order());
  EXPECT_FALSE(report.right());
  EXPECT_NE(report.str().find("second derivative of \"x\""), std::string::npos) << report.str();
}

TEST(GradientCheck, FindsWhatIsWrongInThirdOrderOnly) {
  GradientCheckOptions third;
  third.order = 3;
  EXPECT_EQ(check_gradients(cube(""), third).str(), "");
  EXPECT_TRUE(check_gradients(cube("third"), second_order()).right());
  const GradientReport report = check_gradients(cube("third"), third);
  EXPECT_FALSE(report.right());
  EXPECT_NE(report.str().find("third derivative of \"x\""), std::string::npos) << report.str();
}

TEST(GradientCheck, FindsAReadThatIsNotDeclared) {
  const Feeds feeds = {{"x", uniform<double>({2, 3}, 0.5, 2)}};
  EXPECT_FALSE(check_gradients(subject_of(make_op("PlantedPeek", {"x"}, {"y"}), feeds)).right());
}

TEST(GradientCheck, FindsASumThatMissesARow) {
  const Feeds feeds = {{"x", normal<double>({4, 3})}, {"b", normal<double>({3})}};
  const GradientReport report = check_gradients(subject_of(make_op("PlantedAddRow", {"x", "b"}, {"y"}), feeds));
  ASSERT_EQ(report.rows.size(), 2);
  for (const GradientRow& row : report.rows) EXPECT_EQ(row.right, row.input == "x") << row.input;
}

TEST(GradientCheck, AKinkIsNoMistake) {
  const Feeds feeds = {{"x", Tensor::of<double>({5}, {-1, 0, 2, 1e-7, 0})}};
  const GradientReport report = check_gradients(subject_of(make_op("Relu", {"x"}, {"y"}), feeds));
  EXPECT_TRUE(report.right()) << report.str();
  EXPECT_EQ(report.rows.at(0).kinks, 2);
}

TEST(GradientCheck, InPlaceIsCheckedToo) {
  const Feeds feeds = {{"x", normal<double>({2, 3})}};
  EXPECT_EQ(check_gradients(subject_of(make_op("Tanh", {"x"}, {"y"}), feeds), second_order()).str(), "");
}

// The gradient of a sum is the given one, and that of X to the power of 0 is 0 everywhere.
TEST(GradientCheck, OfGradientsThatAreNotComputed) {
  const Feeds feeds = {{"x", normal<double>({2, 3}, 1)}, {"z", normal<double>({2, 3}, 2)}};
  EXPECT_EQ(check_gradients(subject_of(make_op("Add", {"x", "z"}, {"y"}), feeds), second_order()).str(), "");
  const OperatorDef power = make_op("Pow", {"x"}, {"y"}, {make_arg("exponent", 0.0F)});
  const GradientReport report = check_gradients(subject_of(power, {feeds[0]}), second_order());
  EXPECT_EQ(report.str(), "");
  EXPECT_EQ(report.rows.size(), 3);
}

TEST(GradientCheck, OfSparseGradientsAndIntegers) {
  const Feeds feeds = {{"d", normal<double>({4, 3})}, {"i", Tensor::of<int32_t>({3}, {1, 3, 1})}};
  EXPECT_EQ(check_gradients(subject_of(make_op("Gather", {"d", "i"}, {"y"}), feeds)).str(), "");
}

TEST(GradientCheck, OfANetOfManyOperators) {
  GradientSubject subject{net_of_lines({"p = FC(x, w, b)", "h = Tanh(p)", "y = Mul(h, p)"}), {}, {"y", "h"}, {}};
  subject.feeds = {{"x", normal<double>({2, 3}, 1)}, {"w", normal<double>({4, 3}, 2)}, {"b", normal<double>({4}, 3)}};
  subject.inputs = {"x", "w", "b"};
  EXPECT_EQ(check_gradients(subject, second_order()).str(), "");
}

TEST(GradientCheck, OfNothing) {
  EXPECT_TRUE(check_gradients(subject_of(make_op("Tanh", {"x"}, {"y"}), {{"x", normal<double>({0, 3})}})).right());
  EXPECT_TRUE(check_gradients(subject_of(make_op("Tanh", {"x"}, {"y"}), {{"x", normal<double>({})}})).right());
}

TEST(GradientCheck, SaysWhatIsMissing) {
  GradientSubject subject = subject_of(make_op("Tanh", {"x"}, {"y"}), {{"x", normal<float>({2})}});
  EXPECT_NE(error_of([&] { check_gradients(subject); }).find("no input"), std::string::npos);
  subject.inputs = {"x"};
  EXPECT_NE(error_of([&] { check_gradients(subject); }).find("\"x\" is float[2]"), std::string::npos);
  subject.inputs = {"z"};
  EXPECT_NE(error_of([&] { check_gradients(subject); }).find("\"z\" is not fed"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::gradient_check_test
