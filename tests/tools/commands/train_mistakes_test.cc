// What a user of `stepnet train` and `stepnet sample` may get wrong: exit code 2, one message, and nothing is left
// behind. Checkpoints that are damaged are passed over, or named.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"
#include "tests/tools/command.h"

namespace stepnet::train_mistakes_test {
namespace {

using testing::expect_command;
using testing::expect_contains;
using testing::Outcome;
using testing::read_all;
using testing::saved_bytes;
using testing::write_all;

class TrainMistakes : public ::testing::Test {
 protected:
  TrainMistakes() {
    write_all(net_, testing::tiny_net_text());
    write_all(text_, testing::tiny_text());
  }
  std::string train(const std::string& text, const std::string& out, const std::string& more) const {
    return "train " + net_ + " --threads 1 --text " + text + " --out " + out + " " + more;
  }
  std::set<std::string> files() const {
    std::set<std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) all.insert(entry.path());
    return all;
  }
  // Ends with exit code 2 and this one message, before training; no file comes or goes.
  void refuses(const std::string& line, const std::string& message) const {
    const std::set<std::string> before = files();
    const Outcome outcome = testing::stepnet(line);
    EXPECT_EQ(outcome.code, 2) << line;
    EXPECT_EQ(outcome.out, "") << line;
    EXPECT_TRUE(outcome.err.starts_with("error: ")) << outcome.err;
    EXPECT_EQ(outcome.err.find("error: ", 1), std::string::npos) << outcome.err;
    expect_contains(outcome.err, message);
    EXPECT_EQ(files(), before) << line;
  }
  std::string text_of(const std::string& content) const {
    write_all(folder_.file("other"), content);
    return folder_.file("other");
  }

  testing::TempFolder folder_;
  std::string net_ = folder_.file("tiny.pbtxt"), text_ = folder_.file("text"), out_ = folder_.file("run");
};

TEST_F(TrainMistakes, Texts) {
  refuses(train(folder_.file("none"), out_, "--iterations 2"), "none: No such file or directory\n");
  refuses(train(folder_.path(), out_, "--iterations 2"), "is not a regular file\n");
  refuses(train(text_of(""), out_, "--iterations 2"), "is empty\n");
  refuses(train(text_of("too short"), out_, "--iterations 2"),
          "has 9 bytes, but one batch of 4 streams by 7 timesteps");
  refuses(train(text_of(testing::tiny_text() + "Z"), out_, "--iterations 2"), "the byte 'Z' at offset ");
}

TEST_F(TrainMistakes, Folders) {
  refuses(train(text_, text_ + "/below", "--iterations 2"), "cannot make the folder \"" + text_ + "/below\"");
  refuses(train(text_, text_, "--iterations 2"), "cannot make the folder \"" + text_ + "\"");
  refuses(train(text_, "/proc/stepnet", "--iterations 2"), "cannot make the folder \"/proc/stepnet\"");
  refuses(train(text_, folder_.file("a/b"), "--iterations 2"), "No such file or directory\n");
  refuses(train(text_, out_, "--iterations 2 --metrics " + text_ + "/m"), "cannot write the metrics file " + text_);
  refuses(train(text_, out_, "--resume"), "there is no folder \"" + out_ + "\" to resume from\n");
  refuses(train(text_, folder_.path(), "--resume"), "has no checkpoint to resume from\n");
  expect_command(train(text_, out_, "--iterations 2"), 0, "trained 2 iterations");
  refuses(train(text_, out_, "--iterations 3"),
          "holds a run already\n  fix go on with it by --resume, or give another folder\n");
  refuses(train(text_, out_, "--resume --batch 3"), "the run has batch 4, but now 3 is asked for\n");
  refuses("sample --out " + folder_.file("none"), "there is no folder \"" + folder_.file("none") + "\"\n");
  refuses("sample --out " + folder_.path(), "has no checkpoint\n");
  refuses("sample --checkpoint " + text_, text_);
  refuses("sample", "nothing says which parameters to use\n");
  refuses("sample --out " + out_ + " --prompt Z", "the byte 'Z' at offset 0 of the prompt");
}

TEST_F(TrainMistakes, Options) {
  refuses(train(text_, out_, "--iteratons 2"), "no option --iteratons. Did you mean \"--iterations\"?\n");
  refuses(train(text_, out_, "--iterations 2 --nonsense=3"), "no option --nonsense.\n");
  refuses(train(text_, out_, "--iterations 2 --optimizer adan"),
          "--optimizer: adan not in "
          "{adam,adamw,adagrad,rmsprop,sgd,momentum,nesterov,lion,nadam,lamb,caffe2-adam,caffe2-rmsprop,caffe2-"
          "momentum,caffe2-nesterov}\n");
  refuses(train(text_, out_, "--iterations 0"), "--iterations: must be at least 1, but is 0\n");
  refuses(train(text_, out_, "--iterations two"), "--iterations: must be a whole number, but is \"two\"\n");
  refuses(train(text_, out_, "--seconds nan"), "--seconds: must be above 0, but is nan\n");
  refuses(train(text_, out_, "--iterations 2 --seconds 2"), "--iterations");
  refuses(train(text_, out_, "--iterations 2 --holdout 1"), "must be from 0 to less than 1, but is 1\n");
  refuses(train(text_, out_, "--iterations 2 --lr -1"), "must be greater than 0, but is -1\n");
  refuses(train(text_, out_, ""), "nothing says how long to train\n");
  refuses("train " + net_ + " --iterations 2", "no text or data are given to train on");
  refuses("sample --out " + out_ + " --length -1", "--length: must be at least 0, but is -1\n");
}

TEST_F(TrainMistakes, Nets) {
  const std::string more = " --iterations 2 --text " + text_ + " --out " + out_;
  refuses("train add.pbtxt" + more, "the net \"add\" does not say how it is trained\n");
  refuses("train misspelt_field.pbtxt" + more, "Did you mean \"output\"?\n");
  refuses("train count_plan.pbtxt" + more, "count_plan.pbtxt");
  write_all(net_, testing::tiny_net_text(8));
  refuses(train(text_, out_, "--iterations 2"), "the text has 18 different bytes, but the net gives scores to 8");
}

TEST_F(TrainMistakes, ALossThatIsNoNumber) {
  std::string net = testing::tiny_net_text();
  const std::string fill = "type: \"ConstantFill\" output: \"b_out\"";
  net.replace(net.find(fill), fill.size(), fill + " arg { name: \"value\" f: inf }");
  write_all(net_, net);
  const Outcome outcome = testing::stepnet(train(text_, out_, "--iterations 2 --clip 0"));
  EXPECT_EQ(outcome.code, 2);
  expect_contains(outcome.err, "use a smaller learning rate");
}

class DamagedCheckpoints : public TrainMistakes {
 protected:
  DamagedCheckpoints() {
    expect_command(train(text_, out_, "--iterations 20 --validate-every 15 --checkpoint-every 5"), 0, "trained 20");
    good_ = read_all(newest_);
  }
  void damage(const std::string& file) const {
    std::string content = read_all(file);
    content[content.size() / 2] ^= 1;
    write_all(file, content);
  }

