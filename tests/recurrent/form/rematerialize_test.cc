// What the backward step net makes again of what it reads anyway: which step blobs those are, and that results have the
// same bits without.
#include <gtest/gtest.h>

#include "recurrent/form/passes.h"
#include "stepnet/text.h"
#include "tests/recurrent/programs.h"

namespace stepnet::testing::rematerialize_test {
namespace {

const CellState kH = {"h_prev", "h", "h0", "h_all", "h_last"};

Feeds feeds_of(int64_t steps = 3) {
  return {{"X", normal<double>({steps, 2, 16}, 1)},
          {"h0", normal<double>({1, 2, 16}, 2)},
          {"W", normal<double>({16, 16}, 3)},
          {"b", normal<double>({16}, 4)},
          {"a", normal<double>({16}, 5)}};
}

using Names = std::set<std::string>;

// The gradients of all but the initial state are wanted.
Names made_again(const Cell& cell) {
  EXPECT_EQ(check_against_unrolled(cell, feeds_of()), "");
  Workspace workspace;
  const RecurrentScratch& scratch = run_programs(workspace, cell, feeds_of(), "h_all", {"X", "W", "b", "a"});
  for (const std::string& name : scratch.forward_spec.rematerialized)
    EXPECT_FALSE(scratch.slab(name).defined()) << name;
  return scratch.forward_spec.rematerialized;
}

Names made_again(const Lines& step) { return made_again(Cell{.step = step, .states = {kH}}); }

TEST(Rematerialize, MakesWhatElementwiseGradientsReadOfWhatTheyReadAnyway) {
  EXPECT_EQ(made_again({"p = Mul(h_prev, a)", "q = Mul(p, x)", "h = Tanh(q)"}), Names{"p"});
  // Of each other; a sum's gradient reads no term of it, but others read these.
  EXPECT_EQ(made_again({"p = Mul(h_prev, a)", "q = Mul(p, x)", "r = Sub(q, p)", "s = Mul(r, q)", "h = Tanh(s)"}),
            (Names{"p", "q", "r"}));
  // A state's change, as that of a GRU.
  EXPECT_EQ(made_again({"u = FC(x, W, b) axis=2", "z = Sigmoid(u)", "n = Tanh(x)", "d = Sub(h_prev, n)",
                        "e = Mul(z, d)", "g = Mul(h_prev, a)", "f = Mul(e, g)", "h = Add(f, n)"}),
            (Names{"d", "e", "g"}));
}

TEST(Rematerialize, LeavesWhatOthersReadOrShow) {
  const Lines plain = {"p = Mul(h_prev, a)", "q = Mul(p, x)", "h = Tanh(q)"};
  Cell shown = {.step = plain, .states = {kH}, .outputs = {{"p", "Y"}}};
  EXPECT_EQ(made_again(shown), Names{});
  Cell shown_as = {.step = {"p = Mul(h_prev, a)", "same = Alias(p)", "q = Mul(p, x)", "h = Tanh(q)"},
                   .states = {kH},
                   .outputs = {{"same", "Y"}}};
  EXPECT_EQ(made_again(shown_as), Names{});
  Cell recomputed = {.step = plain, .states = {kH}, .recompute = {"p"}};
  EXPECT_EQ(made_again(recomputed), Names{});
  Cell disabled = {.step = plain, .states = {kH}, .disabled_passes = {"rematerialize"}};
  EXPECT_EQ(made_again(disabled), Names{});
  // A weight's gradient reads it for many timesteps at once.
  EXPECT_EQ(made_again({"p = Mul(h_prev, a)", "u = FC(p, W, b) axis=2", "q = Mul(p, u)", "h = Tanh(q)"}), Names{});
  EXPECT_EQ(made_again({"p = Mul(h_prev, a)", "same = Alias(p)", "q = Mul(same, x)", "h = Tanh(q)"}), Names{});
}

TEST(Rematerialize, LeavesWhatTakesLongerThanALoad) {
  EXPECT_EQ(made_again({"p = Exp(h_prev)", "q = Mul(p, x)", "s = Mul(q, h_prev)", "h = Tanh(s)"}), Names{"q"});
}

TEST(Rematerialize, LeavesWhatIsMadeOfValuesThatAreGone) {
  // No gradient reads u, or n under that name: what it was is gone.
  EXPECT_EQ(made_again({"u = FC(x, W, b) axis=2", "p = Add(u, h_prev)", "q = Mul(p, a)", "h = Tanh(q)"}), Names{});
  EXPECT_EQ(made_again({"n = FC(x, W, b) axis=2", "p = Add(n, a)", "n = Tanh(n)", "q = Mul(p, n)", "r = Mul(q, h_prev)",
                        "h = Mul(r, a)"}),
            (Names{"q", "r"}));
  EXPECT_EQ(made_again({"n = FC(x, W, b) axis=2", "p = Add(n, a)", "m = Alias(n)", "m = Tanh(m)", "q = Mul(p, m)",
                        "r = Mul(q, h_prev)", "h = Mul(r, a)"}),
            (Names{"q", "r"}));
}

// Products of each element of one vector by each of another, of which one vector makes it no larger than the other.
TEST(Rematerialize, MakesMatricesOfVectors) {
  const auto made = [](int64_t rows, int64_t columns) {
    const Feeds feeds = {{"X", normal<double>({3, 2, rows, 1}, 1)},
                         {"Y", normal<double>({3, 2, columns, 1}, 2)},
                         {"h0", normal<double>({1, 2, rows, columns}, 3)}};
    Cell cell = {.step = {"k = Tanh(y)", "v = Tanh(x)", "m = BatchMatMul(v, k) trans_b=1", "p = Mul(m, h_prev)",
                          "q = Mul(p, m)", "h = Tanh(q)"},
                 .states = {kH},
                 .sequences = {{"X", "x"}, {"Y", "y"}}};
    EXPECT_EQ(check_against_unrolled(cell, feeds), "");
    Workspace workspace;
    return run_programs(workspace, cell, feeds, "h_all", {"X", "Y"}).forward_spec.rematerialized;
  };
  EXPECT_EQ(made(6, 16), (Names{"m", "p"}));
  EXPECT_EQ(made(1, 16), Names{"p"});
  EXPECT_EQ(made(1, 1), Names{"p"});
}

// h is written behind what w shows, in front of it, or into it; or the backward step net writes what p is made of.
TEST(Rematerialize, LooksWhoWritesTheRowsOfALink) {
  const auto made = [](const Link& read, int64_t written, bool reverse, const char* gradient) {
    RecurrentSpec spec;
    spec.has_backward = true;
    spec.reverse = reverse;
    spec.step_net = parse_net_text(R"(op { type: "Mul" input: "w" input: "a" output: "p" }
                                      op { type: "Mul" input: "p" input: "a" output: "h" })",
                                   "step");
    spec.backward_net = parse_net_text(fmt::format(R"(op {{ type: "Mul" input: "w" input: "a" output: "{}" }}
                                                      op {{ type: "Mul" input: "p" input: "h" output: "f" }})",
                                                   gradient),
                                       "backward");
    spec.links = {read, {"h", "states", written}};
    rematerialize(spec);
    EXPECT_EQ(spec.backward_net.op_size(), spec.rematerialized.empty() ? 2 : 3);
    return spec.rematerialized;
  };
  const Link one = {"w", "states", 0}, two = {"w", "states", 0, 2};
  EXPECT_EQ(made(one, 1, false, "g"), Names{"p"});
  EXPECT_EQ(made(two, 2, false, "g"), Names{"p"});
  EXPECT_EQ(made(two, 1, false, "g"), Names{});
  EXPECT_EQ(made(one, 0, false, "g"), Names{});
  EXPECT_EQ(made(one, -1, false, "g"), Names{});
  EXPECT_EQ(made(one, -1, true, "g"), Names{"p"});
  EXPECT_EQ(made(one, 0, true, "g"), Names{});
  EXPECT_EQ(made(one, 1, true, "g"), Names{});
  EXPECT_EQ(made({"w", "others", 0}, 0, false, "g"), Names{"p"});
  EXPECT_EQ(made(one, 1, false, "a"), Names{});
}

// What the pass takes for the same bits is the same: results without it, of pieces and of parts of one.
TEST(Rematerialize, ChangesNoBit) {
  Feeds feeds = {{"X", normal<float>({5, 3, 300}, 1)},
                 {"h0", normal<float>({1, 3, 300}, 2)},
                 {"W", normal<float>({300, 300}, 3)},
                 {"b", normal<float>({300}, 4)},
                 {"a", normal<float>({300}, 5)}};
  Cell cell = {.step = {"p = Mul(h_prev, a)", "q = Mul(p, x)", "r = Sub(q, p)", "s = Mul(r, q)", "h = Tanh(s)"},
               .states = {kH}};
  const CellResults with = run_recurrent(cell, feeds, outside_gradients(cell, feeds));
  cell.disabled_passes = {"rematerialize"};
  const CellResults without = run_recurrent(cell, feeds, outside_gradients(cell, feeds));
  EXPECT_EQ(compare_results(with, without, 0), "");
}

}  // namespace
}  // namespace stepnet::testing::rematerialize_test
