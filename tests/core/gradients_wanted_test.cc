// Only what is wanted is computed: operators, outputs of fused gradients, and matrix products are counted.
#include <gtest/gtest.h>

#include "stepnet/matmul.h"
#include "stepnet/net.h"
#include "tests/core/gradient_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::gradients_wanted_test {
namespace {

constexpr int kLayers = 3;

Lines layers() {
  Lines lines;
  for (int i = 0; i < kLayers; ++i)
    lines.push_back(fmt::format("h{} = FC({}, w{}, b{})", i, i == 0 ? "x" : fmt::format("h{}", i - 1), i, i));
  lines.push_back(fmt::format("loss = SumElements(h{})", kLayers - 1));
  return lines;
}

class Layers : public ::testing::Test {
 protected:
  Layers() {
    workspace_.tensor("x") = normal<double>(Shape{4, 5}, 1);
    for (int i = 0; i < kLayers; ++i) {
      workspace_.tensor(fmt::format("w{}", i)) = normal<double>(Shape{5, 5}, 10 + i);
      workspace_.tensor(fmt::format("b{}", i)) = normal<double>(Shape{5}, 20 + i);
    }
  }
  ~Layers() override { count_matmuls(false); }

  // Matrix products of the backward pass alone.
  int64_t products(const std::set<std::string>& wanted) {
    backward_ = differentiate(layers(), {{"loss", ""}}, wanted);
    Net net(backward_.net, workspace_);
    RunContext run;
    count_matmuls(true);
    const int64_t before = matmul_counters().calls;
    net.run(run);
    return matmul_counters().calls - before - kLayers;
  }
  Tensor gradient(const std::string& blob) const { return workspace_.fetch(backward_.map.at(blob)).clone(); }

