// What each pass makes of a step net, by the text that people see: the step nets are small enough to be read.
#include "recurrent/step/passes.h"

#include <gtest/gtest.h>

#include "core/operator/observer.h"
#include "recurrent/form/passes.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing::passes_test {
namespace {

// The lines of operators, before and after each pass.
class Texts : public NetObserver {
 public:
  void before(const BoundOp&) override {}
  void after(const BoundOp&) override {}
  void compiled(std::string_view, std::string_view pass, const std::function<std::string()>& text) override {
    if (pass.empty()) texts_.emplace_back();
    texts_.back()[std::string(pass)] = operators(text());
  }
  // Of the n-th step net that was compiled.
  std::string of(size_t n, const std::string& pass) const {
    return n < texts_.size() && texts_[n].count(pass) > 0 ? texts_[n].at(pass) : "no such text";
  }

 private:
  static std::string operators(const std::string& text) {
    std::string result;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin) + 1;
      const std::string line = text.substr(begin, end - begin);
      if (line.starts_with("  before") || line.starts_with("  step ") || line.starts_with("  after"))
        result += line.substr(0, line.find(';')) + (line.find(';') < line.size() ? "\n" : "");
      begin = end;
    }
    return result;
  }

  std::vector<std::map<std::string, std::string>> texts_;
};

Texts run_forward(const Cell& cell, const Feeds& feeds) {
  const NetDef net = expanded_net(cell, feeds);
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  Texts texts;
  RunContext context;
  context.observer = &texts;
  run_net_once(net, workspace, context);
  return texts;
}

Texts run(const std::vector<std::string>& disabled) {
  Cell cell = {.step = {"xw = FC(x, W, b) axis=2", "hu = FC(h_prev, U, c) axis=2", "s = Sum(xw, hu)", "t = Tanh(s)",
                        "h = Sigmoid(t)"},
               .states = {{"h_prev", "h", "h0", "h_all", "h_last"}}};
  cell.disabled_passes = disabled;
  const Feeds feeds = {{"X", normal<float>({4, 2, 9})}, {"h0", normal<float>({2, 9})}, {"W", normal<float>({9, 9})},
                       {"U", normal<float>({9, 9})},    {"b", normal<float>({9})},     {"c", normal<float>({9})}};
  return run_forward(cell, feeds);
}

// Of the forward and the backward step net.
Texts run_both(const std::string& gates) {
  const Cell cell = {.step = {"xw = FC(x, W, b) axis=2", "hu = FC(h_prev, U, c) axis=2", gates, "h = Tanh(s)"},
                     .states = {{"h_prev", "h", "h0", "h_all", "h_last"}}};
  const Feeds feeds = {{"X", normal<float>({4, 2, 9})}, {"h0", normal<float>({2, 9})}, {"W", normal<float>({9, 9})},
                       {"U", normal<float>({9, 9})},    {"b", normal<float>({9})},     {"c", normal<float>({9})}};
  NetDef net = expanded_net(cell, feeds);
  add_gradient_operators(net, {.targets = {{"h_all", ""}}, .wanted = {"X", "h0", "W", "U", "b", "c"}, .stop = {}});
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  Texts texts;
  RunContext context;
  context.observer = &texts;
  run_net_once(net, workspace, context);
  return texts;
}

// Where nothing repeats, Add and Sub have no more operators than Sum.
TEST(StepPasses, NoOperatorGivesAGradientTheShapeThatItHas) {
  const Texts sum = run_both("s = Sum(xw, hu)");
  for (const char* pass : {"", "defer"}) {
    EXPECT_NE(sum.of(1, pass), "no such text");
    EXPECT_EQ(run_both("s = Add(xw, hu)").of(1, pass), sum.of(1, pass));
  }
  const std::string linked = run_both("s = Add(x, h_prev)").of(1, ""),
                    of_sum = run_both("s = Sum(x, h_prev)").of(1, "");
  EXPECT_EQ(std::ranges::count(linked, '\n'), std::ranges::count(of_sum, '\n')) << linked;
  const std::string repeated = run_both("s = Add(xw, c)").of(1, "");
  EXPECT_NE(repeated.find("MatchShape(s_grad, c)"), std::string::npos) << repeated;
  EXPECT_EQ(repeated.find("MatchShape(s_grad, xw)"), std::string::npos) << repeated;
}

