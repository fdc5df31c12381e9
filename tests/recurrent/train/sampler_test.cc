// Evaluation and sampling of a trained model.
#include "stepnet/sampler.h"

#include <gtest/gtest.h>

#include "recurrent/train/evaluator.h"
#include "recurrent/train/run_folder.h"
#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"

namespace stepnet::sampler_test {
namespace {

using testing::error_text;
using testing::TempFolder;

// The mean loss of some tokens, read as `batch` streams, `timesteps` at a time.
double loss_of(const std::string& tokens, int64_t batch, int64_t timesteps) {
  const Model model = read_model(testing::tiny_net());
  Workspace parameters;
  RunContext run;
  run_net_once(model.init, parameters, run);
  Evaluator evaluator(model, parameters, DType::float32, tokens, batch, timesteps, "it");
  const double loss = evaluator.loss();
  EXPECT_EQ(evaluator.predicted(), static_cast<int64_t>(tokens.size()) - 1);
  EXPECT_EQ(evaluator.loss(), loss);  // states do not leak from one pass to the next
  return loss;
}

std::string some_tokens(int count) {
  std::string tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<char>(i * i % 31));
  return tokens;
}

TEST(Evaluator, StatesAreCarriedAndNothingIsLeftOut) {
  const std::string tokens = some_tokens(30);
  const double whole = loss_of(tokens, 1, 29);
  for (const int timesteps : {1, 2, 7, 28}) EXPECT_NEAR(loss_of(tokens, 1, timesteps), whole, 1e-6) << timesteps;
  // Three streams of nine tokens and a tail of two, which goes on from the third.
  const double parts = (9 * loss_of(tokens.substr(0, 10), 1, 9) + 9 * loss_of(tokens.substr(9, 10), 1, 9) +
                        11 * loss_of(tokens.substr(18, 12), 1, 11)) /
                       29;
  for (const int timesteps : {1, 4, 9}) EXPECT_NEAR(loss_of(tokens, 3, timesteps), parts, 1e-6) << timesteps;
}

TEST(Evaluator, ShortTexts) {
  EXPECT_GT(loss_of(some_tokens(2), 8, 50), 0);
  EXPECT_GT(loss_of(some_tokens(5), 8, 3), 0);
  EXPECT_EQ(error_text([] { loss_of(some_tokens(1), 1, 1); }),
            "it has 1 bytes, but predicting needs at least 2\n  fix hold out more of the text, or nothing");
}

TEST(Evaluator, DropoutIsOff) {
  NetDef net = testing::tiny_net();
  OperatorDef& op = *net.add_op();
  op.set_type("Dropout");
  op.add_input("logits");
  op.add_output("dropped");
  op.add_output("mask");
  const Model model = read_model(net);
  const NetDef train = expanded_forward(model, Mode::train), evaluate = expanded_forward(model, Mode::evaluate);
  EXPECT_EQ(train.op(train.op_size() - 1).arg_size(), 0);
  const OperatorDef& last = evaluate.op(evaluate.op_size() - 1);
  ASSERT_EQ(last.arg_size(), 1);
  EXPECT_EQ(last.arg(0).name(), "is_test");
  EXPECT_EQ(last.arg(0).i(), 1);
}

TEST(Evaluator, BatchNormReadsItsRunningStatistics) {
  NetDef net = testing::tiny_net();
  OperatorDef& op = *net.add_op();
  op.set_type("SpatialBN");
  for (const char* name : {"logits", "scale", "bias", "mean", "var"}) op.add_input(name);
  for (const char* name : {"normal", "mean", "var", "saved_mean", "saved_inv_std"}) op.add_output(name);
  for (const char* name : {"scale", "bias", "mean", "var"}) {
    OperatorDef& fill = *net.MutableExtension(stepnet::model)->mutable_init()->add_op();
    fill.set_type("ConstantFill");
    fill.add_output(name);
  }
  const Model model = read_model(net);
  const NetDef train = expanded_forward(model, Mode::train), evaluate = expanded_forward(model, Mode::evaluate);
  EXPECT_EQ(train.op(train.op_size() - 1).output_size(), 5);
  const OperatorDef& last = evaluate.op(evaluate.op_size() - 1);
  ASSERT_EQ(last.output_size(), 1);
  EXPECT_EQ(last.output(0), "normal");
  EXPECT_EQ(last.input_size(), 5);
}

TEST(Draw, FollowsTheSoftmax) {
  const std::vector<double> scores = {std::log(1.0), std::log(4.0), std::log(3.0)};
  EXPECT_EQ(draw(scores, 0, 0.99), 1);
  EXPECT_EQ(draw(scores, 1, 0.0), 0);
  EXPECT_EQ(draw(scores, 1, 0.124), 0);
  EXPECT_EQ(draw(scores, 1, 0.126), 1);
  EXPECT_EQ(draw(scores, 1, 0.624), 1);
  EXPECT_EQ(draw(scores, 1, 0.626), 2);
  EXPECT_EQ(draw(scores, 1, 0.9999999), 2);
  EXPECT_EQ(draw(scores, 0.5, 1.1 / 26), 1);  // 1, 16 and 9 of 26
  EXPECT_EQ(draw(scores, 1e-300, 0.5), 1);
  const std::vector<double> bad = {0, std::nan("")};
  EXPECT_EQ(error_text([&] { draw(bad, 1, 0.5); }), "the net gave the score nan");
}

class SamplerTest : public ::testing::Test {
 protected:
  SamplerTest() {
    testing::write_all(folder_.file("text"), testing::tiny_text());
    TrainOptions o = testing::tiny_options(folder_.file("text"), 400);
    o.out = folder_.file("run");
    Trainer(testing::tiny_net(), o).run();
  }
  std::string sample(const SampleOptions& options) {
    std::string text;
    Sampler(load_best(folder_.file("run"))).sample(options, [&](char byte) {
      text.push_back(byte);
      return true;
    });
    return text;
  }
  TempFolder folder_;
};

TEST_F(SamplerTest, WritesWhatItLearnt) {
  SampleOptions o;
  o.length = 60;
  o.temperature = 0;
  o.prompt = "the cat sat on the ";
  const std::string text = sample(o);
  EXPECT_EQ(text.size(), 60u);
  EXPECT_NE(text.find("sat on the"), std::string::npos) << text;
}

TEST_F(SamplerTest, TheSeedDecides) {
  SampleOptions o;
  o.temperature = 2;
  const std::string first = sample(o);
  EXPECT_EQ(first.size(), 300u);
  EXPECT_EQ(sample(o), first);
  o.seed = 2;
  EXPECT_NE(sample(o), first);
  o.seed = 1;
  o.length = 7;
  EXPECT_EQ(sample(o), first.substr(0, 7));
  o.length = 0;
  EXPECT_EQ(sample(o), "");
}

TEST_F(SamplerTest, BadInput) {
  SampleOptions o;
  o.prompt = "the XX";
  testing::expect_contains(error_text([&] { sample(o); }), "the byte 'X' at offset 4 of the prompt");
  o = {};
  o.temperature = -1;
  EXPECT_EQ(error_text([&] { sample(o); }), "the temperature must be at least 0, but is -1");
  EXPECT_EQ(error_text([&] { load_best(folder_.file("none")); }),
            "there is no folder \"" + folder_.file("none") + "\"");
  const Checkpoint checkpoint = load_best(folder_.file("run"));
  testing::expect_contains(error_text([&] { Sampler(testing::tiny_net(20), checkpoint); }),
                           "the parameter \"W_out\" is float[32, 12] in the checkpoint, but float[20, 12] in the net");
  EXPECT_THROW(Sampler(Checkpoint{}), Error);
}

}  // namespace
}  // namespace stepnet::sampler_test
