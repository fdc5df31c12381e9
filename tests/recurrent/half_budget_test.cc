// Estimates and budgets of training steps that half types, or shapes handed on as numbers, once made wrong.
#include <gtest/gtest.h>

#include "core/compute/threads.h"
#include "core/gradcheck/examples.h"
#include "recurrent/train/memory_budget.h"
#include "recurrent/train/model.h"
#include "recurrent/train/stepper.h"
#include "stepnet/matmul.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/core/estimate_testing.h"
#include "tests/recurrent/segment_testing.h"
#include "tools/source_path.h"

namespace stepnet::testing::half_budget_test {
namespace {

TrainingEstimate language_model(DType type) {
  TrainingEstimate training{.model = read_model(load_net(source_path("tools/examples/char_lstm.pbtxt")))};
  training.model.batch = 8;
  training.model.timesteps = 40;
  use_precision(training.model, type);
  return training;
}

int64_t peak_of_session(const TrainingEstimate& training) {
  const std::string text(4000, 'x');
  const Model& model = training.model;
  forget_products();
  allocator(Device{}).reset_peak();
  const int64_t before = allocator(Device{}).counters().live;
  TrainingSession session(model, training.optimizer, TextStreams(text, model.batch, model.timesteps, "text"), 1, 1000);
  for (int i = 0; i < 5; ++i) session.step();
  return allocator(Device{}).counters().peak - before;
}

// The number in the message about a budget of a byte.
template <class Fn>
int64_t offered(Fn fn) {
  const std::string text = error_text(fn), before = "takes at least ";
  EXPECT_NE(text.find(before), std::string::npos) << text;
  return std::stoll(text.substr(text.find(before) + before.size()));
}

class HalfBudget : public ::testing::TestWithParam<int> {
 protected:
  HalfBudget() { set_threads(GetParam()); }
  ~HalfBudget() override { set_threads(0); }
};

TEST_P(HalfBudget, TheOneThatTheMessageOffersIsKept) {
  for (const DType type : {DType::bfloat16, DType::float16, DType::float32}) {
    SCOPED_TRACE(dtype_name(type));
    TrainingEstimate training = language_model(type);
    const int64_t least = offered([&] { fit_training(training, 1); });
    training.model = fit_training(training, least).model;
    EXPECT_LE(peak_of_session(training), least);
  }
}

NetDef within(NetDef net, int64_t budget) {
  for (OperatorDef& op : *net.mutable_op())
    if (op.type() == "RecurrentNetwork") *op.add_arg() = make_arg("memory_budget_bytes", budget);
  return net;
}

TEST_P(HalfBudget, OfANetworkIsKept) {
  for (const DType type : {DType::bfloat16, DType::float32}) {
    SCOPED_TRACE(dtype_name(type));
    Feeds feeds = lstm_feeds(96, 24, 32);
    for (auto& [name, value] : feeds) value = in_type(type, value);
    const NetDef net = expanded_net(lstm(), feeds);
    const int64_t all = Training(net, feeds).run();
    const int64_t least = offered([&] { Training(within(net, 1), feeds).run(); });
    EXPECT_LT(least, all);
    for (const int64_t budget : {least, (least + all) / 2}) {
      Training some(within(net, budget), feeds);
      for (int i = 0; i < 3; ++i) EXPECT_LE(some.run(), budget) << least << " " << all;
    }
  }
}

// With a scaled loss a step runs in two parts, of which each has its own plan.
TEST_P(HalfBudget, EstimatesOfSessionsHold) {
  for (const DType type : {DType::bfloat16, DType::float16, DType::float32})
    for (const double scale : {0.0, 1024.0}) {
      TrainingEstimate training = language_model(type);
      training.optimizer.loss_scale = scale;
      const int64_t said = training_peak(training);
      EXPECT_LE(peak_of_session(training), said + said / 1000) << dtype_name(type) << " " << scale;
    }
}

INSTANTIATE_TEST_SUITE_P(Threads, HalfBudget, ::testing::Values(1, 2));

// The most bytes that are live in two forward runs, or, in a dry run, that it says.
int64_t forward_peak(const NetDef& net, const ForwardOptions& options) {
  const LiveBytes base = live_bytes();
  const auto session = forward_session(net, options);
  int64_t most = 0;
  for (int i = 0; i < 2; ++i)
    for (const OpMemory& op : run_measured(*session, base)) most = std::max(most, op.peak);
  return most;
}

// Threads that work on some of the samples each read the weights as they are: none has them in float32.
TEST(HalfLanes, NoThreadCastsWeights) {
  constexpr int64_t kWidth = 160, kBatch = 8;
  ForwardOptions options;
  Feeds feeds = lstm_feeds(60, kBatch, kWidth);
  feeds.pop_back();  // of the gradient
  for (auto& [name, value] : feeds) {
    // The product of a whole block takes little.
    if (name == "X") value = normal<float>({60, kBatch, 2}, 1);
    if (name == "Wx") value = normal<float>({4 * kWidth, 2}, 4);
    value = in_type(DType::bfloat16, value);
    options.feeds[name] = TensorType::of(value.dtype(), value.shape());
  }
  NetDef net = recurrent_net(lstm(), feeds);
  net.mutable_op(0)->MutableExtension(recurrent)->set_forward_only(true);
  expand_recurrent(net);
  std::vector<int64_t> said;
  for (const int threads : {1, 2}) {
    set_threads(threads);
    {
      const DryScope scope;
      said.push_back(forward_peak(net, options));
    }
    forget_products();
    EXPECT_LE(forward_peak(net, options), said.back()) << threads;
  }
  set_threads(0);
  EXPECT_LT(said[1], said[0] + 4 * kWidth * kWidth * static_cast<int64_t>(sizeof(float)));
}

const CellState kH = {"h_prev", "h", "h0", "h_all", "h_last"};
const Lines kJoined = {"a = FC(x, Wx, bx) axis=2", "r = FC(h_prev, Wh, bh) axis=2", "j, sizes = Concat(a, r) axis=2",
                       "h = Tanh(j)"};
const Lines kReshaped = {"a = FC(x, Wx, bx) axis=2",
                         "r = FC(h_prev, Wh, bh) axis=2",
                         "s, sizes = Concat(a, r) axis=2",
                         "w, old = Reshape(s) shape=1/-1/4",
                         "t = Tanh(w)",
                         "h, wide = Reshape(t) shape=1/-1/8"};

Feeds feeds_of(int64_t steps) {
  return {{"X", normal<float>({steps, 6, 3}, 1)},     {"h0", normal<float>({1, 6, 8}, 2)},
          {"Wx", normal<float>({4, 3}, 4)},           {"bx", normal<float>({4}, 5)},
          {"Wh", normal<float>({4, 8}, 6)},           {"bh", normal<float>({4}, 7)},
          {"dh_all", normal<float>({steps, 6, 8}, 8)}};
}

// Shapes are handed to the backward step net as numbers, of every timestep its own.
TEST(ShapesAsNumbers, StepNetsAreEstimatedExactly) {
  const SerialScope serial;
  for (const Lines& step : {kJoined, kReshaped})
    for (const int64_t steps : {1, 7, 300}) {
      const Feeds feeds = feeds_of(steps);
      const NetDef net = recurrent_net({step, {kH}}, feeds);
      TrainingEstimate training{.model = model_of(net, {}, "h_all")};
      for (const auto& [name, value] : feeds)
        (name[0] == 'W' || name[0] == 'b' ? training.parameters : training.feeds)[name] =
            TensorType::of(value.dtype(), value.shape());
      training.feeds.erase("dh_all");
      EXPECT_EQ(compare_with_real([&] { return training_net_session(training); }), "") << steps;
    }
}

TEST(ShapesAsNumbers, StepNetsRunWithinABudget) {
  const SerialScope serial;
  const Feeds feeds = feeds_of(1500);
  const NetDef net = expanded_net({kJoined, {kH}}, feeds);
  Training whole(net, feeds);
  const int64_t all = whole.run();
  const int64_t least = offered([&] { Training(within(net, 1), feeds).run(); });
  EXPECT_LT(least, all);
  Training some(within(net, least), feeds);
  EXPECT_LE(some.run(), least);
  EXPECT_TRUE(some.segments().used);
  for (const char* name : {"h_all", "X_grad", "Wx_grad", "Wh_grad"})
    EXPECT_TRUE(same_bits(some[name], whole[name])) << name;
}

}  // namespace
}  // namespace stepnet::testing::half_budget_test