TEST(StepPasses, HoistWhatDependsOnTheSequenceAlone) {
  const Texts texts = run({"fold", "fuse"});
  EXPECT_EQ(texts.of(0, ""),
            "  step    xw = FC(x, W, b)\n"
            "  step    hu = FC(h_prev, U, c)\n"
            "  step    s = Sum(xw, hu)\n"
            "  step    t = Tanh(s)\n"
            "  step    h = Sigmoid(t)\n");
  EXPECT_EQ(texts.of(0, "hoist"),
            "  before  xw = FC(x, W, b)\n"
            "  step    hu = FC(h_prev, U, c)\n"
            "  step    s = Sum(xw, hu)\n"
            "  step    t = Tanh(s)\n"
            "  step    h = Sigmoid(t)\n");
}

TEST(StepPasses, FoldSumsOfProducts) {
  EXPECT_EQ(run({"fuse"}).of(0, "fold"),
            "  before  s = FC(x, W, b)\n"
            "  step    s += FC(h_prev, U, c)\n"
            "  step    t = Tanh(s)\n"
            "  step    h = Sigmoid(t)\n");
}

// Both results have a place: the gradient reads them.
TEST(StepPasses, FuseElementwiseOperators) {
  EXPECT_EQ(run({}).of(0, "fuse"),
            "  before  s = FC(x, W, b)\n"
            "  step    s += FC(h_prev, U, c)\n"
            "  step    h, t = fused Tanh+Sigmoid(s)\n");
}

// A number for each sample, from outside or of the timestep, a vector for all samples, and one number.
TEST(StepPasses, FuseOperandsThatRepeat) {
  const Cell cell = {.step = {"gate = FC(h_prev, U, c) axis=2", "e = Exp(x)", "m = Mul(e, gate)", "n = Add(m, mask)",
                              "d = Div(n, row)", "h = Sub(d, one)"},
                     .states = {{"h_prev", "h", "h0", "h_all", "h_last"}}};
  const Feeds feeds = {{"X", normal<float>({4, 2, 9})}, {"h0", normal<float>({2, 9})},   {"U", normal<float>({1, 9})},
                       {"c", normal<float>({1})},       {"mask", normal<float>({2, 1})}, {"row", normal<float>({9})},
                       {"one", normal<float>({1})}};
  EXPECT_EQ(run_forward(cell, feeds).of(0, "fuse"),
            "  step    gate = FC(h_prev, U, c)\n"
            "  before  e = Exp(x)\n"
            "  step    h, d = fused Mul+Add+Div+Sub(e, gate, mask, row, one)\n");
}

// Of lines with one number for "dims", which is a list.
NetDef net_with_dims(const Lines& lines) {
  NetDef net = net_of_lines(lines);
  for (OperatorDef& op : *net.mutable_op())
    for (Argument& arg : *op.mutable_arg())
      if (arg.name() == "dims") arg = make_arg("dims", std::vector<int64_t>{arg.i()});
  return net;
}

// What reads a sample's matrix, what is computed of that, and what changes the matrix are one loop. The product with a
// column that only the timestep needs is made there, and not for the block.
TEST(StepPasses, FuseMatricesWithWhatReadsThem) {
  const Cell cell = {.step = {},
                     .states = {{"S_prev", "S", "S0", "S_all", "S_last"}},
                     .outputs = {{"y", "y_all"}},
                     .step_net = net_with_dims(
                         {"key = FC(x, K, c) axis=2", "k = ExpandDims(key) dims=3", "row = ExpandDims(key) dims=2",
                          "r = BatchMatMul(S_prev, k)", "was = Squeeze(r) dims=3", "error = Sub(was, x)",
                          "step = ExpandDims(error) dims=3", "change = BatchMatMul(step, row)",
                          "column = ExpandDims(x) dims=3", "more = BatchMatMul(column, row)",
                          "less = Sub(S_prev, change)", "S = Sum(less, more)", "y = BatchMatMul(S, k)"})};
  const Feeds feeds = {{"X", normal<float>({4, 2, 9})},
                       {"S0", normal<float>({1, 2, 9, 8})},
                       {"K", normal<float>({8, 9})},
                       {"c", normal<float>({8})}};
  EXPECT_EQ(run_forward(cell, feeds).of(0, "fuse"),
            "  before  key = FC(x, K, c)\n"
            "  before  k = ExpandDims(key)\n"
            "  before  row = ExpandDims(key)\n"
            "  before  column = ExpandDims(x)\n"
            "  step    S, step, y = fused BatchMatMul+Squeeze+Sub+ExpandDims+BatchMatMul+BatchMatMul+Sub+Sum+"
            "BatchMatMul(S_prev, k, x, row, column)\n");
}

