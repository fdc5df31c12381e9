// Do and CreateScope: a net with names of its own.
#include <filesystem>

#include "operators/control/scope.h"
#include "stepnet/file_place.h"
#include "stepnet/text.h"
#include "tests/operators/db_test.h"

namespace stepnet::testing::do_test {
namespace {

NetDef net_of(const std::string& text) { return parse_net_text(text, "test"); }

const std::string kScope = "op { type: 'CreateScope' output: 'scope' } ";

// A Do that reads X and writes Y, with these arguments and this net.
std::string do_text(const std::string& net, const std::string& inner, const std::string& outer,
                    const std::string& more = "") {
  return "op { type: 'Do' input: 'X' input: 'scope' output: 'Y' output: 'scope' arg { name: 'inner_blobs' " + inner +
         " } arg { name: 'outer_blobs_idx' " + outer + " } " + more + " arg { name: 'net' n { " + net + " } } }";
}

const std::string kNames = "strings: 'a' strings: 'b'", kPlaces = "ints: 0 ints: 1";
const std::string kTwoSteps =
    "op { type: 'Sqr' input: 'a' output: 'X' } op { type: 'Negative' input: 'X' output: 'b' }";

class Do : public ::testing::Test {
 protected:
  Do() { w_.tensor("X") = Tensor::of<float>({3}, {1, -2, 3}); }
  std::vector<float> floats(const std::string& name) { return floats_of(w_.fetch(name)); }
  std::string error(const std::string& text) {
    return error_text([&] { run_net_once(net_of(text), w_, run_); });
  }
  using Floats = std::vector<float>;

  Workspace w_;
  RunContext run_;
};

TEST_F(Do, NamesInsideAreItsOwn) {
  Net net(net_of(kScope + do_text(kTwoSteps, kNames, kPlaces)), w_);
  for (int i = 0; i < 3; ++i) {
    net.run(run_);
    EXPECT_EQ(floats("Y"), (Floats{-1, -4, -9}));
    EXPECT_EQ(floats("X"), (Floats{1, -2, 3}));
  }
  EXPECT_EQ(w_.names(), (std::vector<std::string>{"X", "Y", "scope"}));
}

TEST_F(Do, ReadsWhatEarlierRunsLeftIfAsked) {
  const std::string reuse = "arg { name: 'reuse_workspace' i: 1 }", names = "strings: 'a'", places = "ints: 0";
  const std::string start = "op { type: 'Copy' input: 'a' output: 'sum' }";
  const std::string add = "op { type: 'Add' input: 'a' input: 'sum' output: 'sum' }";
  const auto without_output = [&](const std::string& text) {
    std::string made = do_text(text, names, places, reuse);
    return made.replace(made.find("output: 'Y'"), 11, "");
  };
  const std::string show = do_text("op { type: 'Add' input: 'a' input: 'sum' output: 'b' }", kNames, kPlaces, reuse);
  run_net_once(net_of(kScope), w_, run_);
  Net first(net_of(without_output(start)), w_), more(net_of(without_output(add)), w_), last(net_of(show), w_);
  first.run(run_);
  more.run(run_);
  more.run(run_);
  last.run(run_);
  EXPECT_EQ(floats("Y"), (Floats{4, -8, 12}));
  run_net_once(net_of(kScope), w_, run_);  // nothing is left
  EXPECT_NE(error_text([&] { last.run(run_); }).find("sum"), std::string::npos);
}

TEST_F(Do, NestsAndRunsInLoops) {
  w_.tensor("C") = Tensor::of<bool>({1}, {true});
  w_.tensor("n") = Tensor::of<int64_t>({1}, {3});
  w_.tensor("i") = Tensor::of<int64_t>({1}, {0});
  run_net_once(net_of(kScope + R"(
    op { type: 'While' input: 'C' input: 'X' input: 'i' input: 'n' input: 'scope'
         output: 'C' output: 'X' output: 'i' output: 'scope'
         arg { name: 'loop_net' n {
           op { type: 'Do' input: 'X' input: 'i' input: 'n' input: 'scope'
                output: 'X' output: 'i' output: 'C' output: 'scope'
                arg { name: 'inner_blobs' strings: 'x' strings: 'at' strings: 'end' strings: 'goes_on' }
                arg { name: 'outer_blobs_idx' ints: 0 ints: 1 ints: 2 ints: 5 }
                arg { name: 'net' n {
                  op { type: 'GivenTensorInt64Fill' output: 'one' arg { name: 'shape' ints: 1 }
                       arg { name: 'values' ints: 1 } }
                  op { type: 'Add' input: 'at' input: 'one' output: 'at' }
                  op { type: 'CreateScope' output: 'inner' }
                  op { type: 'Do' input: 'x' input: 'inner' output: 'x' output: 'inner'
                       arg { name: 'inner_blobs' strings: 'at' } arg { name: 'outer_blobs_idx' ints: 0 }
                       arg { name: 'net' n { op { type: 'Negative' input: 'at' output: 'at' } } } }
                  op { type: 'LT' input: 'at' input: 'end' output: 'goes_on' } } } } } } })"),
               w_, run_);
  EXPECT_EQ(floats("X"), (Floats{-1, 2, -3}));
  EXPECT_EQ(w_.fetch("i").item<int64_t>(), 3);
}

TEST_F(Do, TwoOnOneScope) {
  const std::string second = R"(op { type: 'Do' input: 'Y' input: 'scope' output: 'Z' output: 'scope'
    arg { name: 'inner_blobs' strings: 'a' strings: 'b' } arg { name: 'outer_blobs_idx' ints: 0 ints: 1 }
    arg { name: 'net' n { op { type: 'Abs' input: 'a' output: 'b' } } } })";
  Net net(net_of(kScope + do_text(kTwoSteps, kNames, kPlaces) + second), w_);
  for (int i = 0; i < 2; ++i) {
    net.run(run_);
    EXPECT_EQ(floats("Y"), (Floats{-1, -4, -9}));
    EXPECT_EQ(floats("Z"), (Floats{1, 4, 9}));
  }
  const std::string takes = R"(op { type: 'Do' input: 'Y' input: 'scope' output: 'Z' output: 'scope'
    arg { name: 'inner_blobs' strings: 'X' strings: 'b' } arg { name: 'outer_blobs_idx' ints: 0 ints: 1 }
    arg { name: 'net' n { op { type: 'Abs' input: 'X' output: 'b' } } } })";
  EXPECT_NE(error(takes).find("\"X\" is bound here, but another Do has it as a name of its own in the scope"),
            std::string::npos);
  const std::string owns = R"(op { type: 'Do' input: 'Y' input: 'scope' output: 'Z' output: 'scope'
    arg { name: 'inner_blobs' strings: 'c' strings: 'b' } arg { name: 'outer_blobs_idx' ints: 0 ints: 1 }
    arg { name: 'net' n { op { type: 'Abs' input: 'c' output: 'a' } op { type: 'Abs' input: 'a' output: 'b' } } } })";
  EXPECT_NE(error(owns).find("\"a\" is not bound here, but another Do binds it in the scope"), std::string::npos);
}

