// The README's net is the file that it says it is, and a net that Stepnet accepts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>

#include "core/io/text.h"
#include "core/net/net.h"
#include "recurrent/form/builder.h"
#include "tests/operators/op_test.h"
#include "tests/tools/command.h"
#include "tools/source_path.h"

namespace stepnet::readme_test {
namespace {

std::string read(const std::string& path) {
  std::ifstream in(source_path(path), std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

// The lines between the first ```language and the ``` after it.
std::string code_block(const std::string& text, const std::string& language) {
  const std::string open = fmt::format("\n```{}\n", language);
  const size_t begin = text.find(open);
  if (begin == text.npos) return "";
  const size_t end = text.find("```", begin + open.size());
  return end == text.npos ? "" : text.substr(begin + open.size(), end - begin - open.size());
}

TEST(Readme, ItsNetIsTheExampleFile) {
  const std::string block = code_block(read("README.md"), "protobuf");
  ASSERT_FALSE(block.empty());
  EXPECT_EQ(block, read("tools/examples/lstm.pbtxt"));
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

TEST(Readme, ItsOperatorIsTheExampleFile) {
  const std::string file = read("tools/examples/plugin/scale_by.cc");
  EXPECT_NE(read("README.md").find("```cpp\n" + file + "```"), std::string::npos);
  EXPECT_LE(std::count(file.begin(), file.end(), '\n'), 20);
}

TEST(Readme, ItsModelIsTheExampleFiles) {
  const std::string block = code_block(read("README.md"), "proto");
  ASSERT_TRUE(block.starts_with("[stepnet.model] {"));
  EXPECT_TRUE(read("tools/examples/char_lstm.pbtxt").ends_with(block));
}

TEST(Readme, ItHasALineForEverySubcommand) {
  const std::string readme = read("README.md"), help = testing::stepnet("--help").out;
  std::istringstream lines(help.substr(help.find("Subcommands:\n")));
  std::string line, name;
  std::getline(lines, line);
  int count = 0;
  while (std::getline(lines, line) && std::istringstream(line) >> name) {
    EXPECT_NE(readme.find("| `stepnet " + name + "` | "), readme.npos) << name;
    ++count;
  }
  EXPECT_GE(count, 6);
}

TEST(Readme, ItsCommandsAreThere) {
  const std::string readme = read("README.md");
  for (const char* command : {"tools/quickstart", "tools/check"}) {
    EXPECT_NE(readme.find(command), readme.npos) << command;
    EXPECT_TRUE(read(command).starts_with("#!")) << command;
  }
}

}  // namespace
}  // namespace stepnet::readme_test
