// Plans of kernels for all timesteps, which need no GPU: where blocks wait, and what is refused.
#include "gpu/runtime/loop_plan.h"

#include <gtest/gtest.h>

#include "tests/gpu/runtime/lstm_loop.h"
#include "tests/gpu/runtime/norm_lstm_loop.h"

namespace stepnet::testing::loop_plan_test {
namespace {

constexpr gpu::LoopLimits kLimits{.blocks = 132, .shared_bytes = 227 << 10, .tensor_cores = true};

std::string refusal(const LstmLoop& loop, const gpu::LoopLimits& limits = kLimits) {
  return gpu::plan_loop(loop.recording().timesteps(), limits).refusal;
}

TEST(LoopPlan, BlocksWaitForTheStateAlone) {
  const gpu::LoopPlan plan = gpu::plan_loop(LstmLoop{.units = 768}.recording().timesteps(), kLimits);
  ASSERT_EQ(plan.refusal, "");
  EXPECT_EQ(plan.units, 768);
  EXPECT_EQ(plan.block_units, 6);
  EXPECT_EQ(plan.blocks, 128);
  EXPECT_TRUE(plan.ops[0].waits);
  EXPECT_FALSE(plan.ops[1].waits);
  const auto& product = std::get<gpu::LoopProduct>(plan.ops[0].what);
  EXPECT_FALSE(product.c_is_shared || product.c_is_late);
  const auto& chain = std::get<gpu::LoopChain>(plan.ops[1].what);
  for (size_t k = 0; k < chain.operands.size(); ++k) {
    EXPECT_EQ(chain.operands[k].is_shared, k == 6) << k;  // h
    EXPECT_FALSE(chain.operands[k].is_late) << k;
  }
}

// For the state, for the sums of the gates, and for the cell, of which all need all columns; backward for what comes to
// both norms, and for the state.
TEST(LoopPlan, BlocksWaitForRows) {
  for (const bool backward : {false, true}) {
    const gpu::LoopPlan plan =
        gpu::plan_loop(NormLstmLoop{.units = 768, .backward = backward}.recording().timesteps(), kLimits);
    ASSERT_EQ(plan.refusal, "");
    std::vector<size_t> waits;
    for (size_t i = 0; i < plan.ops.size(); ++i)
      if (plan.ops[i].waits) waits.push_back(i);
    EXPECT_EQ(waits, (backward ? std::vector<size_t>{1, 3, 4} : std::vector<size_t>{0, 1, 4}));
    const auto& norm = std::get<gpu::LoopRows>(plan.ops[1].what);
    EXPECT_EQ(norm.wide, 4);
    EXPECT_EQ(norm.parts, 1);
    EXPECT_EQ(norm.groups, backward ? 1 : 4);
    // Sums and numbers have places of their own until blocks have waited.
    EXPECT_LT(norm.numbers_at, plan.shared_bytes);
  }
}

TEST(LoopPlan, NumbersOfRowsAreWrittenOnce) {
  const gpu::LoopPlan plan = gpu::plan_loop(NormLstmLoop{}.recording().timesteps(), kLimits);
  const std::string source = gpu::loop_source(plan);
  for (const auto t : {gpu::RowTensor::first_number, gpu::RowTensor::second_number}) {
    const int place = std::get<gpu::LoopRows>(plan.ops[1].what).places[t];
    const std::string write = fmt::format("if (u == 0) place_at(p.places[{}], t)[row * 1ll] = store(", place);
    EXPECT_NE(source.find(write), source.npos) << source;
  }
}

TEST(LoopPlan, IsOfTheRowsThatItWasMadeOf) {
  for (const bool backward : {false, true}) {
    gpu::LoopRecording made_of = NormLstmLoop{.backward = backward}.recording();
    const gpu::LoopPlan plan = gpu::plan_loop(made_of.timesteps(), kLimits);
    const std::span<const gpu::QueuedWork> step = made_of.timesteps()[1];
    const auto is_plan_of = [&](NormLstmLoop loop) {
      loop.backward = backward;
      return gpu::is_plan_of(plan, step, loop.recording().timesteps());
    };
    EXPECT_TRUE(is_plan_of({}));
    EXPECT_FALSE(is_plan_of({.dtype = DType::bfloat16}));
    EXPECT_FALSE(is_plan_of({.rows = 3}));
    EXPECT_FALSE(is_plan_of({.scaled = false}));
    EXPECT_FALSE(is_plan_of({.shift = 64}));
    EXPECT_EQ(is_plan_of({.epsilon = 1e-3}), backward);
  }
}

TEST(LoopPlan, ReadsAsManyElementsAtATimeAsRowsAllow) {
  for (const auto& [dtype, units, wide, tiles] : {std::tuple{DType::float32, 8, 4, false},
                                                  {DType::float32, 6, 2, false},
                                                  {DType::float32, 7, 1, false},
                                                  {DType::bfloat16, 768, 8, true},
                                                  {DType::float16, 100, 4, true},
                                                  {DType::bfloat16, 650, 2, true},
                                                  {DType::bfloat16, 7, 1, false}}) {
    const gpu::LoopPlan plan =
        gpu::plan_loop(LstmLoop{.dtype = dtype, .units = units}.recording().timesteps(), kLimits);
    ASSERT_EQ(plan.refusal, "");
    const auto& product = std::get<gpu::LoopProduct>(plan.ops[0].what);
    EXPECT_EQ(product.wide, wide) << units;
    EXPECT_EQ(product.by_tensor_cores, tiles) << units;
  }
}

// Blocks of a head wait for those of the same head, in both orders of rows, forward and backward; and if rows are
// split, for those of the same rows.
TEST(LoopPlan, HeadsWaitApart) {
  for (const bool heads_first : {true, false})
    for (const bool backward : {false, true})
      for (const int64_t rows : {1, 5, 200}) {
        const LstmLoop loop{.dtype = DType::bfloat16,
                            .rows = rows,
                            .units = 768,
                            .backward = backward,
                            .heads = 2,
                            .heads_first = heads_first};
        SCOPED_TRACE(fmt::format("{} {} {}", heads_first, backward, rows));
        const gpu::LoopPlan plan = gpu::plan_loop(loop.recording().timesteps(), kLimits);
        ASSERT_EQ(plan.refusal, "");
        EXPECT_EQ(plan.heads, 2);
        EXPECT_EQ(plan.rows, rows);
        EXPECT_EQ(plan.units, 768);
        EXPECT_TRUE(plan.heads_wait_apart);
        EXPECT_EQ(plan.rows_wait_apart, rows > 1);
        EXPECT_TRUE(plan.ops[0].waits);
        EXPECT_FALSE(plan.ops[1].waits);
        const gpu::LoopSplit split = gpu::split_of(plan);
        EXPECT_EQ(split.heads, 2);
        EXPECT_GT(split.units, 10);
        EXPECT_EQ(split.heads * split.rows * split.units, plan.blocks);
        EXPECT_EQ(gpu::groups_of(plan).count, split.heads * split.rows);
        EXPECT_EQ(gpu::groups_of(plan).size, split.units);
        EXPECT_EQ(gpu::group_of(plan, 0), 0);
        EXPECT_EQ(gpu::group_of(plan, split.units - 1), 0);
        EXPECT_EQ(gpu::group_of(plan, split.units), 1);
        EXPECT_EQ(gpu::group_of(plan, plan.blocks - 1), split.heads * split.rows - 1);
      }
}

// A product of all heads' states by one matrix, as of a projection: every head reads those of all others.
TEST(LoopPlan, AProductOfAllHeadsIsWaitedForByAll) {
  const LstmLoop loop{.units = 64, .heads = 2, .heads_first = false};
  gpu::LoopRecording recording = loop.recording(), changed;
  for (const std::span<const gpu::QueuedWork> step : recording.timesteps()) {
    changed.begin_step();
    auto product = std::get<gpu::QueuedProduct>(step[0].what);
    changed.add(product);
    product.sizes = {.m = 4, .n = 512, .k = 128, .accumulate = true, .lda = 128, .ldb = 512, .ldc = 512};
    changed.add(product);
    changed.add_chain().what = std::get<gpu::QueuedChain>(step[1].what);
  }
  const gpu::LoopPlan plan = gpu::plan_loop(changed.timesteps(), kLimits);
  ASSERT_EQ(plan.refusal, "");
  EXPECT_FALSE(plan.heads_wait_apart);
  EXPECT_TRUE(plan.rows_wait_apart);
  EXPECT_EQ(gpu::groups_of(plan).count, gpu::split_of(plan).rows);
}

// What a head reads of another one long after it was written is never waited for, and so is what is of another row.
TEST(LoopPlan, OldReadsOfOthersAreWaitedForByAll) {
  for (const bool of_a_head : {true, false}) {
    const LstmLoop loop{.steps = 8, .rows = 20, .units = 64, .heads = 2};
    gpu::LoopRecording recording = loop.recording(), changed;
    const auto at = [&](size_t t) { return std::get<gpu::QueuedProduct>(recording.timesteps()[t][0].what).a; };
    for (size_t t = 0; t < 8; ++t) {
      changed.begin_step();
      changed.add(std::get<gpu::QueuedProduct>(recording.timesteps()[t][0].what));
      auto chain = std::get<gpu::QueuedChain>(recording.timesteps()[t][1].what);
      // In place of the cells: the states of four timesteps before, a head or a row further.
      const auto* states = static_cast<const float*>(at(0)) + (static_cast<int64_t>(t) - 4) * 2 * 20 * 64;
      chain.operands[4].first = const_cast<float*>(states + (of_a_head ? 20 : 1) * 64);
      changed.add_chain().what = chain;
    }
    const gpu::LoopPlan plan = gpu::plan_loop(changed.timesteps(), kLimits);
    ASSERT_EQ(plan.refusal, "");
    EXPECT_FALSE(plan.heads_wait_apart);  // the row behind a head's last one is another head's
    EXPECT_EQ(plan.rows_wait_apart, of_a_head);
  }
}

// Few and small heads are whole ones of a block, which waits for nobody.
TEST(LoopPlan, SmallHeadsAreOfOneBlock) {
  const LstmLoop loop{.dtype = DType::bfloat16, .units = 16, .heads = 12};
  const gpu::LoopPlan plan = gpu::plan_loop(loop.recording().timesteps(), kLimits);
  ASSERT_EQ(plan.refusal, "");
  EXPECT_EQ(gpu::split_of(plan).units, 1);
  EXPECT_EQ(gpu::groups_of(plan).size, 1);
  EXPECT_EQ(gpu::loop_source(plan).find("wait_for(arrived"), std::string::npos);
}

// Rows are split among blocks; where there are few of these, they have more than 64.
TEST(LoopPlan, RowsAreSplit) {
  const auto split = [](int64_t rows, int64_t units, const gpu::LoopLimits& limits) {
    const LstmLoop loop{.dtype = DType::bfloat16, .rows = rows, .units = units};
    const gpu::LoopPlan plan = gpu::plan_loop(loop.recording().timesteps(), limits);
    EXPECT_EQ(plan.refusal, "");
    return std::tuple{plan.block_rows, plan.block_units, plan.blocks};
  };
  EXPECT_EQ(split(64, 768, kLimits), (std::tuple{64, 6, 128}));
  EXPECT_EQ(split(256, 128, kLimits), (std::tuple{128, 2, 128}));
  EXPECT_EQ(split(200, 64, {.blocks = 2, .shared_bytes = 227 << 10, .tensor_cores = true}), (std::tuple{200, 32, 2}));
}

// Lengths and timesteps are read before blocks wait, and nobody is waited for because of them.
TEST(LoopPlan, LengthsAreReadEarly) {
  const gpu::LoopPlan plan =
      gpu::plan_loop(LstmLoop{.units = 768, .has_lengths = true}.recording().timesteps(), kLimits);
  ASSERT_EQ(plan.refusal, "");
  EXPECT_TRUE(plan.ops[0].waits);
  EXPECT_FALSE(plan.ops[1].waits);
  const auto& chain = std::get<gpu::LoopChain>(plan.ops[1].what);
  for (size_t k = 0; k < chain.operands.size(); ++k) {
    EXPECT_EQ(chain.operands[k].is_int32, k == 7 || k == 8) << k;
    EXPECT_EQ(chain.operands[k].is_shared, k == 6) << k;  // h
    EXPECT_FALSE(chain.operands[k].is_late) << k;
  }
  const std::string source = gpu::loop_source(plan);
  EXPECT_NE(source.find("= (float)((const int*)place_at(p.places[9], t))[row * 1ll];"), source.npos) << source;
  EXPECT_NE(source.find("= (float)((const int*)place_at(p.places[10], t))[row * 0ll];"), source.npos) << source;
}

TEST(LoopPlan, IsSaidInWords) {
  const gpu::LoopPlan plan =
      gpu::plan_loop(LstmLoop{.dtype = DType::bfloat16, .units = 768}.recording().timesteps(), kLimits);
  EXPECT_EQ(gpu::to_text(plan, kLimits),
            "one kernel of 6 timesteps, products by tensor cores: 128 blocks have 6 of 768 units each, 49152 bytes of "
            "232448 of shared memory with all weights of these, and wait for each other once in a timestep");
  const auto words = [](const LstmLoop& loop) {
    return gpu::to_text(gpu::plan_loop(loop.recording().timesteps(), kLimits), kLimits);
  };
  EXPECT_EQ(words({.dtype = DType::bfloat16, .rows = 100, .units = 768, .heads = 2}),
            "one kernel of 6 timesteps, products by tensor cores: 128 blocks have 12 of 768 units of one of 2 heads "
            "each, 159744 bytes of 232448 of shared memory with all weights of these, and wait for the 64 of their "
            "group once in a timestep");
  EXPECT_EQ(words({.dtype = DType::bfloat16, .rows = 256, .units = 128}),
            "one kernel of 6 timesteps, products by tensor cores: 128 blocks have 2 of 128 units in 128 of 256 rows "
            "each, 18432 bytes of 232448 of shared memory with all weights of these, and wait for the 64 of their "
            "group once in a timestep");
  EXPECT_EQ(words({.dtype = DType::bfloat16, .units = 8, .heads = 200}),
            "one kernel of 6 timesteps, products by tensor cores: 25 blocks have 8 of 200 heads each, 32768 bytes of "
            "232448 of shared memory with all weights of these, and wait for no other");
}

TEST(LoopPlan, SaysWhyThereIsNone) {
  EXPECT_EQ(gpu::plan_loop(NormLstmLoop{.dtype = DType::float64}.recording().timesteps(), kLimits).refusal,
            "elements are double");
  EXPECT_EQ(refusal({.dtype = DType::float64}), "elements are double");
  EXPECT_EQ(refusal({.tf32 = true}), "products are of TF32");
  EXPECT_EQ(refusal({.steps = 3}), "there are fewer than 4 timesteps");
  EXPECT_EQ(refusal({.rows = 257}), "products have 257 rows, more than 256");
  EXPECT_EQ(refusal({.uneven = 64}), "tensors of operator 0 do not lie at equal distances");
  EXPECT_EQ(refusal({.weights_change = true}), "operator 1 writes weights");
  EXPECT_EQ(refusal({.has_lengths = true, .lengths_move = 16}), "timesteps have lengths of their own");
  EXPECT_EQ(refusal({.has_lengths = true, .lengths_change = true}), "operator 1 writes lengths or timesteps");
  EXPECT_EQ(refusal({.units = 4096}),
            "the weights of a block's 32 units take 2099200 bytes of shared memory, and 232448 are there");
  EXPECT_EQ(refusal({.units = 1024, .heads = 12}),
            "the weights of a block's 94 units of one of 12 heads take 1546112 bytes of shared memory, and 232448 are "
            "there");
  EXPECT_EQ(refusal({}, {}), "the device runs no blocks at the same time");
}

TEST(LoopPlan, IsOfTheTimestepsThatItWasMadeOf) {
  gpu::LoopRecording made_of = LstmLoop{}.recording();
  const gpu::LoopPlan plan = gpu::plan_loop(made_of.timesteps(), kLimits);
  const std::span<const gpu::QueuedWork> step = made_of.timesteps()[1];
  const auto is_plan_of = [&](const LstmLoop& loop) {
    return gpu::is_plan_of(plan, step, loop.recording().timesteps());
  };
  EXPECT_TRUE(is_plan_of({}));
  EXPECT_FALSE(is_plan_of({.dtype = DType::bfloat16}));
  EXPECT_FALSE(is_plan_of({.steps = 7}));
  EXPECT_FALSE(is_plan_of({.rows = 3}));
  EXPECT_FALSE(is_plan_of({.tf32 = true}));
  EXPECT_FALSE(is_plan_of({.uneven = 64}));
  EXPECT_FALSE(is_plan_of({.weights_change = true}));
  EXPECT_FALSE(is_plan_of({.shift = 64}));
  EXPECT_FALSE(is_plan_of({.has_lengths = true}));
  EXPECT_FALSE(is_plan_of({.checks = true}));
}

TEST(LoopPlan, IsOfTheLengthsThatItWasMadeOf) {
  gpu::LoopRecording made_of = LstmLoop{.has_lengths = true, .checks = true}.recording();
  const gpu::LoopPlan plan = gpu::plan_loop(made_of.timesteps(), kLimits);
  ASSERT_EQ(plan.refusal, "");
  const std::span<const gpu::QueuedWork> step = made_of.timesteps()[1];
  const auto is_plan_of = [&](const LstmLoop& loop) {
    return gpu::is_plan_of(plan, step, loop.recording().timesteps());
  };
  EXPECT_TRUE(is_plan_of({.has_lengths = true, .checks = true}));
  EXPECT_FALSE(is_plan_of({.has_lengths = true}));
  EXPECT_FALSE(is_plan_of({.has_lengths = true, .lengths_move = 16, .checks = true}));
  EXPECT_FALSE(is_plan_of({.has_lengths = true, .lengths_shift = 16, .checks = true}));
  EXPECT_FALSE(is_plan_of({.has_lengths = true, .lengths_float = true, .checks = true}));
}

// A work that takes the place of another one has nothing of it.
TEST(LoopPlan, ARecordingForgetsChecks) {
  gpu::LoopRecording recording;
  recording.begin_step();
  recording.add({}).check = gpu::QueueAlone([] {});
  recording.add_chain().check = gpu::QueueAlone([] {});
  recording.clear();
  recording.begin_step();
  EXPECT_FALSE(recording.add({}).check);
  EXPECT_FALSE(recording.add_chain().check);
}

TEST(LoopPlan, ARecordingBeginsAnew) {
  gpu::LoopRecording recording;
  for (const size_t steps : {3u, 2u}) {
    recording.clear();
    for (size_t t = 0; t < steps; ++t) {
      recording.begin_step();
      for (size_t i = 0; i <= t; ++i) recording.add({.sizes = {.m = 5}});
    }
    const gpu::Timesteps all = recording.timesteps();
    ASSERT_EQ(all.size(), steps);
    for (size_t t = 0; t < steps; ++t) EXPECT_EQ(all[t].size(), t + 1);
  }
}

}  // namespace
}  // namespace stepnet::testing::loop_plan_test