// What a Do has bound may be gone when the next runs.
TEST_F(Do, LeavesNothingOfOthersInTheScope) {
  run_net_once(net_of(kScope + do_text(kTwoSteps, kNames, kPlaces)), w_, run_);
  EXPECT_EQ(w_.at("scope").get<Scope>().state->blobs.names(), (std::vector<std::string>{"X"}));
  const std::string fails = do_text("op { type: 'FC' input: 'a' input: 'a' input: 'a' output: 'b' }", kNames, kPlaces);
  EXPECT_NE(error(fails), "");
  EXPECT_EQ(w_.at("scope").get<Scope>().state->blobs.names(), (std::vector<std::string>{"X"}));
  run_net_once(net_of(do_text(kTwoSteps, kNames, kPlaces)), w_, run_);
  EXPECT_EQ(floats("Y"), (Floats{-1, -4, -9}));
}

TEST_F(Do, OneAtATimeInAScope) {
  const std::string inner = R"(op { type: 'Do' input: 'a' input: 's' output: 'b' output: 's'
    arg { name: 'inner_blobs' strings: 'a' strings: 'b' } arg { name: 'outer_blobs_idx' ints: 0 ints: 1 }
    arg { name: 'net' n { op { type: 'Abs' input: 'a' output: 'b' } } } })";
  const std::string outer = R"(op { type: 'Do' input: 'X' input: 'scope' input: 'scope' output: 'Y' output: 'scope'
    output: 'scope' arg { name: 'inner_blobs' strings: 'a' strings: 's' strings: 'b' }
    arg { name: 'outer_blobs_idx' ints: 0 ints: 1 ints: 2 } arg { name: 'net' n { )" +
                            inner + " } } }";
  EXPECT_NE(error(kScope + outer), "");
}

