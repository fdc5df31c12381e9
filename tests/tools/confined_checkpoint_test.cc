// Run folders and checkpoints from anybody: `stepnet sample` and `stepnet train --resume` touch nothing outside of
// them.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "recurrent/train/run_folder.h"
#include "recurrent/train/text_corpus.h"
#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"
#include "tests/tools/command.h"
#include "tools/source_path.h"

namespace stepnet::testing::confined_checkpoint_test {
namespace {

namespace fs = std::filesystem;

class ConfinedCheckpoint : public ::testing::Test {
 protected:
  ConfinedCheckpoint() {
    write_all(file("text"), tiny_text());
    TrainOptions o = tiny_options(file("text"), 20);
    o.out = run_;
    Trainer(tiny_net(), o).run();
    fs::create_directory(file("outside"));
    fs::copy_file(run_ + "/best/best.ckpt", file("outside/best.ckpt"));
  }
  std::string file(const std::string& name) const { return folder_.file(name); }

  // The run's checkpoint with another net in it.
  void set_net(const NetDef& net) const {
    Checkpoint c = load_best(run_);
    c.texts["net"] = to_text(net);
    save_checkpoint(run_ + "/best", "best", c);
  }
  static OperatorDef operator_of(const std::string& text) { return parse_net_text(text, "text").op(0); }
  static NetDef with_init(const std::string& op) {
    NetDef net = tiny_net();
    *net.MutableExtension(model)->mutable_init()->add_op() = operator_of(op);
    return net;
  }
  static NetDef with_operator(const std::string& op) {
    NetDef net = tiny_net();
    *net.add_op() = operator_of(op);
    return net;
  }
  Outcome sample(const std::string& options = "") const {
    return stepnet("sample --out " + run_ + " --length 5 --threads 1 " + options);
  }
  void refuses(const Outcome& outcome, const std::string& message) const {
    EXPECT_EQ(outcome.code, 2) << outcome.text();
    expect_contains(outcome.err, message);
    EXPECT_EQ(std::distance(fs::directory_iterator(file("outside")), {}), 1);
  }
  Outcome resume(const std::string& options = "") const {
    write_all(file("net.pbtxt"), tiny_net_text());
    return stepnet("train " + file("net.pbtxt") + " --text " + file("text") + " --out " + run_ +
                   " --resume --iterations 25 --threads 1 --quiet " + options);
  }

