// Ranks that gather the rows of sparse gradients, against one process with the whole batch: tables that are far larger
// than what a batch looks up of them.
#include <gtest/gtest.h>

#include <cstring>

#include "core/compute/threads.h"
#include "tests/operators/collective/ranks.h"
#include "tests/operators/op_test.h"
#include "tests/recurrent/distributed/rank_sessions.h"

namespace stepnet::testing::sparse_test {
namespace {

// The tiny net with a table of 400 rows, of which a batch looks up 84.
NetDef net_of_rows() {
  std::string text = tiny_net_text();
  const std::string rows = "ints: 32 ints: 48";
  text.replace(text.find(rows), rows.size(), "ints: 400 ints: 48");
  return parse_net_text(text, "rows.pbtxt");
}

Model floats_of_rows() {
  Model model = read_model(net_of_rows());
  model.batch = 12;
  return model;
}

void expect_trains_alike(const OptimizerOptions& optimizer) {
  const Model model = model_of_doubles(net_of_rows());
  const auto alone = session_of(model, optimizer, nullptr), together = session_of(model, optimizer, all_ranks());
  double first = 0, loss = 0;
  for (int64_t i = 0; i < kSteps; ++i) {
    loss = alone->step();
    if (i == 0) first = loss;
    ASSERT_NEAR(together->step(), loss, 1e-12) << i;
  }
  EXPECT_LT(loss, 0.9 * first);
  expect_alike(*alone, *together);
}

int count_of(const char* type, const Model& whole, const OptimizerOptions& optimizer) {
  Model model = whole;
  model.batch = whole.batch / ranks();
  model.ranks = all_ranks();
  Workspace workspace;
  RunContext run;
  run_net_once(model.init, workspace, run);
  const TrainingNet net = build_training_net(model, parameter_names(model, workspace), workspace, optimizer, 10);
  return static_cast<int>(std::ranges::count(net.net.op(), type, &OperatorDef::type));
}

TEST(SparseTraining, RowsMoveWhereTheyAreFewerBytes) {
  if (!all_ranks()) GTEST_SKIP() << "there is one rank";
  EXPECT_EQ(count_of("AllgatherSlices", floats_of_rows(), {}), 1);
  EXPECT_EQ(count_of("AllgatherSlices", floats_of_rows(), {.shard = true}), 1);
  Model small = read_model(tiny_net());
  small.batch = 12;
  EXPECT_EQ(count_of("AllgatherSlices", small, {}), 0);
  small.batch = 4;  // 28 rows of 196 bytes: fewer than 32 of 192, which go once with shards, else twice
  EXPECT_EQ(count_of("AllgatherSlices", small, {}), 1);
  small.timesteps = 8;  // 32 rows
  EXPECT_EQ(count_of("AllgatherSlices", small, {.shard = true}), 0);
  EXPECT_EQ(count_of("AllgatherSlices", floats_of_rows(), {.accumulate = 2}), 0);  // what is added up is dense
}

TEST(SparseTraining, IsThatOfOneProcess) { expect_trains_alike({.lr = 0.02}); }

TEST(SparseTraining, ClipsTheNormOfTheSum) {
  for (const bool shard : {false, true})
    expect_trains_alike({.optimizer = "momentum", .lr = 0.5, .clip = 0.3, .shard = shard});
}

TEST(SparseTraining, OfPartsOfTheOptimizersState) { expect_trains_alike({.lr = 0.02, .shard = true}); }

TEST(SparseTraining, AddsGradientsOfSeveralBatchesUp) { expect_trains_alike({.lr = 0.02, .accumulate = 3}); }

TEST(SparseTraining, HasTheSameBitsInEachRun) {
  for (const char* reduce : {"float32", "bfloat16"})
    for (const bool shard : {false, true}) {
      const OptimizerOptions optimizer{.lr = 0.02, .reduce = reduce, .shard = shard};
      const auto one = session_of(floats_of_rows(), optimizer, all_ranks()),
                 again = session_of(floats_of_rows(), optimizer, all_ranks()),
                 alone = session_of(floats_of_rows(), optimizer, nullptr);
      for (int64_t i = 0; i < 20; ++i) {
        const double loss = one->step();
        ASSERT_EQ(again->step(), loss) << i;
        ASSERT_NEAR(alone->step(), loss, reduce == std::string("float32") ? 1e-3 : 0.1) << i;
      }
      const auto first = one->save();
      for (const auto& [name, value] : again->save())
        EXPECT_EQ(std::memcmp(value.raw(), first.at(name).raw(), value.bytes()), 0) << name;
    }
}

// Sequences of words, of which ranks have different numbers, and some of them none of an epoch's last batch.
constexpr const char* kWords = R"(
  name: "words"
  op { type: "Gather" input: "table" input: "words" output: "rows" }
  op { type: "FC" input: "rows" input: "W" input: "b" output: "scores" }
  op { type: "SoftmaxWithLoss" input: "scores" input: "label" output: "p" output: "loss" }
  [stepnet.model] {
    init {
      op { type: "XavierFill" output: "table" arg { name: "shape" ints: 200 ints: 3 } }
      op { type: "XavierFill" output: "W" arg { name: "shape" ints: 2 ints: 15 } }
      op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 2 } }
    }
    loss: "loss" batch: 8
    data { column: "words" }
    data { column: "label" }
  })";

