// Operators with bodies: their derivatives follow from small operators, and read what these read.
#include <gtest/gtest.h>

#include "stepnet/gradient_check.h"
#include "stepnet/operator.h"
#include "tests/core/errors.h"
#include "tests/core/gradient_testing.h"
#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet {
namespace {

// Y = tanh(A) B and Z = A B; whole numbers N are not read.
struct PairArgs {
  std::string mistake;
};

void pair(const PairArgs&, In<double> a, In<double> b, In<int32_t>, Out<double> y, Out<double> z) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (y.data()) y[i] = std::tanh(a[i]) * b[i];
    if (z.data()) z[i] = a[i] * b[i];
  }
}

std::vector<Value> pair_body(Formula& f) {
  const Value a = f.x("A"), b = f.x("B"), tanh = f.op("Tanh", {a});
  Value y = f.op("Mul", {tanh, b});
  if (f.args<PairArgs>().mistake == "value") y = f.op("Add", {y, f.op("Mul", {y, y})});
  return {y, f.op("Mul", {a, b})};
}

REGISTER(planted_pair) {
  return op<PairArgs>("PlantedPair")
      .doc("Of tests: tanh(A) B and A B, with derivatives from the body.")
      .arg("mistake", &PairArgs::mistake, std::string(), "what is wrong with the body")
      .input("A", "any shape")
      .input("B", "like A")
      .input("N", "not read")
      .types({DType::int32})
      .output("Y", "tanh(A) B", like("A"))
      .optional()
      .output("Z", "A B", like("A"))
      .optional()
      .cpu(pair)
      .composed(pair_body);
}

// Chosen rows of a table, times A, which has a derivative of its own that is wrong.
void rows(In<double> table, In<int32_t> at, In<double> a, Out<double> y, Call& call) {
  const int64_t row = call.in(0).dim(1);
  for (size_t i = 0; i < y.size(); ++i) y[i] = table[at[i / row] * row + i % row] * a[i];
}

REGISTER(planted_rows) {
  return op("PlantedRows")
      .doc("Of tests: chosen rows of a table, times A.")
      .input("TABLE", "[R, D]")
      .input("AT", "[N]")
      .types({DType::int32})
      .input("A", "[N, D]")
      .output("Y", "[N, D]", like("A"))
      .cpu(rows)
      .composed([](Formula& f) {
        return std::vector<Value>{f.op("Mul", {f.op("Gather", {f.x("TABLE"), f.x("AT")}), f.x("A")})};
      })
      .derivative("A", [](Formula& f) { return f.op("Negative", {f.dy("Y")}); });
}

// Y = softmax(X) X, whose body has an operator with a body of its own on the way to second derivatives.
void weighed(In<double> x, Out<double> y, Call& call) {
  const int64_t size = call.in(0).dim(1);
  for (int64_t r = 0; r < call.in(0).dim(0); ++r) {
    double sum = 0;
    for (int64_t i = r * size; i < (r + 1) * size; ++i) sum += std::exp(x[i]);
    for (int64_t i = r * size; i < (r + 1) * size; ++i) y[i] = std::exp(x[i]) / sum * x[i];
  }
}

REGISTER(planted_weighed) {
  return op("PlantedWeighed")
      .doc("Of tests: softmax(X) X.")
      .input("X", "[N, D]")
      .output("Y", "like X", like("X"))
      .cpu(weighed)
      .composed([](Formula& f) {
        return std::vector<Value>{f.op("Mul", {f.op("Softmax", {f.x("X")}), f.x("X")})};
      });
}

// Through an operator without derivatives.
void stuck(In<double> x, Out<double> y) { std::copy(x.begin(), x.end(), y.begin()); }

REGISTER(planted_stuck) {
  return op("PlantedStuck")
      .doc("Of tests: a body that cannot be differentiated.")
      .input("X", "any shape")
      .output("Y", "like X", like("X"))
      .cpu(stuck)
      .composed([](Formula& f) {
        const Value x = f.x("X");
        return std::vector<Value>{f.op("ClipTensorByScaling", {x, x}, {make_arg("threshold", 9.0F)})};
      });
}

}  // namespace
}  // namespace stepnet