  Workspace workspace_;
  Backward backward_;
};

TEST_F(Layers, EverythingIsTwoProductsALayer) { EXPECT_EQ(products({}), 2 * kLayers); }

TEST_F(Layers, WeightsOnlyNeedNoGradientOfTheInput) {
  EXPECT_EQ(products({"w0", "w1", "w2", "b0", "b1", "b2"}), 2 * kLayers - 1);
  EXPECT_EQ(backward_.lines.back(), "w0_grad, b0_grad = FCGradient(x, w0, h0_grad)");
}

TEST_F(Layers, TheInputNeedsNoGradientOfWeights) {
  EXPECT_EQ(products({"x"}), kLayers);
  EXPECT_EQ(backward_.lines.back(), "-, -, x_grad = FCGradient(x, w0, h0_grad)");
}

TEST_F(Layers, OneWeightInTheMiddle) {
  EXPECT_EQ(products({"w1"}), 2);
  EXPECT_EQ(backward_.lines.back(), "w1_grad = FCGradient(h0, w1, h1_grad)");
  EXPECT_EQ(backward_.map.count("h1"), 1u);
  EXPECT_EQ(backward_.map.count("h0"), 0u);
}

TEST_F(Layers, ABiasNeedsNoProductOfItsOwn) {
  EXPECT_EQ(products({"b2"}), 0);
  EXPECT_EQ(backward_.lines.back(), "-, b2_grad = FCGradient(h1, w2, h2_grad)");
  EXPECT_EQ(products({"b0"}), kLayers - 1);
}

TEST_F(Layers, UnwantedOutputsDoNotChangeTheOthers) {
  products({});
  std::map<std::string, Tensor> whole;
  for (const std::string name : {"x", "w0", "w1", "w2", "b0", "b1", "b2"}) whole[name] = gradient(name);
  for (const auto& [name, value] : whole) {
    products({name});
    EXPECT_EQ(compare(gradient(name), value, 1e-14), "") << name;
  }
}

// What only the unwanted gradients read is not kept: the weight's gradient reads the layer's input, and no weights.
TEST_F(Layers, KeptFollowsWhatIsWanted) {
  EXPECT_EQ(differentiate(layers(), {{"loss", ""}}, {"w2"}).result.kept, (std::set<std::string>{"h1"}));
  EXPECT_EQ(differentiate(layers(), {{"loss", ""}}, {"x"}).result.kept, (std::set<std::string>{"w0", "w1", "w2"}));
  EXPECT_EQ(differentiate(layers(), {{"loss", ""}}, {"b0"}).result.kept, (std::set<std::string>{"w1", "w2"}));
}

TEST(Wanted, StopEndsWhereItIsTold) {
  NetDef net = net_of_lines({"h = Direct(x)", "y = Direct(h, mask)"});
  const GradientResult result =
      add_gradient_operators(net, {.targets = {{"y", "y_grad"}}, .wanted = {}, .stop = {"mask"}});
  EXPECT_EQ(lines_of(net, result.first_gradient_op),
            (Lines{"h_grad, - = DirectGradient(y_grad)", "x_grad = DirectGradient(h_grad)"}));
}

TEST(Wanted, AnUnknownTargetNamesTheNearest) {
  EXPECT_EQ(error_of([] {
              differentiate(Lines{"loss = Direct(x)"}, {{"los", ""}});
            }),
            "there is no blob \"los\" in net \"lines\" to differentiate. Did you mean \"loss\"?");
}

TEST(Wanted, ATargetThatDependsOnNothingWanted) {
  EXPECT_EQ(error_of([] {
              differentiate(Lines{"y = Direct(x)", "z = Direct(w)"}, {{"y", ""}}, {"w"});
            }),
            "y of net \"lines\" depends on none of the blobs whose gradients are wanted: w");
}

TEST(Wanted, WhereDerivativesEnd) {
  const std::string begin = "y of net \"lines\" depends on none of the blobs whose gradients are wanted: x; ";
  EXPECT_EQ(error_of([] {
              differentiate(Lines{"a = Tanh(x)", "b = StopGradient(a)", "y = Sigmoid(b)"}, {{"y", ""}}, {"x"});
            }),
            begin +
                "\"y\" depends on \"x\" by operators 0 (Tanh), 1 (StopGradient), 2 (Sigmoid), but operator 1 "
                "(StopGradient) stops gradients");
  EXPECT_EQ(error_of([] {
              differentiate(Lines{"i = ArgMax(x)", "f = Cast(i) to=1 from_type=2", "y = Tanh(f)"}, {{"y", ""}}, {"x"});
            }),
            begin +
                "\"y\" depends on \"x\" by operators 0 (ArgMax), 1 (Cast), 2 (Tanh), but operator 1 (Cast) has no "
                "derivative by \"i\"");
}

TEST(Wanted, AnOperatorWithoutDerivativeOnTheWay) {
  EXPECT_EQ(error_of([] {
              differentiate(Lines{"h = Underived(x)", "y = Direct(h)"}, {{"y", "y_grad"}}, {"x"});
            }),
            "Underived has no gradient with respect to its input \"x\"\n"
            "  in  operator 0 of net \"lines\"\n"
            "  op  h = Underived(x)\n"
            "  fix put a StopGradient before it, or leave that blob out of what is wanted");
  EXPECT_EQ(error_of([] {
              differentiate(Lines{"y = Refused(x)"}, {{"y", "y_grad"}}, {"x"});
            }),
            "Refused has no gradient with respect to its input \"x\": it is made for tests\n"
            "  in  operator 0 of net \"lines\"\n"
            "  op  y = Refused(x)\n"
            "  fix put a StopGradient before it, or leave that blob out of what is wanted");
}

// It stands beside the way, not on it.
TEST(Wanted, AnOperatorWithoutDerivativeElsewhere) {
  EXPECT_EQ(differentiate(Lines{"h = Underived(x)", "y = Direct(h, w)"}, {{"y", "y_grad"}}, {"w"}).lines,
            (Lines{"-, w_grad = DirectGradient(y_grad)"}));
}

}  // namespace
}  // namespace stepnet::testing::gradients_wanted_test
