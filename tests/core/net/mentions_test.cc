// Which names may stand in a message: wherever one does, it is found.
#include "core/net/mentions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "stepnet/text.h"

namespace stepnet::testing::mentions_test {
namespace {

using Names = std::vector<std::string>;

Names mentioned(const Names& names, const std::string& text) {
  Mentions mentions;
  for (const std::string& name : names) mentions.add(name);
  return mentions.in(text);
}

TEST(Mentions, AsFieldsAndInNetsAndTexts) {
  const NetDef net = parse_net_text(
      "op { type: \"If\" input: \"in\" arg { name: \"then_net\" n { op { type: \"Relu\" input: \"deep\" } } } arg { "
      "name: "
      "\"step_net\" s: \"op { input: 'single' output: \\\"double\\\" }\" } arg { name: \"x\" strings: \"listed\" } }");
  const Names names = {"deep", "double", "in", "inn", "listed", "name", "single", "sing", "other"};
  EXPECT_EQ(mentioned(names, net.SerializeAsString()), (Names{"deep", "double", "in", "listed", "single"}));
}

TEST(Mentions, LongNamesAndQuotes) {
  const std::string name(200, 'n'), quoted = "a'b";
  EXPECT_EQ(mentioned({name}, "input: \"" + name + "\""), Names{name});
  EXPECT_EQ(mentioned({name}, "input: \"" + name), Names());
  EXPECT_EQ(mentioned({quoted, "c"}, ""), Names{quoted});  // may be anywhere
  EXPECT_EQ(mentioned({"a", "b"}, "'a\"b'"), Names());
  EXPECT_EQ(mentioned({"a"}, "''a'"), Names{"a"});
  EXPECT_EQ(mentioned({}, "abc"), Names());
}

// As a search for each name, between quotes and behind its length.
TEST(Mentions, RandomTexts) {
  std::mt19937 random(1);
  const auto draw = [&](const std::string& from, size_t size) {
    std::string text;
    for (size_t i = 0; i < size; ++i) text += from[random() % from.size()];
    return text;
  };
  for (int trial = 0; trial < 300; ++trial) {
    Names names;
    for (int i = 0; i < 20; ++i) names.push_back(draw("ab", random() % 4 + 1));
    const std::string text = draw("ab'\"\x01\x02\x03", random() % 60);
    Names expected;
    for (const std::string& name : names)
      for (const std::string& pattern :
           {std::string(1, static_cast<char>(name.size())) + name, "\"" + name + "\"", "'" + name + "'"})
        if (text.find(pattern) != text.npos) expected.push_back(name);
    std::ranges::sort(expected);
    expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
    EXPECT_EQ(mentioned(names, text), expected) << text;
  }
}

}  // namespace
}  // namespace stepnet::testing::mentions_test
