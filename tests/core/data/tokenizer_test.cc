#include "core/data/tokenizer.h"

#include <gtest/gtest.h>

#include "core/data/subwords.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::testing::tokenizer_test {
namespace {

using Tokens = std::vector<int32_t>;

class Tokenizers : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> open(const std::string& content) const {
    write_all(folder_.file("vocab"), content);
    return open_tokenizer(folder_.file("vocab"));
  }
  std::string error(const std::string& content) const {
    return error_text([&] { open(content); });
  }
  TempFolder folder_;
};

TEST(LinesOf, AreWhatLineBreaksPart) {
  EXPECT_TRUE(lines_of("").empty());
  EXPECT_EQ(lines_of("a\n\nb\r\nc"), (std::vector<std::string_view>{"a", "", "b", "c"}));
  EXPECT_EQ(lines_of("a\n"), (std::vector<std::string_view>{"a"}));
  EXPECT_EQ(lines_of("\n"), (std::vector<std::string_view>{""}));
}

TEST_F(Tokenizers, WordsByFrequency) {
  const std::string text = "b a\tc a\n<unk> c b a\nd";
  EXPECT_EQ(list_words(text, 5), "<unk>\n<eos>\na\nb\nc\n");
  EXPECT_EQ(list_words(text, 100), "<unk>\n<eos>\na\nb\nc\nd\n");
  expect_contains(error_text([&] { list_words(text, 2); }), "at least 3, but is 2");
  expect_contains(error_text([&] { list_words(" \n", 9); }), "the text has no words");
  const auto words = open(list_words(text, 5));
  EXPECT_EQ(words->size(), 5);
  EXPECT_EQ(words->encode(" c  a d\r"), (Tokens{4, 2, 0}));
  EXPECT_TRUE(words->encode("").empty());
  EXPECT_EQ(words->end_of_line(), 1);
}

TEST_F(Tokenizers, ListsThatAreNoneAreRefused) {
  EXPECT_EQ(open("<unk>\na")->end_of_line(), std::nullopt);
  expect_contains(error("<unk>\na\na\n"), "has \"a\" twice");
  expect_contains(error("<unk>\na b\n"), "line 2 of");
  expect_contains(error("<unk>\n\na\n"), "must be one word, but is \"\"");
  expect_contains(error("a\nb\n"), "it must begin with <unk>");
  expect_contains(error("<subwords>\na\n"), "it must begin with <unk>");
  expect_contains(error("<subwords>\n"), "it must begin with <unk>");
  expect_contains(error(""), "it must begin with <unk>");
}

TEST_F(Tokenizers, CharactersAreThoseOfUtf8) {
  EXPECT_EQ(characters_of("a\u00e4\u20ac\U0001F600"),
            (std::vector<std::string_view>{"a", "\u00e4", "\u20ac", "\U0001F600"}));
  EXPECT_EQ(characters_of("\xE2\x82z\xFF"), (std::vector<std::string_view>{"\xE2", "\x82", "z", "\xFF"}));
}

// The example of the paper, with the mark at the beginning of words in place of one at their end.
TEST_F(Tokenizers, NeighboursThatStandTogetherMostOftenBecomeOne) {
  std::string text;
  const auto add = [&](const char* word, int times) {
    for (int i = 0; i < times; ++i) text += fmt::format("{}\n", word);
  };
  add("low", 5);
  add("lower", 2);
  add("newest", 6);
  add("widest", 3);
  // "es" is there 9 times, and then "est"; the mark with "l" 7 times, as "ow", and then both together.
  const std::string list = list_subwords(text, 13 + 5);
  EXPECT_EQ(list, "<subwords>\n<unk>\n<eos>\n\u2581\nd\ne\ni\nl\nn\no\nr\ns\nt\nw\nes\nest\n\u2581l\now\n\u2581low\n");
  const auto tokenizer = open(list);
  EXPECT_EQ(tokenizer->size(), 18);
  EXPECT_EQ(tokenizer->end_of_line(), 1);
  EXPECT_EQ(tokenizer->encode("lowest"), (Tokens{17, 14}));
  EXPECT_EQ(tokenizer->encode("low z\r"), (Tokens{17, 2, 0}));
  EXPECT_TRUE(tokenizer->encode(" ").empty());
  expect_contains(error_text([&] { list_subwords(text, 12); }), "there are at least 13 sub-words, but 12 are wanted");
  expect_contains(error_text([&] { list_subwords(text, 1000); }), "choose a smaller --size");
  expect_contains(error_text([&] { list_subwords("", 1000); }), "the text has no words");
}

TEST_F(Tokenizers, TheEarliestEntryIsMadeFirst) {
  const auto tokenizer = open("<subwords>\n<unk>\n\u2581\na\nb\nc\nbc\nab\naa\n");
  EXPECT_EQ(tokenizer->encode("abc"), (Tokens{1, 2, 5}));
  EXPECT_EQ(tokenizer->encode("aaa"), (Tokens{1, 7, 2}));
  EXPECT_EQ(tokenizer->encode("aab"), (Tokens{1, 2, 6}));
  EXPECT_EQ(tokenizer->end_of_line(), std::nullopt);
}

// What the list was made of is encoded as it was merged: no neighbours are left that are an entry.
TEST_F(Tokenizers, TextsAreThePiecesOfTheirTokens) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += fmt::format("{} {:x} ab{}\n", i * i, i * 7919, std::string(i % 5, 'a'));
  const std::string list = list_subwords(text, 80);
  const auto tokenizer = open(list);
  const std::vector<std::string_view> entries = lines_of(list);
  for (const std::string_view line : lines_of(text)) {
    std::string back, expected;
    for (const int32_t token : tokenizer->encode(line)) back += entries[static_cast<size_t>(token) + 1];
    each_word(line, [&](std::string_view word) { expected += std::string(kWordMark).append(word); });
    ASSERT_EQ(back, expected);
  }
}

}  // namespace
}  // namespace stepnet::testing::tokenizer_test
