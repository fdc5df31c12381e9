// Control characters in messages, and in what the command prints.
#include "core/visible_text.h"

#include <gtest/gtest.h>

#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"
#include "tests/tools/command.h"

namespace stepnet::testing::visible_text_test {
namespace {

TEST(VisibleText, ControlCharactersAreWrittenOut) {
  EXPECT_EQ(visible_text("plain text"), "plain text");
  EXPECT_EQ(visible_text("\033[2J\a\r\b\x7f"), "\\x1b[2J\\x07\\x0d\\x08\\x7f");
  EXPECT_EQ(visible_text(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(visible_text("a\tb\n"), "a\tb\n");
  EXPECT_EQ(visible_text("a\tb\n", LineEnds::written_out), "a\\x09b\\x0a");
}

TEST(VisibleText, LettersStay) {
  EXPECT_EQ(visible_text("Größe 東京 €"), "Größe 東京 €");
  EXPECT_EQ(visible_text("\xc2\x9b"
                         "31m"),
            "\xc2\\x9b31m");  // the one-character form of ESC [
}

TEST(VisibleText, MessagesHaveNone) {
  Error error("there is no \"\033]0;title\a\"", "write \033[1mit\n");
  error.add("op", "x\nerror: all is well");
  EXPECT_EQ(std::string(error.what()),
            "there is no \"\\x1b]0;title\\x07\"\n  op  x\\x0aerror: all is well\n  fix write \\x1b[1mit\\x0a");
}

std::string net(const std::string& lines) { return "name: \"\\033[31mnet\" " + lines; }

// Every command on a net of such names: nothing that it prints obeys them.
TEST(VisibleText, CommandsPrintNone) {
  const TempFolder folder;
  const std::string good = net(
      "op { type: \"ConstantFill\" output: \"\\033[2Ja\" arg { name: \"shape\" ints: 2 } arg { name: \"\\033odd\" i: 1 "
      "} } op { type: \"Print\" input: \"\\033[2Ja\" } op { type: \"GivenTensorStringFill\" output: \"s\" arg { name: "
      "\"values\" strings: \"\\033[3m\" } arg { name: \"shape\" ints: 1 } } op { type: \"Print\" input: \"s\" }");
  const std::string wrong = net("op { type: \"\\033[4mNoSuch\" output: \"\\033[2Ja\" }");
  const std::string missing = net("op { type: \"LoadNpy\" output: \"a\" arg { name: \"path\" s: \"\\033[5mx\" } }");
  const std::string recurrent =
      net("op { type: \"RecurrentNetwork\" name: \"\\033[2Jr\" input: \"X\" input: \"h0\" output: \"\\033[3mall\" "
          "[stepnet.recurrent] { sequence { outer: \"X\" inner: \"\\033[4mx\" } state { input: \"h_prev\" output: "
          "\"\\033[5mh\" initial: \"h0\" all: \"\\033[3mall\" } timestep: \"t\" step_net { op { type: \"Sum\" input: "
          "\"h_prev\" input: \"\\033[4mx\" output: \"\\033[5mh\" } } } }");
  write_all(folder.file("recurrent"), recurrent);
  write_all(folder.file("good"), good);
  write_all(folder.file("wrong"), wrong);
  write_all(folder.file("missing"), missing);
  const std::string name = "\033[2Ja";
  const std::vector<std::vector<std::string>> calls = {
      {"run", folder.file("good"), "--fetch", name, "--fetch", "s", "--watch", name, "--profile"},
      {"run", folder.file("good"), "--fetch", "\033[7mnone"},
      {"run", folder.file("wrong")},
      {"run", folder.file("missing")},
      {"check", folder.file("good")},
      {"check", folder.file("wrong")},
      {"estimate", folder.file("good")},
      {"estimate", folder.file("good"), "--json"},
      {"bench", folder.file("good"), "--iterations", "1", "--json"},
      {"gradcheck", folder.file("good"), "--loss", name},
      {"expand", folder.file("good")},
      {"draw", folder.file("good")},
      {"explain", folder.file("recurrent"), "--feed", "X=float[2,1,3]", "--feed", "h0=float[1,3]"},
      {"run", folder.file("\033[8mnone")},
      {"run", "--\033[9moption"},
      {"ops", "\033[1mnone"},
  };
  for (const std::vector<std::string>& call : calls) {
    const std::string printed = stepnet(call).text();
    EXPECT_FALSE(printed.empty()) << call[0];
    EXPECT_EQ(printed.find('\033'), std::string::npos) << call[0] << "\n" << visible_text(printed);
  }
  expect_contains(stepnet(calls[0]).text(), "\\x1b[2Ja float[2]: 0 0");
}

}  // namespace
}  // namespace stepnet::testing::visible_text_test