namespace stepnet::testing::body_test {
namespace {

OperatorDef pair_op(const std::vector<std::string>& outputs, const std::string& mistake = "") {
  return make_op("PlantedPair", {"A", "B", "N"}, outputs, {make_arg("mistake", mistake)});
}

GradientSubject subject_of(const OperatorDef& op, const Feeds& feeds, const std::vector<std::string>& outputs) {
  GradientSubject subject{{}, {feeds.begin(), feeds.end()}, outputs, {}};
  *subject.net.add_op() = op;
  for (const auto& [name, value] : feeds)
    if (value.dtype() == DType::float64) subject.inputs.push_back(name);
  return subject;
}

Feeds pair_feeds() {
  return {{"A", normal<double>({2, 3}, 1)}, {"B", normal<double>({2, 3}, 2)}, {"N", Tensor::of<int32_t>({1}, {7})}};
}

std::string wrong(const GradientSubject& subject, int order) {
  GradientCheckOptions options;
  options.order = order;
  return check_gradients(subject, options).str();
}

TEST(Body, GivesDerivativesOfEveryOrder) {
  EXPECT_EQ(wrong(subject_of(pair_op({"Y", "Z"}), pair_feeds(), {"Y", "Z"}), 3), "");
  EXPECT_EQ(wrong(subject_of(make_op("PlantedWeighed", {"X"}, {"Y"}), {{"X", normal<double>({2, 3})}}, {"Y"}), 3), "");
}

TEST(Body, OfAnOutputWithoutGradientIsLeftOut) {
  for (const char* only : {"Y", "Z"}) {
    EXPECT_EQ(wrong(subject_of(pair_op({"Y", "Z"}), pair_feeds(), {only}), 2), "") << only;
    const bool first = std::string(only) == "Y";
    EXPECT_EQ(wrong(subject_of(pair_op({first ? "Y" : "", first ? "" : "Z"}), pair_feeds(), {only}), 2), "") << only;
  }
}

TEST(Body, ReadsWhatItsDerivativesRead) {
  EXPECT_EQ(gradient_reads(pair_op({"Y", ""}), "A"), "A B");
  EXPECT_EQ(gradient_reads(pair_op({"Y", ""}), "B"), "A");
  EXPECT_EQ(gradient_reads(pair_op({"", "Z"}), "A"), "B");
}

TEST(Body, TakesShapesFromValuesThatAreThere) {
  const OperatorDef def = make_op("SoftmaxGradient", {"Y", "dY"}, {"dX"});
  const OpSpec& spec = op_spec("SoftmaxGradient");
  const GradientProgram program = record_gradient(spec, def, parse_args(spec, def).get(), {true, false}, {true});
  // What only gives a shape is not computed again: no product of Y with the difference.
  int products = 0;
  for (const GradientProgram::Step& step : program.steps) products += step.type == "Mul";
  EXPECT_EQ(products, 4);
}

TEST(Body, OfAnInputWithADerivativeOfItsOwnIsNotUsed) {
  const Feeds feeds = {{"TABLE", normal<double>({4, 2}, 1)},
                       {"AT", Tensor::of<int32_t>({3}, {1, 3, 1})},
                       {"A", normal<double>({3, 2}, 2)}};
  GradientSubject subject = subject_of(make_op("PlantedRows", {"TABLE", "AT", "A"}, {"Y"}), feeds, {"Y"});
  const GradientReport report = check_gradients(subject);
  for (const GradientRow& row : report.rows) EXPECT_EQ(row.right, row.input == "TABLE") << row.input;  // sparse in it
  EXPECT_TRUE(report.broken.empty()) << report.str();
}

TEST(Body, MustBeWhatTheKernelComputes) {
  const GradientReport report = check_gradients(subject_of(pair_op({"Y", "Z"}, "value"), pair_feeds(), {"Y", "Z"}));
  ASSERT_FALSE(report.broken.empty());
  EXPECT_NE(report.str().find("output 0 of PlantedPair is not what it is composed of, at ["), std::string::npos)
      << report.str();
  EXPECT_EQ(report.str().find("output 1"), std::string::npos) << report.str();
}

TEST(Body, WithAStepThatHasNoDerivativeIsAnError) {
  GradientSubject subject = subject_of(make_op("PlantedStuck", {"X"}, {"Y"}), {{"X", normal<double>({1})}}, {"Y"});
  expect_contains(error_of([&] { check_gradients(subject); }),
                  "ClipTensorByScaling has no gradient with respect to its input");
}

}  // namespace
}  // namespace stepnet::testing::body_test
