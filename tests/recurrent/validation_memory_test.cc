// Validation of a training run: within its memory budget, and without a trace in the steps that follow.
#include <gtest/gtest.h>

#include "core/compute/matmul.h"
#include "recurrent/train/memory_budget.h"
#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"

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
  int64_t train(const TrainOptions& o, TrainResult* result = nullptr) const {
    forget_products();
    const int64_t live = allocator({}).counters().live;
    allocator({}).reset_peak();
    const TrainResult got = Trainer(tiny_net(), o).run();
    if (result) *result = got;
    return allocator({}).counters().peak - live;
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
    o.memory_budget = 1;
    const std::string text = error_text([&] { train(o); }), before = "takes at least ";
    ASSERT_NE(text.find(before), std::string::npos) << text;
    const int64_t least = std::stoll(text.substr(text.find(before) + before.size()));
    EXPECT_LT(least, whole);
    for (const int64_t budget : {least, (least + whole) / 2}) {
      o.memory_budget = budget;
      EXPECT_LE(train(o, &small), budget) << least << " " << whole;
      EXPECT_EQ(small.loss, plain.loss);
      EXPECT_EQ(small.validation_loss, plain.validation_loss);
    }
  }
}

TEST_F(ValidationMemory, StepsTakeNoMoreBehindIt) {
  TrainOptions o = options("float32");
  const int64_t with = train(o);
  o.holdout = 0;
  EXPECT_LE(with, train(o));
}

}  // namespace
}  // namespace stepnet::testing::validation_memory_test
