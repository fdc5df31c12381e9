// The gradient pass and names of one storage: what an Alias shares may be overwritten in place unless a formula that
// runs reads it, and the gradient of what is read afterwards under another name goes where the value came from.
#include <gtest/gtest.h>

#include "tests/core/errors.h"
#include "tests/core/gradient_testing.h"
#include "tests/recurrent/full_form.h"

namespace stepnet::testing::gradients_alias_test {
namespace {

Feeds feeds() { return {{"x", normal<double>({2, 3}, 1)}, {"w", normal<double>({2, 3}, 2)}}; }

// Gradients against differences. Targets in place would change what a second run of the net is fed, so x is copied.
std::string check(Lines lines, const std::string& target = "y") {
  lines.insert(lines.begin(), "u = Copy(x)");
  NetDef net = net_of_lines(lines);
  for (const auto& feed : feeds()) net.add_external_input(feed.first);
  return check_differences(net, feeds(), {{target, normal<double>({2, 3}, 3)}});
}

std::string error(const Lines& lines) {
  NetDef net = net_of_lines(lines);
  for (const auto& feed : feeds()) net.add_external_input(feed.first);
  return error_of([&] { differentiate(net, {{"y", "given"}}, {"x", "w"}); });
}

TEST(GradientsAlias, PassThrough) {
  EXPECT_EQ(check({"k = Alias(u)", "y = Mul(k, w)"}), "");
  EXPECT_EQ(check({"k = Alias(u)", "l = Alias(k)", "s = Mul(k, l)", "y = Mul(s, u)"}), "");
}

// Sum and Negative read no values back, and Relu's derivative reads its output.
TEST(GradientsAlias, OverwrittenWhereNobodyReads) {
  EXPECT_EQ(check({"k = Alias(u)", "k = Relu(k)", "y = Sum(k, w)"}), "");
  EXPECT_EQ(check({"s = Sum(u, w)", "k = Alias(s)", "k = Tanh(k)", "y = Negative(k)"}), "");
  EXPECT_EQ(check({"k = Alias(u)", "u = Sigmoid(u)", "y = Sum(u, w)"}), "");
}

TEST(GradientsAlias, TheOtherNameHoldsTheNewValue) {
  EXPECT_EQ(check({"k = Alias(u)", "k = Tanh(k)", "y = Mul(u, w)"}), "");
  EXPECT_EQ(check({"k = Alias(u)", "k = Tanh(k)", "y = Mul(u, k)"}), "");
  EXPECT_EQ(check({"k = Alias(u)", "u = Negative(u)", "k = Sigmoid(k)", "y = Mul(u, w)"}), "");
  EXPECT_EQ(check({"k = Alias(u)", "l = Alias(u)", "l = Tanh(l)", "a = Mul(u, k)", "y = Mul(a, l)"}), "");
  EXPECT_EQ(check({"k = Alias(u)", "k = Negative(k)", "u = Sigmoid(u)", "y = Mul(w, k)"}), "");
}

// The total may lie where any of its terms was, under the name of the term or an alias of it.
TEST(GradientsAlias, SumsInPlaceOfAnyTerm) {
  EXPECT_EQ(check({"v = Negative(u)", "v = Sum(v, v)", "y = Mul(v, w)"}), "");
  EXPECT_EQ(check({"v = Negative(u)", "v = Sum(w, v)", "y = Mul(v, w)"}), "");
  EXPECT_EQ(check({"v = Negative(u)", "s = Sigmoid(w)", "v = Sum(s, v, s, v)", "v = Sum(v, u, v)", "y = Mul(v, v)"}),
            "");
  EXPECT_EQ(check({"v = Copy(u)", "k = Alias(v)", "v = Sum(w, k)", "y = Mul(k, w)"}), "");
}

// The wanted gradients of a net after `runs` runs in one workspace; the given one is fed once.
std::map<std::string, Tensor> run_gradients(const Lines& lines, const std::set<std::string>& wanted, int runs,
                                            Workspace& w) {
  NetDef net = net_of_lines(lines);
  for (const char* name : {"x", "w"}) net.add_external_input(name);
  const GradientResult result =
      add_gradient_operators(net, {.targets = {{"y", "given"}}, .wanted = wanted, .stop = {}});
  net.add_external_input("given");
  for (auto& [name, value] : feeds()) w.tensor(name) = value;
  w.tensor("given") = normal<double>({2, 3}, 3);
  RunContext run;
  Net bound(net, w);
  for (int i = 0; i < runs; ++i) bound.run(run);
  std::map<std::string, Tensor> gradients;
  for (const std::string& blob : wanted) gradients[blob] = w.fetch(result.gradients.at(blob).dense);
  return gradients;
}

// An optimizer writes gradients in place: of two that are equal, each is to have its own bytes.
TEST(GradientsAlias, ResultsShareNoBytes) {
  const std::vector<Lines> nets = {{"y = Add(x, w)"},
                                   {"s = Add(x, w)", "y = Negative(s)"},
                                   {"a = Add(x, w)", "b = Add(a, w)", "y = Mul(b, x)"},
                                   {"a = Tanh(x)", "b = Add(a, w)", "y = Add(b, w)"}};
  for (const Lines& lines : nets) {
    Workspace workspace;
    std::vector<Tensor> all = {};
    for (const auto& [name, value] : run_gradients(lines, {"x", "w"}, 1, workspace)) all.push_back(value);
    all.push_back(workspace.fetch("given"));
    for (size_t i = 0; i < all.size(); ++i)
      for (size_t j = 0; j < i; ++j) EXPECT_FALSE(all[i].shares_storage(all[j])) << lines[0] << i << j;
    EXPECT_EQ(check(lines), "") << lines[0];
  }
}

// Rows that a table gets are written in place, too.
TEST(GradientsAlias, RowsShareNoBytes) {
  NetDef net = net_of_lines({"e = Gather(t, i)", "y = Add(e, b)"});
  for (const char* name : {"t", "i", "b"}) net.add_external_input(name);
  const GradientResult result = add_gradient_operators(net, {.targets = {{"y", ""}}, .wanted = {"t", "b"}, .stop = {}});
  Workspace w;
  w.tensor("t") = normal<double>({4, 3}, 1);
  w.tensor("i") = Tensor::of<int64_t>({2}, {3, 1});
  w.tensor("b") = normal<double>({2, 3}, 2);
  RunContext run;
  run_net_once(net, w, run);
  const Tensor &rows = w.fetch(result.gradients.at("t").values), &b = w.fetch(result.gradients.at("b").dense);
  EXPECT_FALSE(rows.shares_storage(b));
  EXPECT_EQ(compare(rows, b, 0), "");
}

// What the caller gives stays as it is, though gradients may show its bytes.
TEST(GradientsAlias, GivenGradientsAreNotWritten) {
  const Lines lines = {"t = Negative(x)", "t = Sigmoid(t)", "y = Add(t, w)"};
  Workspace once, thrice;
  const auto first = run_gradients(lines, {"x"}, 1, once), third = run_gradients(lines, {"x"}, 3, thrice);
  EXPECT_EQ(compare(third.at("x"), first.at("x"), 0), "");
  EXPECT_EQ(compare(thrice.fetch("given"), normal<double>({2, 3}, 3), 0), "");
}

// Where MatchShape has shown what a caller fed, a later run of other shapes does not write there.
TEST(GradientsAlias, WhatWasFedIsNotWritten) {
  NetDef net = net_of_lines({"k = MatchShape(u, w)"});
  for (const char* name : {"u", "w"}) net.add_external_input(name);
  for (const bool plan_memory : {false, true}) {
    Workspace w;
    RunContext run;
    Net bound(net, w, {.plan_memory = plan_memory, .keep = {"k"}});
    const Tensor mine = normal<double>({3}, 1);
    w.tensor("u") = mine;
    w.tensor("w") = normal<double>({3}, 2);
    bound.run(run);
    EXPECT_TRUE(w.fetch("k").shares_storage(mine));
    w.tensor("u") = normal<double>({2, 3}, 3);
    bound.run(run);
    EXPECT_EQ(compare(mine, normal<double>({3}, 1), 0), "");
    EXPECT_EQ(w.fetch("k").shape(), Shape{3});
  }
}

// Whether MatchShape's output is another name of its input depends on shapes, so nobody knows what the one holds after
// the other was overwritten.
TEST(GradientsAlias, WhatMayBeAnotherNameIsNotOverwritten) {
  EXPECT_EQ(check({"k = MatchShape(u, w)", "y = Mul(k, w)"}), "");
  EXPECT_EQ(check({"k = MatchShape(u, w)", "k = Tanh(k)", "y = Mul(k, w)"}), "");
  EXPECT_EQ(check({"k = MatchShape(u, w)", "u = Negative(u)", "y = Mul(u, w)"}), "");
  expect_contains(error({"u = Negative(x)", "k = MatchShape(u, w)", "u = Negative(u)", "y = Mul(k, w)"}),
                  "Mul: it reads \"k\", whose storage operator 2 (Negative) has overwritten under another name");
  expect_contains(error({"u = Negative(x)", "k = MatchShape(u, w)", "k = Negative(k)", "y = Mul(u, w)"}),
                  "Mul: it reads \"u\", whose storage operator 2 (Negative) has overwritten under another name");
  expect_contains(error({"u = ZerosLike(x)", "k = MatchShape(u, x)", "k = Add(k, x)", "y = Mul(u, x)"}),
                  "Mul: it reads \"u\", whose storage operator 2 (Add) has overwritten under another name");
  expect_contains(error({"u = ZerosLike(x)", "k = MatchShape(u, x)", "k = Add(k, x)", "y = Alias(u)"}),
                  "Alias: it reads \"u\", whose storage operator 2 (Add) has overwritten under another name");
  expect_contains(error({"u = Negative(x)", "y = MatchShape(u, w)", "u = Negative(u)"}),
                  "\"y\" is to be differentiated, but its storage was overwritten under another name");
}

// The last value is found under either name.
TEST(GradientsAlias, TargetsUnderEitherName) {
  EXPECT_EQ(check({"s = Mul(u, w)", "k = Alias(s)", "k = Tanh(k)"}, "k"), "");
  EXPECT_EQ(check({"s = Mul(u, w)", "k = Alias(s)", "k = Tanh(k)"}, "s"), "");
}

// Its shape function says so, but the pass asks the schema whether the value in place has the shape of the one before.
TEST(GradientsAlias, WeightedSumsUnderEitherName) {
  NetDef net =
      net_of_lines({"u = Copy(x)", "a = ConstantFill()", "s = Mul(u, w)", "k = Alias(s)", "k = WeightedSum(k, a)"});
  *net.mutable_op(1)->add_arg() = make_arg("shape", std::vector<int64_t>{1});
  *net.mutable_op(1)->add_arg() = make_arg("value", 0.5F);
  for (const auto& feed : feeds()) net.add_external_input(feed.first);
  for (const char* target : {"s", "k"})
    EXPECT_EQ(check_differences(net, feeds(), {{target, normal<double>({2, 3}, 3)}}), "") << target;
}

TEST(GradientsAlias, OfWhatIsWantedUnderTheOtherName) {
  const Backward b = differentiate({"s = Sum(x, w)", "k = Alias(s)", "k = Tanh(k)", "y = Negative(s)"},
                                   {{"y", "given"}}, {"x", "s", "k"});
  EXPECT_EQ(b.map.at("s"), b.map.at("k"));
  EXPECT_EQ(b.lines, (Lines{"k_grad = Negative(given)", "_k_grad_autosplit_0 = TanhGradient(k, k_grad)"}));
}

TEST(GradientsAlias, OverwrittenWhereAFormulaReads) {
  EXPECT_EQ(error({"s = Mul(x, w)", "k = Alias(x)", "k = Relu(k)", "y = Sum(s, k)"}),
            "Mul: the gradient reads version 0 of \"x\", but operator 2 (Relu) has made it version 1 by writing \"k\", "
            "which is an alias\n"
            "  in  operator 0 of net \"lines\"\n"
            "  op  s = Mul(x, w)\n"
            "  fix let Relu write to another blob than \"k\"");
  EXPECT_EQ(error({"k = Alias(x)", "s = Mul(k, w)", "x = Tanh(x)", "y = Sum(s, x)"}),
            "Mul: the gradient reads version 1 of \"k\", but operator 2 (Tanh) has made it version 2 by writing \"x\", "
            "which is an alias\n"
            "  in  operator 1 of net \"lines\"\n"
            "  op  s = Mul(k, w)\n"
            "  fix let Tanh write to another blob than \"x\"");
}

// The other name shows the new values in its own shape, which has no gradient of the new one's.
TEST(GradientsAlias, GivenAnotherShapeInPlaceUnderTheOtherName) {
  EXPECT_EQ(error({"s = Sum(x, w)", "k = Alias(s)", "k = ExpandDims(k) dims=0/1", "y = Mul(s, w)"}),
            "Mul: it reads \"s\", whose storage operator 2 (ExpandDims) has overwritten under another name, so its "
            "gradient is not known\n"
            "  in  operator 3 of net \"lines\"\n"
            "  op  y = Mul(s, w)\n"
            "  fix let ExpandDims write to a blob that is no alias of \"s\"");
}

// A formula may read a shape alone, which a blob has as long as it is written in place of itself.
TEST(GradientsAlias, GivenAnotherShapeWhereAFormulaReadsIt) {
  EXPECT_EQ(error({"b = SumElements(x)", "s = Add(w, b) broadcast=1", "b = Copy(w)", "y = Mul(s, b)"}),
            "Add: the gradient reads the shape of version 1 of \"b\", but operator 2 (Copy) may have given it another\n"
            "  in  operator 1 of net \"lines\"\n"
            "  op  s = Add(w, b)\n"
            "  fix let Copy write to another blob than \"b\"");
  EXPECT_EQ(check({"b = SumElements(u)", "s = Add(w, b) broadcast=1", "b = Negative(b)", "y = Mul(s, w)"}), "");
}

// The gradient of x is read from w alone, which nobody overwrites.
TEST(GradientsAlias, OverwrittenWhereAFormulaThatDoesNotRunWouldRead) {
  EXPECT_EQ(
      differentiate(net_of_lines({"s = Mul(x, w) equal_shapes=1", "k = Alias(x)", "k = Relu(k)", "y = Sum(s, w)"}),
                    {{"y", "given"}}, {"x"})
          .lines,
      (Lines{"x_grad = Mul(given, w)"}));
}

// A name that is written anew leaves the storage to the others, which are what they were.
TEST(GradientsAlias, WrittenAnewUnderTheOtherName) {
  EXPECT_EQ(check({"k = Alias(u)", "k = Tanh(w)", "y = Mul(u, k)"}), "");
  EXPECT_EQ(check({"s = Mul(u, w)", "k = Alias(s)", "s = Tanh(w)", "y = Mul(k, s)"}), "");
  EXPECT_EQ(check({"s = Mul(u, w)", "k = Alias(s)", "s = Tanh(w)"}, "k"), "");
  EXPECT_EQ(check({"s = Mul(u, w)", "k = Alias(s)", "s = MatMul(k, w) trans_b=1", "v = SumElements(s)",
                   "y = Mul(k, v) broadcast=1"}),
            "");
}

// A name that becomes the alias of another blob touches neither storage.
TEST(GradientsAlias, OfOneBlobAndThenOfAnother) {
  EXPECT_EQ(check({"k = Alias(u)", "s = Sum(k, w)", "v = Mul(s, w)", "k = Alias(v)", "y = Mul(k, u)"}), "");
}

// In a step net the storage is the other's still.
TEST(GradientsAlias, WrittenAnewInAStepNet) {
  const Cell cell = {{"s = Sum(x, h_prev)", "k = Alias(s)", "k = Tanh(x)", "h = Mul(s, k)"},
                     {{"h_prev", "h", "h0", "h_all", "h_last"}}};
  const Feeds data = {{"X", normal<double>({4, 2, 3}, 1)}, {"h0", normal<double>({2, 3}, 2)}};
  const std::string text = error_of([&] { expanded_net(cell, data); });
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "Mul: it reads \"s\", whose storage operator 2 (Tanh) has overwritten under another name, so its gradient "
            "is not known");
}

// The same in step nets, where a blob's storage is that of its timestep.
TEST(GradientsAlias, InStepNets) {
  const CellState h = {"h_prev", "h", "h0", "h_all", "h_last"};
  const Feeds data = {{"X", normal<double>({4, 2, 3}, 1)}, {"h0", normal<double>({2, 3}, 2)}};
  const Lines cells[] = {
      {"s = Sum(x, h_prev)", "k = Alias(s)", "k = Tanh(k)", "h = Mul(s, x)"},
      {"s = Mul(x, h_prev)", "k = Alias(s)", "s = Sigmoid(s)", "h = Mul(k, x)"},
      {"k = Alias(x)", "s = Sum(k, h_prev)", "v = Tanh(s)", "k = Alias(v)", "h = Mul(k, x)"},
      {"k = Alias(x)", "s = Tanh(k)", "v = Mul(s, h_prev)", "k = Alias(v)", "a = Mul(k, x)", "h = Mul(a, s)"},
      {"k = Alias(x)", "s = Tanh(k)", "k = Alias(h_prev)", "h = Mul(k, s)"}};
  for (const Lines& step : cells) EXPECT_EQ(check_against_unrolled({step, {h}}, data), "") << step[1];
}

TEST(GradientsAlias, InAStepNetWhereAFormulaReads) {
  const Cell cell = {{"s = Sum(x, h_prev)", "q = Mul(s, x)", "k = Alias(s)", "k = Relu(k)", "h = Sum(q, k)"},
                     {{"h_prev", "h", "h0", "h_all", "h_last"}}};
  const Feeds data = {{"X", normal<double>({4, 2, 3}, 1)}, {"h0", normal<double>({2, 3}, 2)}};
  const std::string text = error_of([&] { expanded_net(cell, data); });
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "Mul: the gradient reads version 1 of \"s\", but operator 3 (Relu) has made it version 2 by writing \"k\", "
            "which is an alias");
}

}  // namespace
}  // namespace stepnet::testing::gradients_alias_test
