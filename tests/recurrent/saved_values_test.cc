// What the forward run of a RecurrentNetwork keeps, in bytes of the allocator: the states, and per timestep exactly the
// step blobs that the backward step net reads by value; and that a second run of the same shapes allocates nothing.
#include <gtest/gtest.h>

#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing::saved_values_test {
namespace {

// One blob of a step: a batch of 4 and a width of 8, in float64.
constexpr int64_t kBatch = 4, kWidth = 8, kBlob = kBatch * kWidth * 8;

const CellState kH = {"h_prev", "h", "h0", "h_all", "h_last"};
const CellState kC = {"c_prev", "c", "c0", "c_all", "c_last"};

struct SavingCell {
  std::string name;
  Cell cell;
  int64_t kept = 0;       // blobs per timestep
  int64_t gradients = 0;  // of states, all rows of which are kept, because what runs behind a block reads them
};

void PrintTo(const SavingCell& c, std::ostream* out) { *out << c.name; }

const Lines kLstm = {"a = FC(x, Wx, bx) axis=2", "r = FC(h_prev, Wh, bh) axis=2", "gates = Sum(a, r)",
                     "h, c = LSTMUnit(h_prev, c_prev, gates, lengths, timestep)"};
const Lines kJoinedLstm = {"j = Concat(x, h_prev) axis=2", "gates = FC(j, Wj, bx) axis=2",
                           "h, c = LSTMUnit(h_prev, c_prev, gates, lengths, timestep)"};
// Update and reset gates, and a candidate that the reset gate lets see the state.
const Lines kGru = {"zx = FC(x, W, b) axis=2",
                    "zh = FC(h_prev, U, b) axis=2",
                    "zs = Sum(zx, zh)",
                    "z = Sigmoid(zs)",
                    "rx = FC(x, V, b) axis=2",
                    "rs = Sum(rx, zh)",
                    "r = Sigmoid(rs)",
                    "q = Mul(r, h_prev)",
                    "qh = FC(q, U, b) axis=2",
                    "qs = Sum(zx, qh)",
                    "n = Tanh(qs)",
                    "d = Sub(h_prev, n)",
                    "zd = Mul(z, d)",
                    "h = Sum(n, zd)"};

const SavingCell kCells[] = {
    {"LSTM", {kLstm, {kH, kC}}, 4},                                 // gates, four widths
    {"LSTMRecomputed", {kLstm, {kH, kC}, {"a", "r", "gates"}}, 0},  // from x and h_prev
    {"JoinedLSTM", {kJoinedLstm, {kH, kC}}, 4},                     // as the other, without j
    {"JoinedLSTMRecomputed", {kJoinedLstm, {kH, kC}, {"gates"}}, 0},
    {"GRU", {kGru, {kH}}, 4},  // z, r, q and n; d is made again
    {"Elman", {{"a = FC(x, W, b) axis=2", "r = FC(h_prev, U, b) axis=2", "s = Sum(a, r)", "h = Tanh(s)"}, {kH}}, 0},
    {"Sum", {{"h = Sum(x, h_prev)"}, {kH}}, 0, 1},
    {"Product", {{"s = Mul(x, h_prev)", "h = Tanh(s)"}, {kH}}, 0},
    {"Gate", {{"g = Sigmoid(x)", "h = Mul(g, h_prev)"}, {kH}}, 1, 1},
    {"GateRecomputed", {{"g = Sigmoid(x)", "h = Mul(g, h_prev)"}, {kH}, {"g"}}, 0, 1},
    {"AliasOfAState", {{"k = Alias(h_prev)", "s = Mul(x, k)", "h = Tanh(s)"}, {kH}}, 0},
    {"AliasOfTheSequence", {{"k = Alias(x)", "l = Alias(k)", "s = Mul(l, h_prev)", "h = Tanh(s)"}, {kH}}, 0},
    {"AliasRecomputed", {{"k = Alias(x)", "s = Mul(k, h_prev)", "h = Tanh(s)"}, {kH}, {"k"}}, 0},
    {"AliasAlone", {{"g = Sigmoid(x)", "k = Alias(g)", "h = Mul(k, h_prev)"}, {kH}}, 1, 1},
    {"Shared", {{"g = Sigmoid(x)", "k = Alias(g)", "s = Mul(k, h_prev)", "h = Mul(s, g)"}, {kH}}, 1},  // s again
};

Feeds feeds_of(int64_t steps) {
  Feeds feeds = {{"X", normal<double>({steps, kBatch, kWidth}, 1)},
                 {"h0", normal<double>({kBatch, kWidth}, 2)},
                 {"c0", normal<double>({kBatch, kWidth}, 3)},
                 {"lengths", Tensor::of<int32_t>({kBatch}, {9, 1, 4, 2})}};
  uint64_t seed = 10;
  for (const char* name : {"W", "U", "V"}) feeds.emplace_back(name, normal<double>({kWidth, kWidth}, seed++));
  for (const char* name : {"Wx", "Wh"}) feeds.emplace_back(name, normal<double>({4 * kWidth, kWidth}, seed++));
  for (const char* name : {"bx", "bh"}) feeds.emplace_back(name, normal<double>({4 * kWidth}, seed++));
  feeds.emplace_back("b", normal<double>({kWidth}, seed++));
  feeds.emplace_back("Wj", normal<double>({4 * kWidth, 2 * kWidth}, seed));
  return feeds;
}

int64_t live() { return allocator({}).counters().live; }

// Bytes that one forward run leaves behind, beside what it was fed.
int64_t bytes_after_forward(const NetDef& net, int64_t steps) {
  Workspace workspace;
  for (const auto& [name, value] : feeds_of(steps)) workspace.tensor(name) = value.clone();
  Net bound(net, workspace);
  RunContext run;
  const int64_t before = live();
  bound.run(run);
  return live() - before;
}

int64_t state_bytes(const Cell& cell, int64_t steps) {
  return static_cast<int64_t>(cell.states.size()) * (steps + 1) * kBlob;
}

NetDef forward_only_net(const Cell& cell) {
  NetDef net = recurrent_net({cell.step, cell.states}, feeds_of(1));
  net.mutable_op(0)->MutableExtension(recurrent)->set_forward_only(true);
  expand_recurrent(net);
  return net;
}

// Every operator in every timestep, so that there are no blobs of several timesteps but those that are kept.
NetDef without_passes(NetDef net) {
  *network_in(net).add_arg() = make_arg("disabled_passes", std::vector<std::string>{"hoist", "defer"});
  return net;
}

class SavedValues : public ::testing::TestWithParam<SavingCell> {};

TEST_P(SavedValues, AreThoseThatBackwardReads) {
  const auto& [name, cell, kept, gradients] = GetParam();
  const NetDef net = without_passes(expanded_net(cell, feeds_of(1)));
  const int64_t nothing = bytes_after_forward(net, 0) - state_bytes(cell, 0);  // one step's scratch
  EXPECT_GE(nothing, 0);
  for (const int64_t steps : {1, 2, 9})
    EXPECT_EQ(bytes_after_forward(net, steps) - state_bytes(cell, steps) - nothing, steps * kept * kBlob) << steps;
}

TEST_P(SavedValues, AreNoneWithoutABackwardStepNet) {
  const Cell& cell = GetParam().cell;
  const NetDef net = without_passes(forward_only_net(cell));
  const int64_t scratch = bytes_after_forward(net, 1) - state_bytes(cell, 1);
  for (const int64_t steps : {2, 9, 50})
    EXPECT_EQ(bytes_after_forward(net, steps) - state_bytes(cell, steps), scratch) << steps;
}

// Hoisted blobs have rows for one block, which is 32 timesteps of a batch of 4, however long the sequence is.
TEST_P(SavedValues, HoistingTakesOneBlock) {
  const Cell& cell = GetParam().cell;
  const NetDef net = forward_only_net(cell);
  auto scratch = [&](int64_t steps) { return bytes_after_forward(net, steps) - state_bytes(cell, steps); };
  EXPECT_EQ(scratch(32), scratch(200));
}

int64_t scratch_bytes(const Cell& cell) {
  const NetDef net = expanded_net(cell, feeds_of(1));
  return bytes_after_forward(net, 0) - state_bytes(cell, 0);
}

// The scratch is one step's blobs that are neither kept nor rows of a state, and the timestep. The terms of a sum are
// made in one place.
TEST(SavedScratch, OneStepIsAllTheScratch) {
  constexpr int64_t timestep = 64;  // a block's size is rounded up
  const Cell elman = {{"a = FC(x, W, b) axis=2", "r = FC(h_prev, U, b) axis=2", "s = Sum(a, r)", "h = Tanh(s)"}, {kH}};
  EXPECT_EQ(scratch_bytes(elman), kBlob + timestep);
  EXPECT_EQ(scratch_bytes({{"g = Sigmoid(x)", "h = Mul(g, h_prev)"}, {kH}}), timestep);
  // A blob that is kept under another name is in one place.
  EXPECT_EQ(scratch_bytes({{"g = Sum(x, x)", "k = Alias(g)", "h = Mul(k, h_prev)"}, {kH}}), timestep);
}

TEST_P(SavedValues, ASecondRunOfTheSameShapesAllocatesNothing) {
  const Cell& cell = GetParam().cell;
  const Feeds feeds = feeds_of(6);
  const CellData data = {feeds, outside_gradients(cell, feeds)};
  const std::vector<CellResults> results = run_in_turn(expanded_net(cell, feeds), {data, data, data});
  EXPECT_EQ(compare_results(results[2], run_unrolled(cell, feeds, data.outside), 1e-10), "");
  EXPECT_EQ(results[2].copied, 0);
  EXPECT_GT(results[0].allocations, 0);
  EXPECT_EQ(results[1].allocations, 0);
  EXPECT_EQ(results[2].allocations, 0);
}

// The peak of a backward run: gradients of states, of the sequence and of parameters, and one step's scratch.
TEST_P(SavedValues, BackwardKeepsNothingPerTimestepButGradients) {
  const Cell& cell = GetParam().cell;
  auto bytes = [&](int64_t steps, bool passes) {
    NetDef net = expanded_net(cell, feeds_of(steps));
    if (!passes) net = without_passes(net);
    net.add_external_input("g");
    add_gradient_operators(net, {.targets = {{"h_all", "g"}}, .wanted = {"X", "h0"}, .stop = {}});
    Workspace workspace;
    for (const auto& [name, value] : feeds_of(steps)) workspace.tensor(name) = value.clone();
    workspace.tensor("g") = normal<double>({steps, kBatch, kWidth});
    Net bound(net, workspace);
    RunContext run;
    const int64_t before = live();
    bound.run(run);
    return live() - before;
  };
  const auto states = static_cast<int64_t>(cell.states.size());
  // States, the kept blobs, and the sequence's gradient; without passes, two rows of a state's gradient are enough.
  const int64_t each = (states + GetParam().kept + 1) * kBlob;
  EXPECT_EQ(bytes(9, false) - bytes(4, false), 5 * each);
  // Both longer than a block.
  EXPECT_EQ(bytes(170, true) - bytes(70, true), 100 * (each + GetParam().gradients * kBlob));
}

INSTANTIATE_TEST_SUITE_P(Cells, SavedValues, ::testing::ValuesIn(kCells),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stepnet::testing::saved_values_test