// What the rows of each matrix add up to, with a weight for each or without, and all its elements; of a column, too.
TEST(StepPasses, FuseSumsOverTheRowsOfMatrices) {
  Cell cell = {
      .step = {},
      .states = {{"S_prev", "S", "S0", "S_all", "S_last"}},
      .outputs = {{"r", "r_all"}, {"p", "p_all"}, {"t", "t_all"}, {"u", "u_all"}, {"w", "w_all"}},
      .step_net = net_with_dims({"column = ExpandDims(x) dims=3", "kept = Mul(S_prev, decay)",
                                 "r = BatchMatMul(kept, column) trans_a=1", "p = BatchMatMul(column, S_prev) trans_a=1",
                                 "t = MatchShape(kept, row)", "u = MatchShape(kept, decay)", "n = BatchMatMul(kept, k)",
                                 "q = Squeeze(n) dims=3", "w = MatchShape(q, one)", "S = Tanh(kept)"})};
  cell.disabled_passes = {"sink"};  // which takes what follows the column out of the timestep
  for (const int64_t rows : {2, 9, 12}) {
    for (const int64_t columns : {8, 20, 40, 128, 250}) {
      const Feeds feeds = {
          {"X", normal<double>({4, 2, rows}, 1)},       {"S0", normal<double>({1, 2, rows, columns}, 2)},
          {"decay", normal<double>({1, 2, 1, 1}, 3)},   {"row", normal<double>({1, 2, 1, columns}, 4)},
          {"k", normal<double>({1, 2, columns, 1}, 5)}, {"one", normal<double>({1, 2, 1}, 6)}};
      EXPECT_EQ(run_forward(cell, feeds).of(0, "fuse"),
                "  before  column = ExpandDims(x)\n"
                "  step    S, kept, q, r, p, t, u, w = fused Mul+BatchMatMul+BatchMatMul+MatchShape+MatchShape+"
                "BatchMatMul+Squeeze+MatchShape+Tanh(S_prev, decay, column, k)\n"
                "  step    u_out = Copy(u)\n");
      EXPECT_EQ(check_against_unrolled(cell, feeds, 1e-9), "") << rows << " " << columns;
    }
  }
}

// A product of matrices that no loop makes or changes has a kernel of its own, and what follows it is a loop.
TEST(StepPasses, FuseBehindAProductOfMatrices) {
  const Cell cell = {.step = {},
                     .states = {{"h_prev", "h", "h0", "h_all", "h_last"}},
                     .step_net = net_with_dims({"k = ExpandDims(h_prev) dims=3", "r = BatchMatMul(M, k)",
                                                "was = Squeeze(r) dims=3", "e = Sub(was, x)", "h = Tanh(e)"})};
  const Feeds feeds = {
      {"X", normal<float>({4, 2, 9})}, {"h0", normal<float>({2, 9})}, {"M", normal<float>({1, 2, 9, 9})}};
  EXPECT_EQ(run_forward(cell, feeds).of(0, "fuse"),
            "  step    k = ExpandDims(h_prev)\n"
            "  step    r = BatchMatMul(M, k)\n"
            "  step    was = Squeeze(r)\n"
            "  step    h = fused Sub+Tanh(was, x)\n");
}

TEST(StepPasses, RunOnlyIfTheyAreNotDisabled) {
  for (const std::string& name : pass_names()) {
    const Texts texts = run({name});
    EXPECT_EQ(texts.of(0, name), "no such text") << name;
    EXPECT_NE(texts.of(0, "place"), "no such text") << name;
  }
}

}  // namespace
}  // namespace stepnet::testing::passes_test
