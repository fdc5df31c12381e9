// What a user may get wrong about a training run, and what they are told before it starts.
#include <gtest/gtest.h>

#include <limits>

#include "stepnet/arguments.h"
#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"

namespace stepnet::trainer_errors_test {
namespace {

using testing::error_text;
using testing::expect_contains;
using testing::TempFolder;
using testing::tiny_net;

class TrainerErrors : public ::testing::Test {
 protected:
  TrainerErrors() { testing::write_all(text_, testing::tiny_text()); }

  TrainOptions options(const std::string& folder = "") {
    TrainOptions o = testing::tiny_options(text_, 2);
    if (!folder.empty()) o.out = folder_.file(folder);
    return o;
  }
  std::string error(const TrainOptions& o, const NetDef& net = tiny_net()) {
    return error_text([&] { Trainer(net, o); });
  }
  std::string error_with_text(const std::string& text) {
    testing::write_all(text_, text);
    return error(options());
  }

  TempFolder folder_;
  std::string text_ = folder_.file("text");
};

TEST_F(TrainerErrors, Texts) {
  EXPECT_EQ(error_with_text(""), "the text file \"" + text_ + "\" is empty");
  EXPECT_EQ(error_with_text("too short"), "the training part of \"" + text_ +
                                              "\" has 9 bytes, but one batch of 4 streams by 7 timesteps needs 29\n"
                                              "  fix use a longer text, a smaller batch or fewer timesteps");
  const std::string text = testing::tiny_text(2000);
  expect_contains(error_with_text(text + "Z"),
                  fmt::format("the byte 'Z' at offset {} of \"{}\" is not among the 18 bytes of the vocabulary",
                              text.size(), text_));
  TrainOptions o = options();
  o.text = folder_.file("none");
  expect_contains(error(o), "No such file");
  o.text = folder_.path();
  expect_contains(error(o), "is not a regular file");
}

TEST_F(TrainerErrors, MoreMemoryThanIsLeft) {
  limit_cpu_memory(allocator(Device{}).counters().live + 50'000);
  const int64_t allocations = allocator(Device{}).counters().allocations;
  const std::string text = error(options());
  EXPECT_EQ(allocator(Device{}).counters().allocations, allocations);  // nothing was tried
  limit_cpu_memory(-1);                                                // what the machine has
  expect_contains(text, "a training step of a batch of 4 and 7 timesteps needs ");
  expect_contains(text, "but only 50.00 kB are left; then there are net inputs ");
  expect_contains(text, "fix use a smaller batch or fewer timesteps");
}

TEST_F(TrainerErrors, FewerClassesThanBytes) {
  EXPECT_EQ(error(options(), tiny_net(8)),
            "the text has 18 different bytes, but the net gives scores to 8 classes (logits is float[7, 4, 8])\n"
            "  fix give \"logits\" at least 18 classes");
}

TEST_F(TrainerErrors, Numbers) {
  auto with = [&](auto change) {
    TrainOptions o = options();
    change(o);
    return error(o);
  };
  expect_contains(with([](TrainOptions& o) { o.iterations = 0; }), "nothing says how long to train");
  expect_contains(with([](TrainOptions& o) { o.seconds = 5; }), "of iterations, seconds and epochs one is given");
  expect_contains(with([](TrainOptions& o) { o.holdout = 1; }), "must be from 0 to less than 1, but is 1");
  expect_contains(with([](TrainOptions& o) { o.optimizer.optimizer = "adan"; }),
                  "Did you mean \"adam\", \"adamw\" or \"nadam\"?");
  expect_contains(with([](TrainOptions& o) { o.optimizer.optimizer = "adan"; }),
                  "there are adam, adamw, adagrad, rmsprop, sgd, momentum, nesterov, lion, nadam, lamb, caffe2-adam, "
                  "caffe2-rmsprop, caffe2-momentum, caffe2-nesterov.");
  expect_contains(with([](TrainOptions& o) { o.optimizer.weight_decay = -1; }),
                  "the weight decay must be at least 0, but is -1");
  expect_contains(with([](TrainOptions& o) { o.optimizer.lr = -1; }), "must be greater than 0, but is -1");
  expect_contains(with([](TrainOptions& o) { o.optimizer.lr_policy = "polly"; }), "Did you mean \"poly\"?");
  expect_contains(with([](TrainOptions& o) { o.resume = true; }), "resuming needs the folder of the run");
}

// A checkpoint of an older version does not have what was not there yet; of all others it must say the value.
TEST_F(TrainerErrors, SettingsOfOlderRuns) {
  TrainOptions o = options();
  o.optimizer.lr = 0.25;
  std::map<std::string, std::string> settings = settings_of(o);
  settings.erase("weight-decay");
  TrainOptions resumed = options();
  take_settings(settings, resumed);
  EXPECT_EQ(resumed.optimizer.lr, 0.25);
  EXPECT_EQ(resumed.optimizer.weight_decay, OptimizerOptions().weight_decay);
  settings.erase("lr");
  EXPECT_EQ(error_text([&] { take_settings(settings, resumed); }), "the checkpoint does not say the run's lr");
}

TEST_F(TrainerErrors, Folders) {
  TrainOptions o = options("run");
  Trainer(tiny_net(), o).run();
  EXPECT_EQ(error(o), "the folder \"" + o.out +
                          "\" holds a run already\n  fix go on with it by --resume, or give another folder");
  o.out = folder_.file("a/b");
  expect_contains(error(o), "cannot make the folder \"" + o.out + "\": No such file or directory");
  o.out = text_;
  expect_contains(error(o), "cannot make the folder");
  o.resume = true;
  expect_contains(error(o), "there is no folder \"" + text_ + "\" to resume from");
  o.out = folder_.path();
  expect_contains(error(o), "has no checkpoint to resume from");
}

TEST_F(TrainerErrors, AResumedRunMustBeTheSame) {
  TrainOptions o = options("run");
  o.validate_every = 1;
  Trainer(tiny_net(), o).run();
  o.resume = true;
  o.batch = 3;
  o.given = {"batch"};
  EXPECT_EQ(error(o), "the run has batch 4, but now 3 is asked for\n  fix leave out --batch, or start another run");
  o.given = {};
  expect_contains(error(o, tiny_net(31)), "is not the one that the run was started with");
  testing::write_all(text_, testing::tiny_text(3100));
  expect_contains(error(o), "is not the text that the run was started with");
}

TEST_F(TrainerErrors, ALossThatIsNoNumberStopsTheRun) {
  NetDef net = tiny_net();
  for (OperatorDef& op : *net.MutableExtension(model)->mutable_init()->mutable_op())
    if (op.output(0) == "b_out") *op.add_arg() = make_arg("value", std::numeric_limits<double>::infinity());
  TrainOptions o = options("run");
  o.optimizer.clip = 0;
  const std::string text = error_text([&] { Trainer(net, o).run(); });
  expect_contains(text, "nan");
  expect_contains(text, "use a smaller learning rate");
}

TEST_F(TrainerErrors, ACheckpointThatIsNotFinite) {
  TrainOptions o = options("run");
  Trainer(tiny_net(), o).run();
  Checkpoint saved = load_latest(o.out)->contents;
  saved.tensors.at("parameter/W_out").data<float>()[1] = std::numeric_limits<float>::quiet_NaN();
  const std::string path = save_checkpoint(o.out, "iteration-3", saved);
  o.resume = true;
  EXPECT_EQ(error(o), "the parameter \"W_out\" is nan at [0, 1] in the last checkpoint in \"" + o.out +
                          "\", so the run cannot go on from it\n"
                          "  fix remove that checkpoint, to go on from the one before");
  std::filesystem::remove(path);
  EXPECT_NO_THROW(Trainer(tiny_net(), o));
}

TEST_F(TrainerErrors, NumbersInACheckpoint) {
  TrainOptions o = options("run");
  Trainer(tiny_net(), o).run();
  o.resume = true;
  o.iterations = 0;
  Checkpoint saved = load_latest(o.out)->contents;
  const auto resumed_with = [&](const std::string& total, int64_t iteration) {
    saved.texts["total"] = total;
    saved.texts["setting/validate-every"] = "0";
    saved.tensors.at("position").data<int64_t>()[0] = iteration;
    save_checkpoint(o.out, "iteration-3", saved);
  };
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  resumed_with("-1", 2);  // which would train for ever
  EXPECT_EQ(error(o), "the checkpoint says that the run has -1 iterations");
  resumed_with("0", kMost);
  EXPECT_EQ(error(o), fmt::format("the checkpoint's iteration is {}, from which no run can go on", kMost));
  resumed_with(std::to_string(kMost), 2);
  EXPECT_EQ(Trainer(tiny_net(), o).options().validate_every, kMost / 5 + 1);
}

TEST_F(TrainerErrors, Models) {
  auto with = [&](auto change) {
    NetDef net = tiny_net();
    change(net, *net.MutableExtension(model));
    return error(options(), net);
  };
  expect_contains(with([](NetDef& n, ModelDef&) { n.ClearExtension(model); }), "does not say how it is trained");
  expect_contains(with([](NetDef&, ModelDef& m) { m.set_loss("los"); }), "Did you mean \"loss\"?");
  expect_contains(with([](NetDef&, ModelDef& m) { m.clear_logits(); }), "the model names no logits");
  expect_contains(with([](NetDef&, ModelDef& m) { m.set_input("x"); }), "is not read by the net before it is written");
  expect_contains(with([](NetDef&, ModelDef& m) { m.clear_carry(); }), "the net reads \"c_before\", but neither");
  expect_contains(with([](NetDef&, ModelDef& m) { m.mutable_carry(0)->set_size(0); }), "size of at least 1");
  expect_contains(with([](NetDef&, ModelDef& m) { m.mutable_carry(1)->set_to("h_before"); }), "has two roles");
  expect_contains(with([](NetDef&, ModelDef& m) { m.mutable_carry(0)->set_size(5); }), "h_prev");
  expect_contains(with([](NetDef&, ModelDef& m) { m.set_batch(0); }), "batch must be at least 1, but is 0");
  expect_contains(with([](NetDef&, ModelDef& m) { m.mutable_init()->clear_op(); }), "the net reads \"W_out\"");
}

}  // namespace
}  // namespace stepnet::trainer_errors_test
