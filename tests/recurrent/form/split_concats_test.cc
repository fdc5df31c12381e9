// FCs over a Concat in a step net: which become products of the parts, and that these give the same.
#include "recurrent/form/passes.h"

#include <gtest/gtest.h>

#include "tests/recurrent/programs.h"

namespace stepnet::testing::split_concats_test {
namespace {

constexpr int64_t kSteps = 9, kBatch = 50, kIn = 3, kWidth = 4;

const CellState kH = {"h_prev", "h", "h0", "h_all", ""};
const CellState kC = {"c_prev", "c", "c0", "c_all", ""};
const std::string kUnit = "h, c = LSTMUnit(h_prev, c_prev, gates, lengths, timestep)";
const std::string kTanh = "h = Tanh(s)";

Lines lstm(const std::string& parts) {
  return {"cat = Concat(" + parts + ") axis=2", "gates = FC(cat, W, b) axis=2", kUnit};
}

// Columns [first, first + count) of a matrix.
Tensor columns(const Tensor& m, int64_t first, int64_t count) {
  Tensor part = Tensor::empty(DType::float64, {m.dim(0), count});
  for (int64_t i = 0; i < m.dim(0); ++i)
    for (int64_t j = 0; j < count; ++j) part.data<double>()[i * count + j] = m.data<double>()[i * m.dim(1) + first + j];
  return part;
}

Feeds feeds_of(int64_t columns_of_w, int64_t batch = kBatch, int64_t rows_of_w = 4 * kWidth) {
  return {{"X", normal<double>({kSteps, batch, kIn}, 1)},
          {"h0", normal<double>({batch, kWidth}, 2)},
          {"c0", normal<double>({batch, kWidth}, 3)},
          {"W", normal<double>({rows_of_w, columns_of_w}, 4, 0, 0.3)},
          {"b", normal<double>({rows_of_w}, 5)},
          {"lengths", Tensor::of<int32_t>({batch}, std::vector<int32_t>(batch, kSteps))}};
}

struct Order {
  std::string parts;
  int64_t x, h;  // their first columns
};

void PrintTo(const Order& o, std::ostream* out) { *out << o.parts; }

class SplitConcats : public ::testing::TestWithParam<Order> {};

// The cell with two FCs of the same weights.
TEST_P(SplitConcats, IsTheCellOfTwoProducts) {
  const auto& [parts, x, h] = GetParam();
  const Cell joined = {lstm(parts), {kH, kC}};
  const Cell apart = {{"a = FC(x, Wx, b) axis=2", "r = FC(h_prev, Wh, zero) axis=2", "gates = Sum(a, r)", kUnit},
                      {kH, kC}};
  const Feeds feeds = feeds_of(kIn + kWidth, 4);
  Feeds of_two = feeds;
  of_two.emplace_back("Wx", columns(feeds[3].second, x, kIn));
  of_two.emplace_back("Wh", columns(feeds[3].second, h, kWidth));
  of_two.emplace_back("zero", Tensor::zeros(DType::float64, {4 * kWidth}));
  of_two.erase(of_two.begin() + 3);
  const Feeds outside = outside_gradients(joined, feeds);
  CellResults a = run_recurrent(joined, feeds, outside);
  const CellResults b = run_recurrent(apart, of_two, outside);
  const Tensor dw = a.gradients.at("W");
  EXPECT_EQ(compare(columns(dw, x, kIn), b.gradients.at("Wx"), 1e-10), "");
  EXPECT_EQ(compare(columns(dw, h, kWidth), b.gradients.at("Wh"), 1e-10), "");
  for (const char* name : {"X", "h0", "c0", "b"})
    EXPECT_EQ(compare(a.gradients.at(name), b.gradients.at(name), 1e-10), "") << name;
  for (const char* name : {"h_all", "c_all"})
    EXPECT_EQ(compare(a.outputs.at(name), b.outputs.at(name), 1e-10), "") << name;
}

TEST_P(SplitConcats, EqualsTheUnrolledNet) {
  for (const auto& passes : pass_choices())
    for (const bool reverse : {false, true}) {
      Cell cell = {lstm(GetParam().parts), {kH, kC}};
      cell.disabled_passes = passes;
      cell.reverse = reverse;
      EXPECT_EQ(check_against_unrolled(cell, feeds_of(kIn + kWidth)), "") << fmt::format("{}", fmt::join(passes, ","));
    }
}

TEST_P(SplitConcats, WithLengthsAndCentralDifferences) {
  Cell cell = {lstm(GetParam().parts), {kH, kC}};
  Feeds feeds = feeds_of(kIn + kWidth, 3);
  EXPECT_EQ(check_differences(cell, feeds), "");
  feeds.back().second = Tensor::of<int32_t>({3}, {9, 1, 4});
  cell.lengths = "lengths";
  EXPECT_EQ(check_against_unrolled(cell, feeds), "");
}

OperatorCounts counts_of(Cell cell, const Feeds& feeds) {
  cell.disabled_passes.emplace_back("fuse");  // leaves hardly any operators to count
  Workspace workspace;
  return operator_counts(run_programs(workspace, cell, feeds, "h_all", {"X", "h0", "W", "b"}));
}

// As many operators as the cell of two FCs has: the product with the sequence runs once per block, all gradients but
// the state's are deferred.
TEST_P(SplitConcats, TheSequenceIsMultipliedInBlocks) {
  const Feeds feeds = feeds_of(kIn + kWidth);
  Feeds of_two = feeds;
  of_two.emplace_back("U", normal<double>({4 * kWidth, kWidth}, 8));
  of_two[3].second = normal<double>({4 * kWidth, kIn}, 9);
  const Lines two = {"a = FC(x, W, b) axis=2", "r = FC(h_prev, U, b) axis=2", "gates = Sum(a, r)", kUnit};
  const OperatorCounts wanted = {1, 2, 3, 2};
  EXPECT_EQ(counts_of({lstm(GetParam().parts), {kH, kC}}, feeds), wanted);
  EXPECT_EQ(counts_of({two, {kH, kC}}, of_two), wanted);
  Cell whole = {lstm(GetParam().parts), {kH, kC}};
  whole.disabled_passes = {"split_concat"};
  EXPECT_EQ(counts_of(whole, feeds).forward_blocks, 0);
}

INSTANTIATE_TEST_SUITE_P(Orders, SplitConcats,
                         ::testing::Values(Order{"x, h_prev", 0, kIn}, Order{"h_prev, x", kWidth, 0}),
                         [](const auto& info) { return info.param.x == 0 ? "SequenceFirst" : "StateFirst"; });

// Types of the operators in the step net, in order.
std::string types_of(const Cell& cell, const Feeds& feeds) {
  NetDef net = expanded_net(cell, feeds);
  std::string types;
  for (const OperatorDef& op : arg_of(net, "step_net").n().op()) types += (types.empty() ? "" : " ") + op.type();
  return types;
}

struct Form {
  std::string name;
  Lines step;
  std::string types;  // afterwards
  int64_t columns;    // of W
};

void PrintTo(const Form& f, std::ostream* out) { *out << f.name; }

const std::string kProducts = "FCColumns FCColumns ";

const Form kForms[] = {
    {"ThreeParts",
     {"cat = Concat(h_prev, x, c0) axis=2", "s = FC(cat, W, b) axis=2", kTanh},
     "FCColumns FCColumns FCColumns Sum Tanh",
     kIn + 2 * kWidth},
    {"StateBetween",
     {"q = Tanh(x)", "cat = Concat(x, h_prev, q) axis=2", "s = FC(cat, W, b) axis=2", kTanh},
     "Tanh FCColumns FCColumns FCColumns Sum Tanh",
     2 * kIn + kWidth},
    {"StatesAround",
     {"q = Tanh(h_prev)", "cat = Concat(q, x, h_prev) axis=2", "s = FC(cat, W, b) axis=2", kTanh},
     "Tanh FCColumns FCColumns FCColumns Sum Tanh",
     kIn + 2 * kWidth},
    {"NoState",
     {"q = Tanh(x)", "cat = Concat(x, q) axis=2", "a = FC(cat, W, b) axis=2", "s = Sum(a, h_prev)", kTanh},
     "Tanh " + kProducts + "Sum Sum Tanh",
     2 * kIn},
    {"Nested",
     {"in = Concat(x, x) axis=2", "cat = Concat(in, h_prev) axis=2", "s = FC(cat, W, b) axis=2", kTanh},
     "FCColumns FCColumns FCColumns Sum Tanh",
     2 * kIn + kWidth},
    {"TwoReaders",
     {"cat = Concat(x, h_prev) axis=2", "a = FC(cat, W, b) axis=2", "r = FC(cat, W, b) axis=2", "s = Mul(a, r)", kTanh},
     kProducts + "Sum SplitByRows Mul Tanh",
     kIn + kWidth},
    {"NoBias",
     {"cat = Concat(x, h_prev) axis=2", "a = FC(cat, W) axis=2", "s = Add(a, b) broadcast=1", kTanh},
     kProducts + "Sum Add Tanh",
     kIn + kWidth},
    {"FromTheEnd",
     {"cat = Concat(x, h_prev) axis=-1", "s = FC(cat, W, b) axis=-1", kTanh},
     kProducts + "Sum Tanh",
     kIn + kWidth},
    {"UnusedSizes",
     {"cat, sizes = Concat(x, h_prev) axis=2", "s = FC(cat, W, b) axis=2", kTanh},
     kProducts + "Sum Tanh",
     kIn + kWidth},
    {"InnerReadElsewhere",
     {"in = Concat(x, x) axis=2", "cat = Concat(in, h_prev) axis=2", "s = FC(cat, W, b) axis=2", "q = Tanh(in)", kTanh},
     "Concat " + kProducts + "Sum Tanh Tanh",
     2 * kIn + kWidth},
    {"AnotherReader",
     {"cat = Concat(x, h_prev) axis=2", "s = FC(cat, W, b) axis=2", "q = Tanh(cat)", kTanh},
     "Concat FC Tanh Tanh",
     kIn + kWidth},
    {"AxesWrittenDifferently",
     {"cat = Concat(x, h_prev) axis=-1", "s = FC(cat, W, b) axis=2", kTanh},
     "Concat FC Tanh",
     kIn + kWidth},
    {"OnePart", {"cat = Concat(h_prev) axis=2", "s = FC(cat, W, b) axis=2", kTanh}, "Concat FC Tanh", kWidth},
    {"PartOverwritten",
     {"q = Sum(h_prev, h_prev)", "cat = Concat(q, h_prev) axis=2", "q = Tanh(q)", "s = FC(cat, W, b) axis=2", kTanh},
     "Sum Concat Tanh FC Tanh",
     2 * kWidth},
};

class ConcatForms : public ::testing::TestWithParam<Form> {};

TEST_P(ConcatForms, AreSplitWhereTheyCanBe) {
  const Form& form = GetParam();
  const Feeds feeds = feeds_of(form.columns, 4, kWidth);
  Feeds given = feeds;
  given[2].second = given[2].second.reshaped({1, 4, kWidth});  // c0, a part that all timesteps share
  const Cell cell = {form.step, {kH}};
  EXPECT_EQ(types_of(cell, given), form.types);
  EXPECT_EQ(check_against_unrolled(cell, given), "");
}

INSTANTIATE_TEST_SUITE_P(All, ConcatForms, ::testing::ValuesIn(kForms),
                         [](const auto& info) { return info.param.name; });

TEST(SplitConcatsOf, WhatIsShownStays) {
  const Feeds feeds = feeds_of(kIn + kWidth, 4, kWidth);
  Cell cell = {{"cat = Concat(x, h_prev) axis=2", "s = FC(cat, W, b) axis=2", kTanh}, {kH}};
  const std::string whole = "Concat FC Tanh";
  cell.outputs = {{"cat", "shown"}};
  EXPECT_EQ(types_of(cell, feeds), whole);
  cell.outputs = {};
  cell.recompute = {"cat"};
  EXPECT_EQ(types_of(cell, feeds), whole);
  cell.recompute = {};
  cell.disabled_passes = {"split_concat"};
  EXPECT_EQ(types_of(cell, feeds), whole);
  cell.disabled_passes = {"hoist"};
  EXPECT_EQ(types_of(cell, feeds), "FCColumns FCColumns Sum Tanh");
}

// What is computed again is so from the parts.
TEST(SplitConcatsOf, RecomputedProducts) {
  Cell cell = {lstm("x, h_prev"), {kH, kC}, {"gates"}};
  const Feeds feeds = feeds_of(kIn + kWidth, 4);
  EXPECT_EQ(types_of(cell, feeds), "FCColumns FCColumns Sum LSTMUnit");
  EXPECT_EQ(check_against_unrolled(cell, feeds), "");
}

// Concats of one blob twice have 2^40 parts, and Concats of a single blob go on and on.
TEST(SplitConcatsOf, TooManyParts) {
  for (const int parts : {1, 2}) {
    NetDef net;
    const auto add = [&](const char* type, std::vector<std::string> in, const std::string& out) {
      OperatorDef& op = *net.add_op();
      op.set_type(type);
      for (const std::string& name : in) op.add_input(name);
      op.add_output(out);
    };
    const int length = parts == 1 ? 100000 : 40;
    for (int i = 0; i < length; ++i)
      add("Concat", std::vector<std::string>(parts, "c" + std::to_string(i)), "c" + std::to_string(i + 1));
    const std::string last = "c" + std::to_string(length);
    add("Concat", {last, "h_prev"}, "cat");
    add("FC", {"cat", "W", "b"}, "s");
    const NetDef split = split_concats(net, {{"h_prev"}, {}, [](const std::string& blob) { return blob + "/term"; }});
    EXPECT_EQ(split.op_size(), net.op_size());
  }
}

TEST(SplitConcatsOf, AsManyPartsAsAreAllowed) {
  for (const int parts : {64, 65}) {
    OperatorDef concat, fc;
    concat.set_type("Concat");
    fc.set_type("FC");
    for (OperatorDef* op : {&concat, &fc}) *op->add_arg() = make_arg("axis", 2);
    for (int i = 1; i < parts; ++i) concat.add_input("x" + std::to_string(i));
    concat.add_input("h_prev");
    concat.add_output("cat");
    for (const char* name : {"cat", "W", "b"}) fc.add_input(name);
    fc.add_output("s");
    NetDef net;
    *net.add_op() = concat;
    *net.add_op() = fc;
    const NetDef split = split_concats(net, {{"h_prev"}, {}, [](const std::string& blob) { return blob + "/term"; }});
    EXPECT_EQ(split.op_size(), parts == 64 ? 65 : 2);
  }
}

// The widths must add up to W's.
TEST(SplitConcatsOf, WidthsThatDoNotFit) {
  for (const char* parts : {"x, h_prev", "h_prev, x"}) {
    const Cell cell = {lstm(parts), {kH, kC}};
    const Feeds feeds = feeds_of(kIn + kWidth + 1, 4);
    const std::string error = error_of([&] { run_recurrent(cell, feeds, outside_gradients(cell, feeds)); });
    EXPECT_NE(error.find("the parts beside it have rows of 7 values"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace stepnet::testing::split_concats_test
