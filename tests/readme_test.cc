// README.md is short, and its first net, an LSTM, runs over a sequence. What it shares with the other pages is tested
// in tests/docs_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "recurrent/form/short_form.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "tests/core/temp_folder.h"
#include "tests/operators/op_test.h"
#include "tests/pages.h"
#include "tools/source_path.h"

namespace stepnet::readme_test {
namespace {

TEST(Readme, IsShort) {
  const std::string text = testing::read_page("README.md").text;
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 150);
}

TEST(Readme, ItsFirstNetIsTheExampleFile) {
  const testing::Page page = testing::read_page("README.md");
  const auto net = std::ranges::find(page.blocks, "protobuf", &testing::CodeBlock::language);
  ASSERT_NE(net, page.blocks.end());
  EXPECT_EQ(net->name, "tools/examples/lstm.pbtxt");
  EXPECT_EQ(net->text, testing::read_all(source_path(net->name)));
}

// Lists of blobs that may be left out are left out.
TEST(Readme, ItsNetIsTheShortestFormThatWorks) {
  const std::string file = testing::read_all(source_path("tools/examples/lstm.pbtxt"));
  EXPECT_EQ(file.find("external_"), file.npos);
  EXPECT_LE(std::count(file.begin(), file.end(), '\n'), 25);
}

TEST(Readme, ItsNetRunsOverASequence) {
  NetDef def = load_net(source_path("tools/examples/lstm.pbtxt"));
  expand_recurrent(def);
  EXPECT_NO_THROW(check_net(def, nullptr));
  constexpr int64_t T = 5, B = 3, I = 4, H = 2;
  Workspace workspace;
  const std::pair<const char*, Shape> inputs[] = {{"x", {T, B, I}},    {"h0", {1, B, H}}, {"c0", {1, B, H}},
                                                  {"W_x", {4 * H, I}}, {"b_x", {4 * H}},  {"W_h", {4 * H, H}},
                                                  {"b_h", {4 * H}}};
  for (const auto& [name, shape] : inputs) workspace.tensor(name) = testing::uniform<float>(shape, -1, 1);
  RunContext run;
  run_net_once(def, workspace, run);
  const Tensor& states = workspace.fetch("h_all");
  EXPECT_EQ(states.shape(), (Shape{T, B, H}));
  for (const float h : states.span<float>()) EXPECT_LT(std::abs(h), 1);
}

// A whole operator, with everything that it is, is this short.
TEST(Readme, AnOperatorTakesTwentyLines) {
  const std::string file = testing::read_all(source_path("tools/examples/plugin/scale_by.cc"));
  EXPECT_LE(std::count(file.begin(), file.end(), '\n'), 20);
}

}  // namespace
}  // namespace stepnet::readme_test
