// `stepnet sample --greedy` and `--beams`: what they print, and what they refuse.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"
#include "tests/tools/command.h"

namespace stepnet::sample_command_test {
namespace {

using testing::Outcome;
using testing::words;

class SampleCommandTest : public ::testing::Test {
 protected:
  SampleCommandTest() {
    testing::write_all(folder_.file("text"), testing::tiny_text());
    TrainOptions o = testing::tiny_options(folder_.file("text"), 60);
    o.out = folder_.file("run");
    Trainer(testing::tiny_net(), o).run();
  }
  Outcome run(const std::string& options, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = words("sample --out " + folder_.file("run") + " --threads 1 " + options);
    all.insert(all.end(), more.begin(), more.end());
    return testing::stepnet(all);
  }
  std::string prints(const std::string& options, const std::vector<std::string>& more = {}) const {
    const Outcome outcome = run(options, more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return outcome.out;
  }
  void refuses(const std::string& options, const std::string& message,
               const std::vector<std::string>& more = {}) const {
    const Outcome outcome = run(options, more);
    EXPECT_EQ(outcome.code, 2) << options;
    EXPECT_EQ(outcome.out, "") << options;
    EXPECT_TRUE(outcome.err.starts_with("error: ")) << outcome.err;
    testing::expect_contains(outcome.err, message);
  }
  testing::TempFolder folder_;
};

TEST_F(SampleCommandTest, Greedy) {
  const std::string text = prints("--length 50 --prompt the --greedy");
  EXPECT_EQ(text.size(), 54u);
  EXPECT_TRUE(text.starts_with("the"));
  EXPECT_EQ(prints("--length 50 --prompt the --temperature 0"), text);
  EXPECT_EQ(prints("--length 50 --prompt the --beams 1"), text);
}

TEST_F(SampleCommandTest, AllBeams) {
  const std::string best = prints("--length 30 --prompt the --beams 3");
  std::istringstream lines(prints("--length 30 --prompt the --beams 3 --all"));
  int count = 0;
  double before = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    std::istringstream words(line);
    double score = 1, log_probability = 1;
    std::string text;
    words >> score >> log_probability;
    std::getline(words.ignore(), text);
    EXPECT_LE(score, before) << line;
    EXPECT_EQ(score, log_probability) << line;
    before = score;
    // Line ends are escaped, so that each text is a line.
    std::string plain;
    for (size_t i = 1; i + 1 < text.size(); ++i) plain += text.substr(i, 2) == "\\n" ? (++i, '\n') : text[i];
    EXPECT_EQ(plain.size(), 30u) << line;
    EXPECT_TRUE(count > 0 || "the" + plain + "\n" == best) << line;
  }
  EXPECT_EQ(count, 3);
}

TEST_F(SampleCommandTest, StopTexts) {
  const std::string drawn = prints("--length 200 --temperature 1", {"--stop", "\n"});
  EXPECT_EQ(drawn.find('\n'), drawn.size() - 2) << drawn;  // the stop text, and the command's own
  const std::string found = prints("--length 200 --beams 4 --length-penalty 0.6", {"--stop", "on"});
  EXPECT_EQ(found.find("on"), found.size() - 3) << found;
}

TEST_F(SampleCommandTest, Mistakes) {
  refuses("--beams 0", "--beams: must be at least 1, but is 0\n");
  refuses("--beams two", "--beams: must be a whole number, but is \"two\"\n");
  refuses("--beams 5000", "--beams: must be at most 4096, but is 5000\n");
  refuses("--beams 2 --temperature 1", "--temperature excludes --beams\n");
  refuses("--beams 2 --seed 1", "--seed excludes --beams\n");
  refuses("--greedy --temperature 1", "--temperature excludes --greedy\n");
  refuses("--greedy --beams 2", "--greedy excludes --beams\n");
  refuses("--all", "--all requires --beams\n");
  refuses("--length-penalty 1 --stop a", "--length-penalty requires --beams\n");
  refuses("--length-penalty 1 --beams 2", "--length-penalty requires --stop\n");
  refuses("--length-penalty -1 --beams 2 --stop a", "--length-penalty: must be at least 0, but is -1\n");
  refuses("--length-penalty inf --beams 2 --stop a", "the length penalty must be at least 0, but is inf\n");
  refuses("--beams 2", "--stop: must not be empty\n", {"--stop", ""});
  refuses("", "--stop: 1 required TEXT missing\n", {"--stop="});
  refuses("--beams 2 --stop Z", "the byte 'Z' at offset 0 of the stop text");
  refuses("--greedy --stop Z", "the byte 'Z' at offset 0 of the stop text");
}

}  // namespace
}  // namespace stepnet::sample_command_test
