// What the tests of the public format's own recurrent networks pin down, for each cell that its builders make: values
// are those of the cell's formulas, gradients those of the unrolled net and central differences for every choice of
// outputs that have some, recomputation and passes change nothing, a forward net gives the same bits, and one net takes
// sequences of different lengths in turn.
//
// Pinned elsewhere: products and sums (cells_test, public_nets_test), stacked layers and initial states of every rank
// (stacked_layers_test), windows and initial values of no rows (windows_test), blobs of timesteps (blob_fetcher_test),
// an empty backward step net (full_form_test), the unit operators alone (tests/operators), packed sequences
// (tests/operators/pack_rnn_sequence_test).
// Not pinned here, on purpose: the builders' registries of parameters (there are no such builders), float16 and mixed
// devices (recurrent networks run on the CPU), and these refusals, which are lifted: an output of LSTMUnit without a
// gradient counts as zero, so that ZeroGradient is not needed; a gradient that no operator of the backward step net
// writes is zero; initial states may have any rank; a network over no timesteps is fine.
#include "tests/recurrent/caffe2_rows.h"

#include <gtest/gtest.h>

#include "recurrent/form/short_form.h"

namespace stepnet::testing::caffe2_rows_test {
namespace {

Feeds feeds_of(const Caffe2Row& row, DType dtype, int64_t steps, const std::vector<int32_t>& lengths) {
  const auto batch = static_cast<int64_t>(lengths.size());
  Feeds feeds;
  auto add = [&](const std::string& name, const Shape& shape) {
    const uint64_t seed = 50 + feeds.size();
    feeds.emplace_back(
        name, dtype == DType::float64 ? normal<double>(shape, seed, 0, 0.7) : normal<float>(shape, seed, 0, 0.7));
  };
  add("X", {steps, batch, row.width});
  for (const auto& [name, sizes] : row.feeds) {
    Shape shape;
    for (const int64_t size : sizes) shape.push_back(size < 0 ? batch : size);
    add(name, shape);
  }
  feeds.emplace_back("lengths", Tensor::of<int32_t>({batch}, std::span<const int32_t>(lengths)));
  return feeds;
}

const std::vector<int32_t> kLengths = {4, 0, 2, 9};  // of no timestep, and of more than there are

class Caffe2Rows : public ::testing::TestWithParam<Caffe2Row> {};

TEST_P(Caffe2Rows, EqualTheirFormulas) {
  const Caffe2Row& row = GetParam();
  if (!row.reference) return;
  for (const DType dtype : {DType::float64, DType::float32})
    for (const int64_t steps : {1, 2, 5}) {
      const Feeds feeds = feeds_of(row, dtype, steps, kLengths);
      const NetDef net = recurrent_net(row.cell, feeds);
      const auto blobs = run_forward(net, feeds);
      for (const auto& [name, expected] : run_reference(net, blobs, row.reference))
        EXPECT_EQ(compare(to_double(blobs.at(name)), expected, dtype == DType::float64 ? 1e-10 : 1e-5), "")
            << name << " " << steps;
    }
}

TEST_P(Caffe2Rows, EqualTheUnrolledNet) {
  for (const std::vector<std::string>& choice : GetParam().choices)
    for (const int64_t steps : {0, 1, 5}) {
      Cell cell = GetParam().cell;
      cell.differentiated = choice;
      EXPECT_EQ(check_against_unrolled(cell, feeds_of(GetParam(), DType::float64, steps, kLengths)), "")
          << fmt::format("{}", fmt::join(choice, " ")) << " " << steps;
    }
}

TEST_P(Caffe2Rows, PassesLeaveTheResult) {
  Cell cell = GetParam().cell;
  const std::vector<int32_t> lengths(40, 5);
  for (const std::vector<std::string>& passes : pass_choices()) {
    cell.disabled_passes = passes;
    EXPECT_EQ(check_against_unrolled(cell, feeds_of(GetParam(), DType::float64, 7, lengths), 1e-9), "")
        << text_of(passes);
  }
}

TEST_P(Caffe2Rows, GradientsAreCentralDifferences) {
  const Feeds feeds = feeds_of(GetParam(), DType::float64, 2, {1, 2});
  EXPECT_EQ(check_differences(GetParam().cell, feeds), "");
}

// As the builders' memory_optimization: the gates' sums are made again for the backward pass.
TEST_P(Caffe2Rows, RecomputationLeavesTheResult) {
  Cell cell = GetParam().cell;
  cell.recompute = {"p"};
  if (GetParam().name.starts_with("Gru")) cell.recompute = {"rh", "rs"};
  EXPECT_EQ(check_against_unrolled(cell, feeds_of(GetParam(), DType::float64, 4, kLengths)), "");
}

TEST_P(Caffe2Rows, ForwardOnlyGivesTheSameBits) {
  const Feeds feeds = feeds_of(GetParam(), DType::float32, 6, kLengths);
  NetDef net = recurrent_net(GetParam().cell, feeds);
  net.mutable_op(0)->MutableExtension(recurrent)->set_forward_only(true);
  expand_recurrent(net);
  const CellResults forward = run_with_gradients(net, feeds, {});
  const CellResults trained = run_recurrent(GetParam().cell, feeds, outside_gradients(GetParam().cell, feeds));
  for (const std::string& name : GetParam().cell.outputs.empty() ? std::vector<std::string>{"h_all", "h_last"}
                                                                 : std::vector<std::string>{"dropped_all", "h_all"})
    EXPECT_EQ(compare(forward.outputs.at(name), trained.outputs.at(name), 0), "") << name;
}

// The arguments of the public format's executor of steps change no bit.
TEST_P(Caffe2Rows, LengthsInTurn) {
  const Cell& cell = GetParam().cell;
  std::vector<CellData> data;
  for (const int64_t steps : {12, 6, 9, 12, 7}) {
    const Feeds feeds = feeds_of(GetParam(), DType::float64, steps, {12, 3, 0, 8});
    data.push_back({feeds, outside_gradients(cell, feeds)});
  }
  NetDef net = expanded_net(cell, data[0].feeds);
  const std::vector<CellResults> results = run_in_turn(net, data);
  *net.mutable_op(0)->add_arg() = make_arg("enable_rnn_executor", 1);
  const std::vector<CellResults> executed = run_in_turn(net, data);
  for (size_t i = 0; i < data.size(); ++i) {
    EXPECT_EQ(compare_results(executed[i], results[i], 0), "") << i;
    EXPECT_EQ(compare_results(results[i], run_unrolled(cell, data[i].feeds, data[i].outside), 1e-9), "") << i;
  }
}

const auto kName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Lstm, Caffe2Rows, ::testing::ValuesIn(lstm_rows()), kName);
INSTANTIATE_TEST_SUITE_P(Gru, Caffe2Rows, ::testing::ValuesIn(gru_rows()), kName);
INSTANTIATE_TEST_SUITE_P(Attention, Caffe2Rows, ::testing::ValuesIn(attention_rows()), kName);

}  // namespace
}  // namespace stepnet::testing::caffe2_rows_test