  TempFolder folder_;
  std::string run_ = folder_.file("run");
};

TEST_F(ConfinedCheckpoint, InitNetsOnlyFill) {
  const std::string out = file("outside/new"), place = " arg { name: 'db' s: '" + out +
                                                       "' } arg { name: 'db_type' s: "
                                                       "'minidb' } arg { name: 'absolute_path' i: 1 } }";
  const std::string path = " arg { name: 'path' s: '" + out + "' } arg { name: 'absolute_path' i: 1 } }";
  const std::pair<const char*, std::string> tries[] = {
      {"Load", "op { type: 'Load' output: 'q'" + place},
      {"Save", "op { type: 'Save' input: 'b'" + place},
      {"LoadNpy", "op { type: 'LoadNpy' output: 'q'" + path},
      {"SaveNpy", "op { type: 'SaveNpy' input: 'b'" + path},
      {"Print", "op { type: 'Print' input: 'b' arg { name: 'to_file' i: 1 } }"},
      {"CreateDB", "op { type: 'CreateDB' output: 'q' arg { name: 'db' s: '" + out + "' } }"},
      {"While",
       "op { type: 'While' input: 'q' output: 'q' arg { name: 'loop_net' n { op { type: 'Not' input: 'q' "
       "output: 'q' } } } }"},
      {"Copy", "op { type: 'Copy' input: 'b' output: 'q' }"},
  };
  for (const auto& [type, op] : tries) {
    set_net(with_init(op));
    refuses(sample(), std::string("the init net of a checkpoint may only fill tensors, but has the operator ") + type +
                          "; it may have ConstantFill, ");
    refuses(sample("--root " + folder_.path()), "the init net of a checkpoint may only fill tensors");
  }
  set_net(with_init("op { type: 'UniformIntFill' output: 'q' arg { name: 'shape' ints: 3 } }"));
  EXPECT_EQ(sample().code, 0);
}

TEST_F(ConfinedCheckpoint, WhatFills) {
  std::string types;
  for (const std::string& type : op_types())
    if (only_fills(op_spec(type)) && !type.starts_with("PlanTest") && !type.starts_with("Test")) types += type + " ";
  EXPECT_EQ(types,
            "ConstantFill DiagonalFill GaussianFill GivenTensorBoolFill GivenTensorDoubleFill GivenTensorFill "
            "GivenTensorInt64Fill GivenTensorIntFill GivenTensorStringFill MSRAFill RangeFill UniformFill "
            "UniformIntFill UniqueUniformFill XavierFill ");
}

TEST_F(ConfinedCheckpoint, ForwardNetsOpenNoFiles) {
  const std::string out = file("outside/new");
  const std::string ops[] = {
      "op { type: 'SaveNpy' input: 'logits' arg { name: 'path' s: '" + out + "' } arg { name: 'absolute_path' i: 1 } }",
      "op { type: 'Print' input: 'logits' arg { name: 'to_file' i: 1 } }",
      "op { type: 'Summarize' input: 'logits' arg { name: 'to_file' i: 1 } }",
      "op { type: 'LoadNpy' output: 'q' arg { name: 'path' s: '" + file("text") +
          "' } arg { name: 'absolute_path' i: 1 } }",
      "op { type: 'CreateTextReader' output: 'q' arg { name: 'file' s: '" + file("text") +
          "' } arg { name: 'batch' i: 1 } arg { name: 'timesteps' i: 1 } }",
  };
  for (const std::string& op : ops) {
    set_net(with_operator(op));
    refuses(sample(), "it comes from a file that need not be trusted");
  }
  set_net(with_operator(ops[0]));
  refuses(sample("--root " + file("run")), "is absolute, but nets may only open files below the folder");
  set_net(with_operator(ops[1]));
  EXPECT_EQ(sample("--root " + file("outside")).code, 0);
  EXPECT_TRUE(fs::exists(file("outside/logits.log")));
}

TEST_F(ConfinedCheckpoint, ANetThatIsNamedIsConfinedToo) {
  write_all(file("net.pbtxt"), to_text(with_init("op { type: 'SaveNpy' input: 'b' arg { name: 'path' s: 'b.npy' } }")));
  const auto sample_it = [&](const std::string& options) {
    return stepnet("sample " + file("net.pbtxt") + " --out " + run_ + " --length 5 --threads 1 " + options);
  };
  refuses(sample_it(""), "the net may not open \"b.npy\"");
  EXPECT_EQ(sample_it("--root " + file("outside")).code, 0);
  EXPECT_TRUE(fs::exists(file("outside/b.npy")));
}

TEST_F(ConfinedCheckpoint, FilesOfARunAreNoLinksAndNoPipes) {
  const std::string best = run_ + "/best/best.ckpt";
  fs::remove(best);
  fs::create_symlink(file("outside/best.ckpt"), best);
  refuses(sample(), "it is a link");
  fs::remove(best);
  ASSERT_EQ(::mkfifo(best.c_str(), 0600), 0);
  refuses(sample(), "is not a regular file");
  fs::remove_all(run_ + "/best");
  fs::create_directory_symlink(file("outside"), run_ + "/best");
  refuses(sample(), "a link leads to it");
  refuses(resume(), "a link leads to it");
  fs::remove(run_ + "/best");
  EXPECT_EQ(sample().code, 0);
  fs::remove(run_ + "/iteration-20.ckpt");
  for (const auto& entry : fs::directory_iterator(run_))
    if (entry.path().extension() == ".ckpt") fs::remove(entry.path());
  fs::create_symlink(file("outside/best.ckpt"), run_ + "/iteration-20.ckpt");
  refuses(sample(), "none of the checkpoints in");
}

TEST_F(ConfinedCheckpoint, AResumedRunWritesThroughNoLink) {
  for (const char* name : {"latest", "parameters.minidb", "metrics.jsonl", "best/best.ckpt"}) {
    fs::rename(run_ + "/" + name, file("kept"));
    fs::create_symlink(file("outside/new"), run_ + "/" + name);
    refuses(resume(), "is not a regular file");
    fs::remove(run_ + "/" + name);
    ASSERT_EQ(::mkfifo((run_ + "/" + name).c_str(), 0600), 0);
    refuses(resume(), "is not a regular file");
    fs::remove(run_ + "/" + name);
    fs::rename(file("kept"), run_ + "/" + name);
  }
  const Outcome outcome = resume();
  EXPECT_EQ(outcome.code, 0) << outcome.text();
}

TEST_F(ConfinedCheckpoint, ATextRulesNoTerminal) {
  write_all(file("text"), "\033[2J" + tiny_text());
  TrainOptions o = tiny_options(file("text"), 1);
  o.out = run_ = file("other");
  Trainer(tiny_net(), o).run();
  const std::vector<std::string> call = {"sample", "--out", run_, "--length", "1", "--prompt", "\033[2J\nthe"};
  const std::string shown = on_terminal(call);
  EXPECT_TRUE(shown.starts_with("\\x1b[2J\r\nthe")) << shown;
  EXPECT_TRUE(stepnet(call).out.starts_with("\033[2J\nthe"));
}

TEST_F(ConfinedCheckpoint, TrainingIsConfinedByRoot) {
  const std::string op = "op { type: 'Print' input: 'logits' arg { name: 'to_file' i: 1 } }";
  const std::string save = "op { type: 'SaveNpy' input: 'b' arg { name: 'path' s: '../outside/new' } }";
  const auto train = [&](const NetDef& net) {
    write_all(file("net.pbtxt"), to_text(net));
    fs::create_directories(file("root"));
    return stepnet("train " + file("net.pbtxt") + " --text " + file("text") +
                   " --iterations 2 --threads 1 --quiet --device cpu --root " + file("root"));
  };
  const Outcome outcome = train(with_operator(op));
  EXPECT_EQ(outcome.code, 0) << outcome.text();
  EXPECT_TRUE(fs::exists(file("root/logits.log")));
  refuses(train(with_init(save)), "leads out of it");
  const std::string load =
      "op { type: 'LoadNpy' output: 'q' arg { name: 'path' s: '/x' } arg { name: 'absolute_path' i: 1 } }";
  refuses(train(with_operator(load)), "is absolute");
  for (const char* command : {"bench", "estimate", "explain", "check"})
    refuses(stepnet(std::string(command) + " " + file("net.pbtxt") + " --root " + file("root")), "is absolute");
}

}  // namespace
}  // namespace stepnet::testing::confined_checkpoint_test
