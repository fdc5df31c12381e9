// Validation of a training run: within its memory budget, and without a trace in the steps that follow.
#include <gtest/gtest.h>

#include "recurrent/train/evaluator.h"
#include "recurrent/train/memory_budget.h"
#include "recurrent/train/model.h"
#include "recurrent/train/stepper.h"
#include "stepnet/matmul.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/operators/op_test.h"
#include "tests/recurrent/tiny_model.h"
#include "tools/source_path.h"

namespace stepnet::testing::validation_memory_test {
namespace {

class ValidationMemory : public ::testing::Test {
 protected:
  ValidationMemory() { write_all(text_, tiny_text(20000)); }

  TrainOptions options(const std::string& precision) const {
    TrainOptions o = tiny_options(text_, 6);
    o.precision = precision;
    o.batch = 32;
    o.timesteps = 96;
    o.holdout = 0.4;
    o.validate_every = 1;
    return o;
  }
  // The allocator's peak of the whole run.
  int64_t train(const TrainOptions& o, TrainResult* result = nullptr, const NetDef& net = tiny_net()) const {
    forget_products();
    const int64_t live = allocator({}).counters().live;
    allocator({}).reset_peak();
    const TrainResult got = Trainer(net, o).run();
    if (result) *result = got;
    return allocator({}).counters().peak - live;
  }
  // The smallest budget, as the message about a budget of a byte says it.
  int64_t offered(TrainOptions o, const NetDef& net) const {
    o.memory_budget = 1;
    const std::string text = error_text([&] { train(o, nullptr, net); }), before = "takes at least ";
    EXPECT_NE(text.find(before), std::string::npos) << text;
    return std::stoll(text.substr(text.find(before) + before.size()));
  }

  TempFolder folder_;
  std::string text_ = folder_.file("text");
};

TEST_F(ValidationMemory, IsWithinTheBudget) {
  for (const char* precision : {"float32", "bfloat16", "float16"}) {
    SCOPED_TRACE(precision);
    TrainOptions o = options(precision);
    TrainResult plain, small;
    const int64_t whole = train(o, &plain);
    const int64_t least = offered(o, tiny_net());
    EXPECT_LT(least, whole);
    for (const int64_t budget : {least, (least + whole) / 2}) {
      o.memory_budget = budget;
      EXPECT_LE(train(o, &small), budget) << least << " " << whole;
      EXPECT_EQ(small.loss, plain.loss);
      EXPECT_EQ(small.validation_loss, plain.validation_loss);
    }
  }
}

// Neither steps, validations nor the check before them make scores whole, of which there are 17 MB.
TEST_F(ValidationMemory, WithALossInBlocksIsWithinTheBudget) {
  constexpr int kClasses = 1400;
  TrainOptions o = options("float32");
  TrainResult plain, small;
  const int64_t whole = train(o, &plain, tiny_net(kClasses));
  EXPECT_LT(whole, int64_t{kClasses} * 32 * 96 * 4);
  o.memory_budget = offered(o, tiny_net(kClasses));
  EXPECT_LE(train(o, &small, tiny_net(kClasses)), o.memory_budget);
  EXPECT_EQ(small.loss, plain.loss);
  EXPECT_EQ(small.validation_loss, plain.validation_loss);
}

TEST_F(ValidationMemory, StepsTakeNoMoreBehindIt) {
  TrainOptions o = options("float32");
  const int64_t with = train(o);
  o.holdout = 0;
  EXPECT_LE(with, train(o));
}

// What a step of this model leaves for the next one would not fit beside a validation, nor the other way round.
TEST_F(ValidationMemory, TakesTurnsWithSteps) {
  const NetDef net = load_net(source_path("tools/examples/char_lstm.pbtxt"));
  TrainOptions o = options("float32");
  o.batch = 8;
  o.timesteps = 40;
  o.iterations = 8;
  o.validate_every = 4;  // plans of memory come after some steps
  o.memory_budget = offered(o, net);
  EXPECT_LE(train(o, nullptr, net), o.memory_budget);
  o.memory_budget = 0;
  const int64_t with = train(o, nullptr, net);
  o.holdout = 0;
  EXPECT_LE(with, train(o, nullptr, net));
}

TEST_F(ValidationMemory, IsEstimated) {
  TrainingEstimate training{.model = read_model(load_net(source_path("tools/examples/char_lstm.pbtxt")))};
  Model& model = training.model;
  model.batch = 8;
  model.timesteps = 40;
  forget_products();
  const int64_t said = validation_peak(training), before = allocator({}).counters().live;
  const std::string text = tiny_text(4000);
  TrainingSession session(model, training.optimizer, TextStreams(text, 8, 40, "text"), 1, 1000);
  Evaluator evaluator(model, session.parameters(), session.dtype(), text, 8, 40, "text");
  session.step();
  session.let_go_of_memory();
  allocator({}).reset_peak();
  evaluator.loss();
  const int64_t peak = allocator({}).counters().peak - before;
  EXPECT_LE(peak, said);
  EXPECT_GE(peak, said - said / 50);
}

// The forward part is run once before training. All of its values at once are more than a step takes that makes most of
// them again.
TEST_F(ValidationMemory, TheCheckBeforeItIsWithinTheBudgetToo) {
  const NetDef net = tiny_net();
  NetDef deep = net;
  deep.clear_op();
  for (OperatorDef op : net.op()) {
    if (op.type() == "FC") {
      for (int i = 0; i < 40; ++i) {
        const std::string from = i == 0 ? "h_all" : fmt::format("deep{}", i);
        *deep.add_op() = make_op("Tanh", {from}, {fmt::format("deep{}", i + 1)});
      }
      op.set_input(0, "deep40");
    }
    *deep.add_op() = op;
  }
  TrainOptions o = options("float32");
  o.iterations = 2;
  o.memory_budget = offered(o, deep);
  EXPECT_LE(train(o, nullptr, deep), o.memory_budget);
}

}  // namespace
}  // namespace stepnet::testing::validation_memory_test
