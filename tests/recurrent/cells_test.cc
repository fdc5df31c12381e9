// Cells whose links are hard to choose: RecurrentNetwork equals the same net unrolled by hand, in values and in all
// gradients, for several numbers of timesteps and batches, and copies no state and no state gradient.
#include <gtest/gtest.h>

#include "core/compute/threads.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing::cells_test {
namespace {

struct CellCase {
  std::string name;
  Cell cell;
  Feeds more = {};                     // beside X [T, B, 3] and h0, c0 [B, 3]
  std::vector<std::string> rows = {};  // parameters [1, B, 3]
};

void PrintTo(const CellCase& c, std::ostream* out) { *out << c.name; }

const CellState kH = {"h_prev", "h", "h0", "h_all", "h_last"};
const CellState kC = {"c_prev", "c", "c0", "c_all", "c_last"};
const Lines kElman = {"s = FC(x, W, b) axis=2", "r = FC(h_prev, U, b) axis=2", "p = Sum(s, r)", "h = Tanh(p)"};

Cell differentiated(Cell cell, std::vector<std::string> outputs) {
  cell.differentiated = std::move(outputs);
  return cell;
}

CellState state_with_output(CellState s, std::string output) {
  s.output = std::move(output);
  return s;
}

std::vector<CellCase> cells_of_one_state() {
  const Feeds weights = {
      {"W", normal<double>({3, 3}, 11)}, {"U", normal<double>({3, 3}, 12)}, {"b", normal<double>({3}, 13)}};
  return {
      {"SumThenTanh", {{"s = Sum(x, h_prev)", "h = Tanh(s)"}, {kH}}},
      {"SumAlone", {{"h = Sum(h_prev, x)"}, {kH}}},
      {"SumMul", {{"s = Sum(x, h_prev)", "h = Mul(x, s)"}, {kH}}},
      {"Mul", {{"h = Mul(x, h_prev)"}, {kH}}},
      {"StateTwice", {{"h = Mul(h_prev, h_prev)"}, {kH}}},
      {"TermsTwice", {{"h = Sum(h_prev, h_prev, x, x)"}, {kH}}},
      {"SequenceTwice", {{"a = Tanh(x)", "b = Mul(a, h_prev)", "h = Sum(b, x)"}, {kH}}},
      {"InPlace", {{"s = Sum(x, h_prev)", "s = Tanh(s)"}, {state_with_output(kH, "s")}}},
      {"InPlaceOfTheState", {{"h = Mul(x, h_prev)", "h = Sum(h, x)"}, {kH}}},
      {"Elman", {kElman, {kH}}, weights},
      {"SameWeightsTwice",
       {{"s = FC(x, W, b) axis=2", "r = FC(h_prev, W, b) axis=2", "p = Sum(s, r)", "h = Tanh(p)"}, {kH}},
       weights},
      {"OnlyTheBiasTwice",
       {{"s = FC(x, W, b) axis=2", "r = Mul(h_prev, b) broadcast=1", "h = Sum(s, r)"}, {kH}},
       weights},
      {"ParameterInASum", {{"s = Sum(x, h_prev, P)", "h = Tanh(s)"}, {kH}}, {}, {"P"}},
      {"ParameterInASumTwice", {{"s = Sum(x, P, h_prev, P)", "h = Tanh(s)"}, {kH}}, {}, {"P"}},
      {"ParametersInASum", {{"s = Sum(x, h_prev, P, Q)", "h = Tanh(s)"}, {kH}}, {}, {"P", "Q"}},
      {"ParametersInASumAlone", {{"h = Sum(Q, h_prev, P)"}, {kH}}, {}, {"P", "Q"}},
      {"ParameterAsInitialState",
       {{"s = Sum(x, h_prev)", "q = Mul(s, P)", "h = Tanh(q)"}, {{"h_prev", "h", "P", "h_all", "h_last"}}},
       {},
       {"P"}},
      {"ParameterInASumAsInitialState",
       {{"h = Sum(x, h_prev, P)"}, {{"h_prev", "h", "P", "h_all", "h_last"}}},
       {},
       {"P"}},
      {"WholeSequenceAsParameter", {{"m = SumElements(X)", "h = Mul(h_prev, m) broadcast=1"}, {kH}}},
      {"WholeSequenceAndItsRow", {{"m = SumElements(X)", "g = Mul(h_prev, m) broadcast=1", "h = Sum(g, x)"}, {kH}}},
      {"Add", {{"s = Add(x, h_prev)", "h = Tanh(s)"}, {kH}}},
      {"AddAlone", {{"h = Add(h_prev, x)"}, {kH}}},
      {"SubOfAnAddInPlace", {{"s = Sub(x, h_prev)", "s = Add(s, x)", "h = Tanh(s)"}, {kH}}},
      {"AddTwice", {{"s = Add(x, h_prev)", "r = Add(s, h_prev)", "q = Mul(s, x)", "h = Add(r, q)"}, {kH}}},
      {"ParameterInAnAdd", {{"s = Add(P, h_prev)", "h = Mul(s, x)"}, {kH}}, {}, {"P"}},
      {"OperandsThatRepeat",
       {{"s = Add(b, x)", "r = Mul(s, v)", "q = Sub(k, r)", "h = Mul(q, h_prev)"}, {kH}},
       {{"b", normal<double>({3}, 11)}, {"v", normal<double>({1, 1, 3}, 12)}, {"k", normal<double>({1}, 13)}}},
      {"ValuesThatRepeat",
       {{"m = FC(x, w, k) axis=2", "n = FC(h_prev, w, k) axis=2", "p = Mul(m, h_prev)", "q = Sub(n, p)",
         "r = Add(q, m)", "h = Tanh(r)"},
        {kH}},
       {{"w", normal<double>({1, 3}, 11)}, {"k", normal<double>({1}, 12)}}},
      {"StateThatForgets", {{"h = Tanh(x)"}, {kH}}},
      {"StateThatIsTheSequence", {{"unused = Tanh(h_prev)"}, {state_with_output(kH, "x")}}},
      {"StateThatIsAParameter", {{"unused = Mul(h_prev, P)"}, {state_with_output(kH, "P")}}, {}, {"P"}},
      {"StateThatNeverChanges", {{"unused = Mul(h_prev, x)"}, {state_with_output(kH, "h_prev")}}},
      {"AliasInside", {{"k = Alias(h_prev)", "s = Mul(x, k)", "q = Alias(s)", "h = Tanh(q)"}, {kH}}},
      {"NegatedState", {{"n = Negative(h_prev)", "h = Sum(n, x)"}, {kH}}},
      {"StoppedState", {{"n = StopGradient(h_prev)", "h = Mul(n, x)"}, {kH}}},
      {"AllAlone", differentiated({kElman, {kH}}, {"h_all"}), weights},
      {"LastAlone", differentiated({kElman, {kH}}, {"h_last"}), weights},
      {"NoOutputForTheLast", {kElman, {{"h_prev", "h", "h0", "h_all", ""}}}, weights},
      {"NoOutputForAll", {kElman, {{"h_prev", "h", "h0", "", "h_last"}}}, weights},
  };
}

std::vector<CellCase> cells_of_two_states() {
  const Lines gate = {"s = Sum(x, h_prev)", "h = Tanh(s)", "g = Mul(h, c_prev)", "c = Sum(g, x)"};
  return {
      {"OutputReadInside", {gate, {kH, kC}}},
      {"OutputReadInsideByASum", {{"s = Sum(x, h_prev)", "h = Tanh(s)", "c = Sum(h, c_prev)"}, {kH, kC}}},
      {"OnlyTheInnerHasAGradient", differentiated({gate, {kH, kC}}, {"c_all"})},
      {"OnlyTheOuterHasAGradient", differentiated({gate, {kH, kC}}, {"h_last"})},
      {"AllOfOneAndLastOfTheOther", differentiated({gate, {kH, kC}}, {"c_all", "h_last"})},
      {"Swap", {{"t = Tanh(h_prev)"}, {state_with_output(kH, "c_prev"), state_with_output(kC, "t")}}},
      {"PlainSwap", {{"unused = Tanh(x)"}, {state_with_output(kH, "c_prev"), state_with_output(kC, "h_prev")}}},
      {"SwapWithASum", {{"h = Sum(c_prev, x)", "c = Sum(h_prev, x)"}, {kH, kC}}},
      {"OneOutputForTwoStates", {{"s = Mul(h_prev, c_prev)", "h = Sum(s, x)"}, {kH, state_with_output(kC, "h")}}},
      {"OneSumForTwoStates", {{"h = Sum(h_prev, c_prev)"}, {kH, state_with_output(kC, "h")}}},
      {"TwoStatesFromOneParameter",
       {{"s = Mul(h_prev, c_prev)", "h = Sum(s, x)", "c = Mul(h_prev, x)"},
        {{"h_prev", "h", "P", "h_all", "h_last"}, {"c_prev", "c", "P", "c_all", "c_last"}}},
       {},
       {"P"}},
      {"DelayOfTwo", {{"c = Mul(h_prev, c_prev)"}, {state_with_output(kH, "x"), kC}}},
      {"ShiftedBySums", {{"h = Sum(x, c_prev)", "c = Sum(h_prev, x, c_prev)"}, {kH, kC}}},
      {"StateReadByTheOtherAlone", {{"h = Tanh(x)", "c = Sum(c_prev, h_prev)"}, {kH, kC}}},
      {"NeverRead", {{"h = Tanh(x)", "c = Mul(c_prev, x)"}, {kH, kC}}},
      {"Residual", {{"s = Sum(x, h_prev)", "h = Tanh(s)", "q = Sum(h, x)", "c = Mul(q, c_prev)"}, {kH, kC}}},
  };
}

Feeds feeds_of(const CellCase& c, int64_t steps, int64_t batch) {
  Feeds feeds = {{"X", normal<double>({steps, batch, 3}, 1)},
                 {"h0", normal<double>({batch, 3}, 2)},
                 {"c0", normal<double>({batch, 3}, 3)}};
  for (const std::string& name : c.rows) feeds.emplace_back(name, normal<double>({1, batch, 3}, 20 + feeds.size()));
  feeds.insert(feeds.end(), c.more.begin(), c.more.end());
  return feeds;
}

class Cells : public ::testing::TestWithParam<CellCase> {};

TEST_P(Cells, EqualTheUnrolledNet) {
  for (const int64_t steps : {1, 2, 5})
    for (const int64_t batch : {1, 3}) {
      SCOPED_TRACE(fmt::format("T = {}, B = {}", steps, batch));
      EXPECT_EQ(check_against_unrolled(GetParam().cell, feeds_of(GetParam(), steps, batch)), "");
    }
}

// Blocks of three timesteps, backward of six, the last one shorter; three lanes.
TEST_P(Cells, EqualTheUnrolledNetOverSeveralBlocks) {
  const Feeds feeds = feeds_of(GetParam(), 7, 50);
  Cell cell = GetParam().cell;
  const int before = threads();
  set_threads(3);
  std::vector<std::vector<std::string>> choices = pass_choices();
  choices.push_back({"hoist", "defer"});
  for (const std::vector<std::string>& passes : choices) {
    SCOPED_TRACE("without " + fmt::format("{}", fmt::join(passes, ", ")));
    cell.disabled_passes = passes;
    EXPECT_EQ(check_against_unrolled(cell, feeds, 1e-9), "");
  }
  set_threads(before);
}

TEST_P(Cells, WorkOnNothing) {
  for (const auto& [steps, batch] : {std::pair{0, 3}, {5, 0}, {0, 0}}) {
    SCOPED_TRACE(fmt::format("T = {}, B = {}", steps, batch));
    EXPECT_EQ(check_against_unrolled(GetParam().cell, feeds_of(GetParam(), steps, batch)), "");
  }
}

std::string name_of(const ::testing::TestParamInfo<CellCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(OneState, Cells, ::testing::ValuesIn(cells_of_one_state()), name_of);
INSTANTIATE_TEST_SUITE_P(TwoStates, Cells, ::testing::ValuesIn(cells_of_two_states()), name_of);

}  // namespace
}  // namespace stepnet::testing::cells_test