  std::string newest_ = out_ + "/iteration-20.ckpt", older_ = out_ + "/iteration-15.ckpt", good_;
};

TEST_F(DamagedCheckpoints, TheOlderOneIsTaken) {
  const auto expected = saved_bytes(out_);
  std::string flipped = good_;
  flipped[flipped.size() / 2] ^= 1;
  std::string other_version = good_;
  other_version[8] = 9;
  for (const std::string& bad : {good_.substr(0, good_.size() / 2), good_.substr(0, 3), std::string(), flipped,
                                 other_version, std::string("a letter"), good_ + "x"}) {
    write_all(newest_, bad);
    const std::string printed = expect_command(train(text_, out_, "--resume"), 0, newest_ + " ");
    expect_contains(printed, "note: ");
    expect_contains(printed, "going on after iteration 15\n");
    EXPECT_TRUE(saved_bytes(out_) == expected);
  }
}

TEST_F(DamagedCheckpoints, WithoutTheFileLatestTheNewestIsFound) {
  for (const char* content : {"", "nothing.ckpt\n", "../../etc/passwd\n", "\n"}) {
    write_all(out_ + "/latest", std::string(content));
    expect_command(train(text_, out_, "--resume"), 0, "going on after iteration 20\n");
  }
  std::filesystem::remove(out_ + "/latest");
  expect_command(train(text_, out_, "--resume"), 0, "going on after iteration 20\n");
}

TEST_F(DamagedCheckpoints, IfAllAreDamagedItIsSaid) {
  damage(newest_);
  damage(older_);
  refuses(train(text_, out_, "--resume"), "none of the checkpoints in " + out_ + " can be read: ");
  refuses(train(text_, out_, "--iterations 20"), "none of the checkpoints in " + out_ + " can be read: ");
  damage(out_ + "/best/best.ckpt");
  refuses("sample --out " + out_, out_ + "/best/best.ckpt");
}

}  // namespace
}  // namespace stepnet::train_mistakes_test
