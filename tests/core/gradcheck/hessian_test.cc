// Hessians are symmetric, and times a vector the same in all ways to it; where they are not, it is found.
#include <gtest/gtest.h>

#include "core/gradcheck/examples.h"
#include "recurrent/form/short_form.h"
#include "stepnet/gradient_check.h"
#include "stepnet/op_spec.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/core/gradient_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::hessian_test {
namespace {

GradientSubject subject_of(const NetDef& net, const Feeds& feeds, const std::vector<std::string>& outputs) {
  GradientSubject subject{net, {feeds.begin(), feeds.end()}, outputs, {}, {}, {}};
  for (const auto& [name, value] : feeds)
    if (value.dtype() == DType::float64) subject.inputs.push_back(name);
  return subject;
}

GradientSubject subject_of(const Lines& lines, const Feeds& feeds, const std::vector<std::string>& outputs) {
  return subject_of(net_of_lines(lines), feeds, outputs);
}

GradientCheckOptions with_hessian() {
  GradientCheckOptions options;
  options.hessian = true;
  return options;
}

std::map<std::string, GradientRow> hessian_rows(const GradientReport& report) {
  std::map<std::string, GradientRow> rows;
  for (const GradientRow& row : report.rows)
    if (row.check == "hessian") rows[row.input] = row;
  return rows;
}

void expect_right(const GradientSubject& subject) {
  const GradientReport report = check_gradients(subject, with_hessian());
  EXPECT_EQ(report.str(), "");
  const auto rows = hessian_rows(report);
  EXPECT_EQ(rows.size(), 4);
  for (const auto& [name, row] : rows) {
    EXPECT_EQ(row.order, 2) << name;
    EXPECT_EQ(row.tried, kHessianDirections) << name;
    EXPECT_TRUE(report.refused.empty());
  }
}

TEST(Hessian, OfANetOfManyOperators) {
  const Feeds feeds = {
      {"x", normal<double>({2, 3}, 1)}, {"w", normal<double>({4, 3}, 2)}, {"b", normal<double>({4}, 3)}};
  const GradientSubject subject = subject_of({"p = FC(x, w, b)", "h = Tanh(p)", "y = Mul(h, p)"}, feeds, {"y", "h"});
  expect_right(subject);
  const GradientReport report = check_gradients(subject, with_hessian());
  for (const auto& [name, row] : hessian_rows(report)) {
    EXPECT_NE(row.derivative, 0) << name;
    EXPECT_EQ(row.elements, 6 + 12 + 4) << name;
  }
}

TEST(Hessian, TakesDirections) {
  GradientCheckOptions options = with_hessian();
  options.directions = 5;
  const GradientReport report =
      check_gradients(subject_of({"y = Tanh(x)"}, {{"x", normal<double>({3})}}, {"y"}), options);
  EXPECT_EQ(report.str(), "");
  for (const auto& [name, row] : hessian_rows(report)) EXPECT_EQ(row.tried, 5) << name;
}

// Gradients that are given, that of several inputs at once, zero, sparse, and constant.
TEST(Hessian, OfGradientsThatAreNotComputed) {
  const Feeds two = {{"x", normal<double>({2, 3}, 1)}, {"z", normal<double>({2, 3}, 2)}};
  expect_right(subject_of({"y = Add(x, z)"}, two, {"y"}));
  expect_right(subject_of({"y = Sub(x, z)"}, two, {"y"}));
  expect_right(subject_of({"s = Add(x, z)", "y = Sigmoid(s)"}, two, {"y"}));
  expect_right(subject_of({"y = Mul(x, x)", "q = Tanh(z)"}, two, {"y"}));
  const Feeds rows = {{"d", normal<double>({4, 3})}, {"i", Tensor::of<int32_t>({3}, {1, 3, 1})}};
  expect_right(subject_of({"y = Gather(d, i)"}, rows, {"y"}));
  expect_right(subject_of({"g = Gather(d, i)", "y = Tanh(g)"}, rows, {"y"}));
}

// As for gradients of gradients.
TEST(Hessian, RefusesGradientsThatAreOverwritten) {
  const GradientSubject subject = subject_of({"x = Sigmoid(x)", "y = Tanh(x)"}, {{"x", normal<double>({2, 3})}}, {"y"});
  expect_contains(error_of([&] { check_gradients(subject, with_hessian()); }), "overwritten in place");
}

TEST(Hessian, RefusesNamesOfItsOwn) {
  const GradientSubject subject =
      subject_of({"hessian_copy/x = Sin(x)", "y = Tanh(hessian_copy/x)"}, {{"x", normal<double>({2, 3})}}, {"y"});
  expect_contains(error_of([&] { check_gradients(subject, with_hessian()); }), "\"hessian_copy/x\" begins as");
}

TEST(Hessian, OfNothingAndOfOne) {
  for (const Shape& shape : {Shape{0, 3}, Shape{}, Shape{1}})
    expect_right(subject_of({"y = Tanh(x)"}, {{"x", normal<double>(shape)}}, {"y"}));
}

TEST(Hessian, AtAKink) {
  const Feeds feeds = {{"x", Tensor::of<double>({5}, {-1, 0, 2, 0.5, 0})}};
  const GradientReport report =
      check_gradients(subject_of({"r = Relu(x)", "y = Mul(r, r)"}, feeds, {"y"}), with_hessian());
  EXPECT_EQ(report.str(), "");
  EXPECT_GE(hessian_rows(report).at("differences").kinks, 2);
}

NetDef network(const std::string& inner, const std::string& more = "") {
  NetDef net = parse_net_text(fmt::format(R"(
    op {{ type: 'RecurrentNetwork' input: 'X' input: 'h0' output: 'h_all'
         [stepnet.recurrent] {{
           step_net {{ name: 'step' {} op {{ type: 'Sum' input: 'm' input: 'q' output: 'h' }} }}
           sequence {{ outer: 'X' inner: 'x_t' }}
           state {{ input: 'h_prev' output: 'h' initial: 'h0' all: 'h_all' }} {} }} }}
    op {{ type: 'Mul' input: 'h_all' input: 'h_all' output: 'y' }})",
                                          inner, more));
  expand_recurrent(net);
  return net;
}

