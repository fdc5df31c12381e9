// The README's net is the file that it says it is, and a net that Stepnet accepts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "core/io/text.h"
#include "core/net.h"
#include "proto/recurrent.pb.h"

namespace stepnet {
namespace {

std::string read(const std::string& path) {
  std::ifstream in(std::string(STEPNET_SOURCE_DIR) + "/" + path, std::ios::binary);
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

TEST(Readme, ItsNetPassesTheCheck) {
  const std::string root = STEPNET_SOURCE_DIR;
  const NetDef net = load_net(root + "/tools/examples/lstm.pbtxt");
  ASSERT_EQ(net.op_size(), 1);
  EXPECT_NO_THROW(check_net(net, nullptr));
  const RecurrentDef& loop = net.op(0).GetExtension(recurrent);
  EXPECT_NO_THROW(check_net(loop.step_net(), nullptr));
}

TEST(Readme, ItsCommandsAreThere) {
  const std::string readme = read("README.md");
  for (const char* command : {"tools/quickstart", "tools/check"}) {
    EXPECT_NE(readme.find(command), readme.npos) << command;
    EXPECT_TRUE(read(command).starts_with("#!")) << command;
  }
}

}  // namespace
}  // namespace stepnet
