// Gradients of tables that are looked up: pairs of indices and rows, added up without being made dense, unless somebody
// else's gradient of the same table is dense.
#include <gtest/gtest.h>

#include <algorithm>

#include "stepnet/net.h"
#include "tests/core/gradient_testing.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::gradients_sparse_test {
namespace {

const Lines kLookups = {"a = Gather(E, i)", "b = SparseLengthsSum(E, j, l)", "c = SparseLengthsMean(E, j, l)",
                        "d = SparseLengthsWeightedSum(E, w, j, l)"};
const Targets kTargets = {{"a", "da"}, {"b", "db"}, {"c", "dc"}, {"d", "dd"}};

constexpr int64_t kRows = 5, kWidth = 3;
const std::vector<int32_t> kI = {4, 0, 4}, kJ = {1, 4, 1, 3}, kLengths = {3, 0, 1};

Tensor ints(const std::vector<int32_t>& values) {
  return Tensor::of<int32_t>({static_cast<int64_t>(values.size())}, values);
}

void feed(Workspace& workspace) {
  workspace.tensor("E") = normal<double>({kRows, kWidth}, 1);
  workspace.tensor("w") = normal<double>({4}, 2);
  workspace.tensor("i") = ints(kI);
  workspace.tensor("j") = ints(kJ);
  workspace.tensor("l") = ints(kLengths);
  uint64_t seed = 3;
  for (const char* name : {"da", "db", "dc", "dd"}) workspace.tensor(name) = normal<double>({3, kWidth}, seed++);
  workspace.tensor("de") = normal<double>({kRows, kWidth}, seed);
}

void add_row(Tensor& sum, int64_t to, const Tensor& rows, int64_t from, double factor) {
  for (int64_t k = 0; k < kWidth; ++k)
    sum.data<double>()[to * kWidth + k] += factor * rows.data<double>()[from * kWidth + k];
}

// The sum of the lookups' gradients, row by row.
Tensor gradient_of_lookups(const Workspace& workspace) {
  Tensor sum = Tensor::zeros(DType::float64, {kRows, kWidth});
  for (size_t n = 0; n < kI.size(); ++n) add_row(sum, kI[n], workspace.fetch("da"), static_cast<int64_t>(n), 1);
  for (int64_t s = 0, place = 0; s < 3; ++s)
    for (int32_t n = 0; n < kLengths[s]; ++n, ++place) {
      add_row(sum, kJ[place], workspace.fetch("db"), s, 1);
      add_row(sum, kJ[place], workspace.fetch("dc"), s, 1.0 / kLengths[s]);
      add_row(sum, kJ[place], workspace.fetch("dd"), s, workspace.fetch("w").data<double>()[place]);
    }
  return sum;
}

std::vector<std::string> types_of(const Backward& b) {
  std::vector<std::string> types;
  for (int i = b.result.first_gradient_op; i < b.net.op_size(); ++i) types.push_back(b.net.op(i).type());
  return types;
}

void run(const NetDef& net, Workspace& workspace) {
  RunContext context;
  run_net_once(net, workspace, context);
}

TEST(GradientsSparse, EachLookupGivesAPair) {
  for (size_t n = 0; n < kLookups.size(); ++n) {
    const Backward b = differentiate(Lines{kLookups[n]}, {kTargets[n]}, {"E"});
    EXPECT_TRUE(b.result.gradients.at("E").is_sparse()) << kLookups[n];
    EXPECT_EQ(b.result.gradients.at("E").indices, n == 0 ? "i" : "j") << kLookups[n];
    EXPECT_EQ(b.lines.size(), n == 0 ? 0u : 1u) << kLookups[n];
  }
}

TEST(GradientsSparse, TwoLookupsOfOneTable) {
  const Backward b =
      differentiate(Lines{"a = Gather(E, i)", "b = SparseLengthsSum(E, j, l)"}, {{"a", "da"}, {"b", "db"}}, {"E"});
  EXPECT_EQ(b.lines,
            (Lines{"_E_grad_values_autosplit_0 = SparseLengthsSumGradient(db, l)",
                   "E_grad_indices_concat, E_grad_indices_concat_split = Concat(j, i)",
                   "E_grad_values_concat, E_grad_values_concat_split = Concat(_E_grad_values_autosplit_0, da)"}));
  EXPECT_EQ(b.map.at("E"), "E_grad_indices_concat;E_grad_values_concat");
}

TEST(GradientsSparse, AllLookupsAreAddedUpAsRows) {
  const Backward b = differentiate(kLookups, kTargets, {"E"});
  const std::vector<std::string> types = types_of(b);
  for (const char* type : {"SparseToDense", "Sum", "ConstantFill"})
    EXPECT_EQ(std::ranges::count(types, type), 0) << type;
  EXPECT_EQ(std::ranges::count(types, "Concat"), 2);
  Workspace workspace;
  feed(workspace);
  run(b.net, workspace);
  const GradientName& name = b.result.gradients.at("E");
  const Tensor &indices = workspace.fetch(name.indices), &values = workspace.fetch(name.values);
  ASSERT_EQ(indices.shape(), Shape({15}));
  ASSERT_EQ(values.shape(), Shape({15, kWidth}));
  Tensor sum = Tensor::zeros(DType::float64, {kRows, kWidth});
  for (int64_t n = 0; n < 15; ++n) add_row(sum, indices.data<int32_t>()[n], values, n, 1);
  EXPECT_EQ(compare(sum, gradient_of_lookups(workspace), 1e-14), "");
}

TEST(GradientsSparse, BesideADenseGradientTheyAreMadeDense) {
  Lines lines = kLookups;
  lines.emplace_back("e = Negative(E)");
  Targets targets = kTargets;
  targets.emplace_back("e", "de");
  const Backward b = differentiate(lines, targets, {"E"});
  EXPECT_EQ(b.map.at("E"), "E_grad");
  Workspace workspace;
  feed(workspace);
  run(b.net, workspace);
  Tensor expected = gradient_of_lookups(workspace);
  for (int64_t row = 0; row < kRows; ++row) add_row(expected, row, workspace.fetch("de"), row, -1);
  EXPECT_EQ(compare(workspace.fetch("E_grad"), expected, 1e-14), "");
}

TEST(GradientsSparse, DenseIfOneLookupAsksForIt) {
  const Lines lines = {"a = Gather(E, i) dense_gradient=1", "b = SparseLengthsSum(E, j, l)"};
  const Backward b = differentiate(lines, {{"a", "da"}, {"b", "db"}}, {"E"});
  EXPECT_EQ(b.map.at("E"), "E_grad");
  Workspace workspace;
  feed(workspace);
  run(b.net, workspace);
  Tensor expected = Tensor::zeros(DType::float64, {kRows, kWidth});
  for (size_t n = 0; n < kI.size(); ++n) add_row(expected, kI[n], workspace.fetch("da"), static_cast<int64_t>(n), 1);
  for (int64_t n = 0; n < 4; ++n) add_row(expected, kJ[n], workspace.fetch("db"), n < 3 ? 0 : 2, 1);
  EXPECT_EQ(compare(workspace.fetch("E_grad"), expected, 1e-14), "");
}

// A table that is itself computed: its rows' gradients are written out where they go on.
TEST(GradientsSparse, OfAComputedTable) {
  const Backward b = differentiate(Lines{"E = Negative(e)", "a = Gather(E, i)", "b = SparseLengthsSum(E, j, l)"},
                                   {{"a", "da"}, {"b", "db"}}, {"e"});
  Workspace workspace;
  feed(workspace);
  workspace.tensor("e") = normal<double>({kRows, kWidth}, 9);
  run(b.net, workspace);
  Tensor expected = Tensor::zeros(DType::float64, {kRows, kWidth});
  for (size_t n = 0; n < kI.size(); ++n) add_row(expected, kI[n], workspace.fetch("da"), static_cast<int64_t>(n), -1);
  for (int64_t n = 0; n < 4; ++n) add_row(expected, kJ[n], workspace.fetch("db"), n < 3 ? 0 : 2, -1);
  EXPECT_EQ(compare(workspace.fetch(b.map.at("e")), expected, 1e-14), "");
}

}  // namespace
}  // namespace stepnet::testing::gradients_sparse_test