const char* const kProducts =
    "op { type: 'Mul' input: 'h_prev' input: 'W' output: 'm' }"
    "op { type: 'Tanh' input: 'x_t' output: 'q' }";

Feeds network_feeds() {
  return {{"X", normal<double>({3, 2, 4}, 1)}, {"h0", normal<double>({2, 4}, 2)}, {"W", normal<double>({1, 2, 4}, 3)}};
}

TEST(Hessian, OfARecurrentNetwork) {
  expect_right(subject_of(network(kProducts), network_feeds(), {"y"}));
  expect_right(subject_of(network(kProducts, "reverse: true"), network_feeds(), {"y"}));
}

// The second derivative is wrong in size: the product is not the differences.
TEST(Hessian, FindsAWrongFactor) {
  NetDef net;
  *net.add_op() = make_op("PlantedCube", {"x"}, {"y"}, {make_arg("mistake", std::string("second"))});
  const GradientSubject subject = subject_of(net, {{"x", uniform<double>({2, 3}, 0.5, 2)}}, {"y"});
  EXPECT_TRUE(check_gradients(subject).right());
  const GradientReport report = check_gradients(subject, with_hessian());
  const auto rows = hessian_rows(report);
  EXPECT_TRUE(rows.at("symmetry").right);
  EXPECT_FALSE(rows.at("differences").right);
  EXPECT_NEAR(rows.at("differences").derivative / rows.at("differences").differences, 5.0 / 6, 1e-5);
  expect_contains(report.str(), "the Hessian at x[");
}

TEST(Hessian, FindsThatItIsNotSymmetric) {
  const Feeds feeds = {{"x", normal<double>({2, 3}, 1)}, {"z", normal<double>({2, 3}, 2)}};
  const GradientSubject subject = subject_of({"y = PlantedProduct(x, z)"}, feeds, {"y"});
  EXPECT_TRUE(check_gradients(subject).right());
  const GradientReport report = check_gradients(subject, with_hessian());
  const auto rows = hessian_rows(report);
  EXPECT_FALSE(rows.at("symmetry").right);
  EXPECT_FALSE(rows.at("forward over reverse").right);
  EXPECT_FALSE(rows.at("differences").right);
  expect_contains(report.str(), "u.(H v) is ");
}

TEST(Hessian, LeavesOutWhatHasNoSecondDerivative) {
  const Feeds feeds = {{"x", normal<double>({4, 3})}, {"b", normal<double>({3})}, {"z", normal<double>({4, 3}, 5)}};
  const GradientSubject subject =
      subject_of({"p = PlantedPeek(x)", "q = Tanh(z)", "y = Add(p, q)"}, {feeds[0], feeds[2]}, {"y"});
  expect_contains(error_of([&] { check_gradients(subject, with_hessian()); }), "it is made for tests");
  GradientCheckOptions options = with_hessian();
  options.where_possible = true;
  const GradientReport report = check_gradients(subject, options);
  const auto rows = hessian_rows(report);
  EXPECT_EQ(rows.size(), 4);
  for (const auto& [name, row] : rows) EXPECT_TRUE(row.right && row.elements == 12) << name;
  ASSERT_EQ(report.refused.count("x"), 1);
  expect_contains(report.refused.at("x"), "it is made for tests");
  EXPECT_EQ(report.refused.count("z"), 0);
}

TEST(Hessian, OfAllOperatorsByTheirExamples) {
  GradientCheckOptions options = with_hessian();
  options.where_possible = true;
  for (const std::string& type : op_types()) {
    if (op_spec(type).doc.starts_with("Of tests")) continue;
    for (const OpExample& example : op_spec(type).examples) {
      const GradientReport report = check_example(op_spec(type), example, options);
      EXPECT_EQ(report.str(), "") << type;
      const bool has_one = type == "Recurrent" || type == "SyncBatchNorm" || type == "SyncSpatialBN";
      const bool expected = !report.rows.empty() && !has_one;
      EXPECT_EQ(hessian_rows(report).size(), expected ? 4 : 0) << type;
      EXPECT_EQ(report.refused.empty(), !has_one || report.rows.empty()) << type;
    }
  }
}

}  // namespace
}  // namespace stepnet::testing::hessian_test
