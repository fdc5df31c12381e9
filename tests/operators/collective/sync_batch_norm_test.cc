// SyncBatchNorm, SyncSpatialBN and their gradient on ranks with different numbers of rows, against BatchNorm and
// SpatialBN on all of them.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "stepnet/gradients.h"
#include "tests/core/errors.h"
#include "tests/operators/collective/ranks.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::sync_batch_norm_test {
namespace {

constexpr int64_t kChannels = 3, kInner = 2;
constexpr double kMostDifference = 1e-12;

int64_t rows_of(int r) { return 2 * r + 1; }
int64_t first_row_of(int r) { return int64_t{r} * r; }  // of as many as the ranks before have
int64_t all_rows() { return first_row_of(ranks()); }

Shape shape_of(int64_t rows, const std::string& order) {
  return order == "NHWC" ? Shape{rows, kInner, kChannels} : Shape{rows, kChannels, kInner};
}

// The rows of this rank.
Tensor part_of(const Tensor& all) { return all.rows(first_row_of(rank()), rows_of(rank())).clone(); }

Feeds feeds_of(const std::string& order, double mean = 0) {
  return {{"X", normal<double>(shape_of(all_rows(), order), 1, mean, 2)},
          {"scale", normal<double>({kChannels}, 2)},
          {"bias", normal<double>({kChannels}, 3)},
          {"mean", normal<double>({kChannels}, 4)},
          {"var", uniform<double>({kChannels}, 0.5, 2, 5)}};
}

const std::vector<std::string> kInputs = {"X", "scale", "bias", "mean", "var"},
                               kOutputs = {"Y", "mean", "var", "saved", "inv"};

std::vector<Argument> args_of(const std::string& order) {
  return {make_arg("epsilon", 0.25F), make_arg("momentum", 0.75F), make_arg("order", order)};
}

// What the operator makes, behind one that makes "world".
std::map<std::string, Tensor> run_on_part(OperatorDef op, const Feeds& feeds) {
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  op.mutable_input()->Add("world");
  for (int i = op.input_size() - 1; i > 0; --i) op.mutable_input()->SwapElements(i, i - 1);
  NetDef net = parse_net_text("op { type: 'CreateCommonWorld' output: 'world' }");
  *net.add_op() = op;
  RunContext run;
  run_net_once(net, workspace, run);
  std::map<std::string, Tensor> made;
  for (const std::string& name : op.output()) made[name] = workspace.fetch(name).clone();
  return made;
}

void expect_same_outputs(const std::string& type, const std::string& order, double mean = 0) {
  const Feeds all = feeds_of(order, mean);
  Feeds part = all;
  part[0].second = part_of(all[0].second);
  const std::vector<Tensor> wanted = run_op_on(make_op(type, kInputs, kOutputs, args_of(order)), all);
  const auto made = run_on_part(make_op("Sync" + type, kInputs, kOutputs, args_of(order)), part);
  EXPECT_EQ(compare(made.at("Y"), part_of(wanted[0]), kMostDifference), "") << type << order;
  for (size_t o = 1; o < kOutputs.size(); ++o)
    EXPECT_EQ(compare(made.at(kOutputs[o]), wanted[o], kMostDifference), "") << type << order << kOutputs[o];
}

TEST(SyncBatchNorm, MeasuresAllRanks) {
  for (const char* type : {"BatchNorm", "SpatialBN"})
    for (const char* order : {"NCHW", "NHWC"}) expect_same_outputs(type, order);
}

// Sums of squares would have no digit left of the variance.
TEST(SyncBatchNorm, ALargeMeanLosesNothing) {
  const Feeds all = feeds_of("NCHW", 1e7);
  Feeds part = all;
  part[0].second = part_of(all[0].second);
  const std::vector<Tensor> wanted = run_op_on(make_op("BatchNorm", kInputs, kOutputs, args_of("NCHW")), all);
  const auto made = run_on_part(make_op("SyncBatchNorm", kInputs, kOutputs, args_of("NCHW")), part);
  EXPECT_EQ(compare(made.at("inv"), wanted[4], 1e-8), "");
}

TEST(SyncBatchNorm, OfFloatsIsTheSameOnAllRanks) {
  Feeds part = feeds_of("NCHW");
  part[0].second = part_of(part[0].second);
  for (auto& feed : part) {
    Tensor floats = Tensor::empty(DType::float32, feed.second.shape());
    for (int64_t i = 0; i < floats.size(); ++i)
      floats.data<float>()[i] = static_cast<float>(feed.second.data<double>()[i]);
    feed.second = floats;
  }
  const auto made = run_on_part(make_op("SyncSpatialBN", kInputs, kOutputs, args_of("NCHW")), part);
  for (const char* name : {"mean", "var", "saved", "inv"})
    for (int64_t c = 0; c < kChannels; ++c) {
      const auto own = static_cast<double>(made.at(name).data<float>()[c]);
      EXPECT_EQ(sum_over_ranks(own), own * ranks()) << name;
    }
  const std::vector<Tensor> wanted =
      run_op_on(make_op("SpatialBN", kInputs, kOutputs, args_of("NCHW")), feeds_of("NCHW"));
  for (size_t o = 1; o < kOutputs.size(); ++o)
    EXPECT_EQ(compare(to_double(made.at(kOutputs[o])), wanted[o], 1e-6), "") << kOutputs[o];
}

const std::vector<std::string> kGradientInputs = {"X", "scale", "dY", "saved", "inv", "dmean", "dinv"};

// Of the sum of all ranks' losses: what comes to the statistics comes from all of them.
TEST(SyncBatchNorm, GradientsAreThoseOfAllRanks) {
  for (const char* order : {"NCHW", "NHWC"}) {
    Feeds all = feeds_of(order), part;
    const std::vector<Tensor> values = run_op_on(make_op("BatchNorm", kInputs, kOutputs, args_of(order)), all);
    all = {all[0], all[1], {"dY", normal<double>(values[0].shape(), 6)}, {"saved", values[3]}, {"inv", values[4]}};
    part = all;
    for (const size_t i : {size_t{0}, size_t{2}}) part[i].second = part_of(all[i].second);
    for (const char* name : {"dmean", "dinv"}) {
      const uint64_t seed = name[1] == 'm' ? 20 : 40;
      Tensor sum = Tensor::zeros(DType::float64, {kChannels});
      for (int r = 0; r < ranks(); ++r)
        for (int64_t c = 0; c < kChannels; ++c)
          sum.data<double>()[c] += normal<double>({kChannels}, seed + static_cast<uint64_t>(r)).data<double>()[c];
      all.emplace_back(name, sum);
      part.emplace_back(name, normal<double>({kChannels}, seed + static_cast<uint64_t>(rank())));
    }
    const std::vector<std::string> outputs = {"dX", "dscale", "dbias"};
    const std::vector<Tensor> wanted =
        run_op_on(make_op("BatchNormGradient", kGradientInputs, outputs, args_of(order)), all);
    const auto made = run_on_part(make_op("SyncBatchNormGradient", kGradientInputs, outputs, args_of(order)), part);
    EXPECT_EQ(compare(made.at("dX"), part_of(wanted[0]), kMostDifference), "") << order;
    for (const size_t o : {size_t{1}, size_t{2}})
      for (int64_t c = 0; c < kChannels; ++c)
        EXPECT_NEAR(sum_over_ranks(made.at(outputs[o]).data<double>()[c]), wanted[o].data<double>()[c], kMostDifference)
            << outputs[o] << order;
  }
}

// The last rank has something in place of a part of the batch.
TEST(SyncBatchNorm, ARankWithoutAShareDoesNotCount) {
  if (ranks() == 1) GTEST_SKIP() << "there is one rank";
  const bool counts = rank() < ranks() - 1;
  Feeds all = feeds_of("NCHW");
  const Tensor whole = all[0].second, dy = normal<double>(whole.shape(), 6);
  const int64_t counted = first_row_of(ranks() - 1);
  all[0].second = whole.rows(0, counted).clone();
  Feeds part = all;
  part[0].second = part_of(whole);
  part.emplace_back("share", Tensor::of<double>({1}, {counts ? 0.5 : 0.0}));
  const std::vector<Tensor> wanted = run_op_on(make_op("SpatialBN", kInputs, kOutputs, args_of("NCHW")), all);
  std::vector<std::string> inputs = kInputs;
  inputs.emplace_back("share");
  const auto made = run_on_part(make_op("SyncSpatialBN", inputs, kOutputs, args_of("NCHW")), part);
  for (size_t o = 1; o < kOutputs.size(); ++o)
    EXPECT_EQ(compare(made.at(kOutputs[o]), wanted[o], kMostDifference), "") << kOutputs[o];

  const std::vector<std::string> outputs = {"dX", "dscale", "dbias"};
  const std::vector<Tensor> slopes =
      run_op_on(make_op("SpatialBNGradient", {"X", "scale", "dY", "saved", "inv"}, outputs, args_of("NCHW")),
                {all[0], all[1], {"dY", dy.rows(0, counted).clone()}, {"saved", wanted[3]}, {"inv", wanted[4]}});
  const auto gradients = run_on_part(
      make_op("SyncBatchNormGradient", {"X", "scale", "dY", "saved", "inv", "", "", "share"}, outputs, args_of("NCHW")),
      {part[0], part[1], {"dY", part_of(dy)}, {"saved", wanted[3]}, {"inv", wanted[4]}, part.back()});
  const Tensor expected = counts ? part_of(slopes[0]) : Tensor::zeros(DType::float64, part[0].second.shape());
  EXPECT_EQ(compare(gradients.at("dX"), expected, kMostDifference), "");
  for (const size_t o : {size_t{1}, size_t{2}})
    for (int64_t c = 0; c < kChannels; ++c)
      EXPECT_NEAR(sum_over_ranks(gradients.at(outputs[o]).data<double>()[c]), slopes[o].data<double>()[c],
                  kMostDifference);
}

TEST(SyncBatchNorm, WhatIsWrongIsNamed) {
  const auto refusal = [&](const std::string& outputs, const Tensor& x, const std::string& more = "") {
    Workspace workspace;
    for (const auto& [name, value] : feeds_of("NCHW")) workspace.tensor(name) = value.clone();
    workspace.tensor("X") = x;
    return error_text([&] {
      run_on_world(
          "op { type: 'SyncBatchNorm' input: 'world' input: 'X' input: 'scale' input: 'bias' input: 'mean' "
          "input: 'var' " +
              outputs + more + " }",
          workspace);
    });
  };
  const std::string outputs = "output: 'Y' output: 'mean' output: 'var' output: 's' output: 'i' ";
  expect_contains(refusal("output: 'Y' ", normal<double>({2, 3})), "SyncBatchNorm");
  expect_contains(refusal(outputs, normal<float>({2, 3})), "\"scale\" is double[3], but beside \"X\"");
  expect_contains(refusal(outputs, normal<double>({2, 4})), "it must be double[4]");
  expect_contains(refusal(outputs, normal<double>({0, 3})), "no rank has an element in a channel");
  expect_contains(refusal(outputs, normal<double>({2, 3}), "arg { name: 'is_test' i: 1 }"),
                  "in a test nothing is measured, and there is BatchNorm for that");
}

TEST(SyncBatchNorm, GradientsThroughRunningStatisticsAreRefused) {
  NetDef net = parse_net_text(
      "external_input: 'world' external_input: 'X' external_input: 'scale' external_input: 'bias' external_input: "
      "'mean' external_input: 'var' op { type: 'SyncBatchNorm' input: 'world' input: 'X' input: 'scale' input: 'bias' "
      "input: 'mean' input: 'var' output: 'Y' output: 'mean' output: 'var' output: 's' output: 'i' } op { type: "
      "'SumElements' input: 'var' output: 'loss' }");
  expect_contains(error_text([&] {
                    add_gradient_operators(net, {.targets = {{"loss", ""}}, .wanted = {"X"}, .stop = {}});
                  }),
                  "the loss depends on the output \"running_var\"");
}

}  // namespace
}  // namespace stepnet::testing::sync_batch_norm_test