TEST_F(Do, DrawsAreItsOwn) {
  const std::string fill = "op { type: 'UniformFill' output: 'b' arg { name: 'shape' ints: 3 } }";
  const auto draws = [&](const std::string& scope, const std::string& y) {
    return "op { type: 'CreateScope' output: '" + scope + "' } op { type: 'Do' input: '" + scope + "' output: '" + y +
           "' output: '" + scope +
           "' arg { name: 'inner_blobs' strings: 'b' } arg { name: 'outer_blobs_idx' ints: 0 } "
           "arg { name: 'net' n { " +
           fill + " } } }";
  };
  Net net(net_of("name: 'net' " + fill + draws("s", "Y") + draws("t", "Z")), w_);
  net.run(run_);
  const Floats b = floats("b"), y = floats("Y"), z = floats("Z");
  EXPECT_NE(y, z);
  EXPECT_NE(b, y);
  net.run(run_);
  EXPECT_NE(floats("Y"), y);
}

TEST_F(Do, OutlivesItsScope) {
  w_.tensor("Y");
  Net create(net_of(kScope), w_), net(net_of(do_text(kTwoSteps, kNames, kPlaces)), w_);
  for (int i = 0; i < 4; ++i) {
    create.run(run_);
    net.run(run_);
    EXPECT_EQ(floats("Y"), (Floats{-1, -4, -9}));
    w_.at("scope").clear();
  }
  EXPECT_NE(error_text([&] { net.run(run_); }).find("\"scope\" must hold a scope, which CreateScope makes"),
            std::string::npos);
}

TEST_F(Do, RefusesWrongBindings) {
  const auto refused = [&](const std::string& text, const std::string& what) {
    const std::string said = error(kScope + text);
    EXPECT_NE(said.find(what), std::string::npos) << said;
  };
  refused(do_text(kTwoSteps, "strings: 'a'", kPlaces), "inner_blobs has 1 names, but outer_blobs_idx 2 places");
  refused(do_text(kTwoSteps, kNames, "ints: 0 ints: 2"), "outer_blobs_idx has 2, but there are 2 inputs and outputs");
  refused(do_text(kTwoSteps, kNames, "ints: 0 ints: -1"), "outer_blobs_idx has -1");
  refused(do_text(kTwoSteps, "strings: 'a' strings: 'a'", kPlaces), "inner_blobs has \"a\" twice");
  refused(do_text(kTwoSteps, kNames, "ints: 0 ints: 0"), "outer_blobs_idx binds \"X\" twice");
  refused(do_text("op { type: 'Sqr' input: 'a' output: 'c' }", "strings: 'a'", "ints: 0"),
          "no name of the net is bound to \"Y\"");
  refused(do_text("op { type: 'Sqr' input: 'c' output: 'b' }", kNames, kPlaces),
          "the net reads \"c\", which it does not write before and which is bound to no blob outside");
  refused("op { type: 'Do' input: 'X' input: 'scope' output: 'Y' arg { name: 'net' n { } } }",
          "the last input and the last output must be the same scope");
  refused("op { type: 'Do' input: 'X' output: 'X' arg { name: 'net' n { } } }",
          "\"X\" must hold a scope, which CreateScope makes, but holds float[3]");
  refused(
      "op { type: 'Do' input: 'X' input: 'scope' output: 'scope' arg { name: 'inner_blobs' strings: 'a' } "
      "arg { name: 'outer_blobs_idx' ints: 0 } arg { name: 'net' n { op { type: 'Sqr' input: 'a' output: 'a' } } } }",
      "the net writes \"a\", which is bound to an input that is no output");
  refused("op { type: 'Do' input: 'scope' output: 'scope' }", "argument \"net\" (net) is missing");
}

TEST_F(Do, FilesStayConfined) {
  const std::string save =
      "op { type: 'SaveNpy' input: 'a' arg { name: 'path' s: '../out.npy' } } "
      "op { type: 'Copy' input: 'a' output: 'b' }";
  const TempFolder base;
  std::filesystem::create_directory(base.file("root"));
  w_.confine(std::make_shared<const FileRoot>(base.file("root")));
  EXPECT_NE(error(kScope + do_text(save, kNames, kPlaces)), "");
  EXPECT_FALSE(std::filesystem::exists(base.file("out.npy")));
}

}  // namespace
}  // namespace stepnet::testing::do_test
