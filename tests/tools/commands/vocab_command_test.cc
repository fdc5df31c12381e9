// `stepnet vocab`, and nets that are trained on tokens.
#include <gtest/gtest.h>

#include "tests/core/temp_folder.h"
#include "tests/tools/command.h"

namespace stepnet::testing::vocab_command_test {
namespace {

class VocabCommand : public ::testing::Test {
 protected:
  VocabCommand() {
    std::string text;
    for (int i = 0; i < 30; ++i) text += "the cat sat on the mat\na dog lay on a log\n";
    write_all(text_, text);
  }
  std::string vocab(const std::string& more) const { return "vocab " + text_ + " --output " + vocab_ + more; }

  TempFolder folder_;
  std::string text_ = folder_.file("a.txt"), vocab_ = folder_.file("vocab");
};

TEST_F(VocabCommand, ListsWords) {
  expect_command(vocab(" --words --size 5"), 0, "5 words; the text is 360 of them, 180 of which are not in it");
  EXPECT_EQ(read_all(vocab_), "<unk>\n<eos>\na\non\nthe\n");
}

TEST_F(VocabCommand, ModelsSubWords) {
  expect_command(vocab(" --subwords --size 30"), 0, "30 sub-words; the text is");
  expect_command(vocab(" --subwords --size 30000"), 2, "choose a smaller --size");
}

TEST_F(VocabCommand, MistakesAreNamed) {
  expect_command(vocab(" --size 5"), 2, "give --words or --subwords");
  expect_command(vocab(" --words --subwords --size 5"), 2, "--subwords");
  expect_command(vocab(" --words --size 2"), 2, "--size");
  expect_command(vocab(" --words"), 2, "--size");
  expect_command("vocab " + folder_.file("no") + " --words --size 9 --output " + vocab_, 2, folder_.file("no"));
  expect_command("vocab " + text_ + " --words --size 9 --output " + folder_.file("no/v"), 2, "no");
  EXPECT_EQ(folder_.count(), 1);
}

// A language model of words: each batch goes on where the one before ended, and targets are a token further.
TEST_F(VocabCommand, AStreamOfWordsIsLearned) {
  expect_command(vocab(" --words --size 20"), 0, "11 words");
  const std::string net = folder_.file("words.pbtxt");
  write_all(net, R"(name: "words"
      op { type: "Gather" input: "E" input: "word" output: "x" }
      op { type: "RNN" name: "rnn" arg { name: "hidden" i: 16 } input: "x" input: "" input: "V" input: "W" input: "b"
           input: "c" output: "h" }
      op { type: "FC" arg { name: "axis" i: 2 } input: "h" input: "U" input: "d" output: "scores" }
      op { type: "SoftmaxWithLoss" arg { name: "axis" i: 2 } input: "scores" input: "next" output: "p" output: "loss" }
      [stepnet.model] {
        init {
          op { type: "XavierFill" output: "E" arg { name: "shape" ints: 11 ints: 8 } }
          op { type: "XavierFill" output: "V" arg { name: "shape" ints: 16 ints: 8 } }
          op { type: "XavierFill" output: "W" arg { name: "shape" ints: 16 ints: 16 } }
          op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 16 } }
          op { type: "ConstantFill" output: "c" arg { name: "shape" ints: 16 } }
          op { type: "XavierFill" output: "U" arg { name: "shape" ints: 11 ints: 16 } }
          op { type: "ConstantFill" output: "d" arg { name: "shape" ints: 11 } }
        }
        loss: "loss" batch: 4
        data { column: "text" blob: "word" axis: 1 window: 5 stride: 5 }
        data { column: "text" blob: "next" axis: 1 window: 5 stride: 5 shift: 1 }
        metric { name: "perplexity" prediction: "scores" target: "next" }
      })");
  const std::string data = " --data text=" + text_ + "@" + vocab_ + ":stream";
  const std::string text = expect_command(
      "train " + net + data + " --order streams --epochs 30 --lr 0.02 --out " + folder_.file("run"), 0, "perplexity");
  const std::string result = expect_command("evaluate --out " + folder_.file("run") + data, 0, "perplexity");
  EXPECT_LT(std::stod(result.substr(result.find("perplexity") + 10)), 3) << text << result;
}

}  // namespace
}  // namespace stepnet::testing::vocab_command_test