// Losses and parameters of one process and of all ranks.
void expect_words_alike(const std::string& net) {
  Model model = model_of_doubles(parse_net_text(net));
  model.batch = 8;
  constexpr int64_t kSamples = 18, kLength = 5;
  Tensor words = Tensor::empty(DType::int64, {kSamples, kLength}), label = Tensor::empty(DType::int64, {kSamples});
  for (int64_t i = 0; i < words.size(); ++i) words.data<int64_t>()[i] = i * i % 61;
  for (int64_t i = 0; i < kSamples; ++i) label.data<int64_t>()[i] = i % 3 == 0;
  const std::map<std::string, Tensor> arrays = {{"words", words}, {"label", label}};
  for (const bool shard : {false, true}) {
    const OptimizerOptions optimizer{.lr = 0.02, .shard = shard};
    const auto alone = session_of_samples(model, optimizer, nullptr, arrays),
               together = session_of_samples(model, optimizer, all_ranks(), arrays);
    for (int64_t i = 0; i < 12; ++i) ASSERT_NEAR(together->step(), alone->step(), 1e-12) << i;
    expect_alike(*alone, *together);
  }
}

TEST(SparseTraining, RanksMayHaveDifferentNumbersOfRows) { expect_words_alike(kWords); }

// The gradient of the weights is, under one name, the rows of the gradient of a table: of what is added to them.
TEST(SparseTraining, RowsMayBeTheGradientOfAnotherParameter) {
  std::string text = kWords;
  const auto replace = [&](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  replace(R"(op { type: "FC")", R"(
  op { type: "ConstantFill" output: "task" arg { name: "shape" ints: 1 } arg { name: "value" i: 3 }
       arg { name: "dtype" i: 2 } }
  op { type: "Gather" input: "differences" input: "task" output: "difference" }
  op { type: "Sum" input: "shared" input: "difference" output: "weights" }
  op { type: "Reshape" input: "weights" output: "W" output: "shape" arg { name: "shape" ints: 2 ints: 15 } }
  op { type: "FC")");
  replace(R"(output: "W" arg { name: "shape" ints: 2 ints: 15 } }
      op)",
          R"(output: "shared" arg { name: "shape" ints: 1 ints: 2 ints: 15 } }
      op { type: "XavierFill" output: "differences" arg { name: "shape" ints: 50 ints: 2 ints: 15 } }
      op)");
  expect_words_alike(text);
}

// To the byte, and with as many ranks that are only claimed.
TEST(EstimateOfSparseRanks, IsThePeakOfATrainingSession) {
  const SerialScope serial;
  for (const bool shard : {false, true})
    for (const char* reduce : {"float32", "bfloat16"}) {
      SCOPED_TRACE(fmt::format("{} {}", shard, reduce));
      const OptimizerOptions optimizer{.reduce = reduce, .shard = shard};
      Model model = floats_of_rows();
      model.batch /= ranks();
      expect_peak_as_estimated(model, optimizer, [&] { return session_of(floats_of_rows(), optimizer, all_ranks()); });
    }
}

}  // namespace
}  // namespace stepnet::testing::sparse_test
