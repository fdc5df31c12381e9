// Networks of several layers in one step net: LSTMs, GRUs and products of one to four layers against the same cells
// unrolled by hand, with every choice of outputs that have gradients, with and without recomputation; and one net that
// is run on sequences of different lengths in turn.
#include <gtest/gtest.h>

#include "recurrent/form/short_form.h"
#include "stepnet/text.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing::stacked_layers_test {
namespace {

struct Layers {
  Cell cell;
  Feeds parameters;  // and initial states
  int64_t batch = 3;
};

Feeds with_sequence(const Layers& layers, int64_t steps, int64_t width = 3) {
  Feeds feeds = {{"X", normal<double>({steps, layers.batch, width}, 1)}};
  feeds.insert(feeds.end(), layers.parameters.begin(), layers.parameters.end());
  return feeds;
}

CellState state(const std::string& kind, int layer) {
  return {fmt::format("{}_prev_{}", kind, layer), fmt::format("{}_{}", kind, layer), fmt::format("{}0_{}", kind, layer),
          fmt::format("{}_{}_all", kind, layer), fmt::format("{}_{}_last", kind, layer)};
}

Layers products(int count) {
  Layers layers;
  std::string below = "x";
  for (int i = 0; i < count; ++i) {
    const CellState h = state("h", i);
    layers.cell.step.push_back(fmt::format("{} = Mul({}, {})", h.output, below, h.input));
    layers.cell.states.push_back(h);
    layers.parameters.emplace_back(h.initial, normal<double>({1, layers.batch, 3}, 10 + i));
    below = h.output;
  }
  return layers;
}

struct LstmOptions {
  int layers = 1;
  int forget_bias = 0;
  bool drop = false, recompute = false;
  int initial_rank = 3;
  std::vector<int32_t> lengths = {5, 0, 2};  // one for each row of the batch
  bool residual = false;
};

Shape initial_shape(int rank, int64_t batch, int64_t width) {
  return rank == 1 ? Shape{width} : rank == 2 ? Shape{batch, width} : Shape{1, batch, width};
}

void add_lstm_layer(Layers& layers, const LstmOptions& options, int i, const std::string& below, int64_t in) {
  const int64_t width = options.residual ? in : 2 + i;  // layers of different widths
  const CellState h = state("h", i), c = state("c", i);
  layers.cell.step.push_back(fmt::format("gx_{0} = FC({1}, Wx_{0}, bx_{0}) axis=2", i, below));
  layers.cell.step.push_back(fmt::format("gh_{0} = FC({1}, Wh_{0}, bh_{0}) axis=2", i, h.input));
  layers.cell.step.push_back(fmt::format("gates_{0} = Sum(gx_{0}, gh_{0})", i));
  layers.cell.step.push_back(fmt::format("{}, {} = LSTMUnit({}, {}, gates_{}, lengths, timestep) drop_states={}",
                                         h.output, c.output, h.input, c.input, i, int{options.drop}));
  if (options.recompute)
    for (const char* blob : {"gx", "gh", "gates"}) layers.cell.recompute.push_back(fmt::format("{}_{}", blob, i));
  layers.cell.states.push_back(h);
  layers.cell.states.push_back(c);
  const uint64_t seed = 20 + 10 * i;
  auto add = [&](const std::string& name, const Shape& shape, uint64_t more) {
    layers.parameters.emplace_back(name, normal<double>(shape, seed + more, 0, 0.7));
  };
  add(h.initial, initial_shape(options.initial_rank, layers.batch, width), 0);
  add(c.initial, initial_shape(options.initial_rank, layers.batch, width), 1);
  add(fmt::format("Wx_{}", i), {4 * width, in}, 2);
  add(fmt::format("bx_{}", i), {4 * width}, 3);
  add(fmt::format("Wh_{}", i), {4 * width, width}, 4);
  add(fmt::format("bh_{}", i), {4 * width}, 5);
}

Layers lstm(const LstmOptions& options) {
  Layers layers;
  layers.batch = static_cast<int64_t>(options.lengths.size());
  std::string below = "x";
  int64_t in = 3;
  for (int i = 0; i < options.layers; ++i) {
    add_lstm_layer(layers, options, i, below, in);
    if (!options.residual) in = 2 + i;
    const std::string above = state("h", i).output;
    if (options.residual) layers.cell.step.push_back(fmt::format("sum_{} = Sum({}, {})", i, above, below));
    below = options.residual ? fmt::format("sum_{}", i) : above;
  }
  layers.parameters.emplace_back("lengths",
                                 Tensor::of<int32_t>({layers.batch}, std::span<const int32_t>(options.lengths)));
  return layers;
}

// The forget bias is no integer argument, so it is put in afterwards, in both nets: as a bias of the forget gates.
Layers with_forget_bias(Layers layers, int bias) {
  for (auto& [name, value] : layers.parameters)
    if (name.starts_with("bx_")) {
      const int64_t width = value.dim(0) / 4;
      for (int64_t i = width; i < 2 * width; ++i) value.data<double>()[i] += bias;
    }
  return layers;
}

std::string check(const Layers& layers, int64_t steps) {
  return check_against_unrolled(layers.cell, with_sequence(layers, steps), 1e-9);
}

// Outputs are in the order all, last of every state.
Cell differentiated(Cell cell, const std::vector<int>& outputs) {
  std::vector<std::string> names;
  for (const CellState& s : cell.states) names.insert(names.end(), {s.all, s.last});
  for (const int output : outputs) cell.differentiated.push_back(names.at(output));
  return cell;
}

TEST(StackedLayers, Products) {
  for (const int count : {1, 2, 3, 4})
    for (const std::vector<int>& outputs : {std::vector<int>{0}, {1}, {0, 1}}) {
      Layers layers = products(count);
      std::vector<int> of_the_top = outputs;
      for (int& output : of_the_top) output += 2 * (count - 1);
      layers.cell = differentiated(layers.cell, of_the_top);
      for (const int64_t steps : {1, 4}) EXPECT_EQ(check(layers, steps), "") << count << " " << steps;
    }
}

TEST(StackedLayers, Lstms) {
  for (const int count : {1, 2, 3})
    for (const bool drop : {false, true})
      for (const std::vector<int>& outputs : {std::vector<int>{0}, {1}, {0, 1}, {0, 2}, {0, 1, 2, 3}}) {
        Layers layers = lstm({.layers = count, .drop = drop});
        layers.cell = differentiated(layers.cell, outputs);
        EXPECT_EQ(check(layers, 5), "") << count << " " << drop << " " << fmt::format("{}", fmt::join(outputs, " "));
      }
}

TEST(StackedLayers, LstmsWithRecomputation) {
  for (const int count : {1, 2, 3})
    for (const bool drop : {false, true})
      EXPECT_EQ(check(lstm({.layers = count, .drop = drop, .recompute = true}), 5), "") << count << " " << drop;
}

TEST(StackedLayers, LstmsWithForgetBiases) {
  for (const int bias : {-10, -1, 1, 10}) EXPECT_EQ(check(with_forget_bias(lstm({.layers = 2}), bias), 5), "") << bias;
}

TEST(StackedLayers, LstmsWithInitialStatesOfEveryRank) {
  for (const int rank : {1, 2, 3})
    for (const int64_t steps : {0, 1, 5})
      EXPECT_EQ(check(lstm({.layers = 3, .initial_rank = rank}), steps), "") << rank << " " << steps;
}

TEST(StackedLayers, LstmsOfNothing) {
  for (const int rank : {1, 2, 3})
    for (const int64_t steps : {0, 1, 5})
      EXPECT_EQ(check(lstm({.layers = 2, .initial_rank = rank, .lengths = {}}), steps), "") << rank << " " << steps;
}

TEST(StackedLayers, ResidualLstms) {
  EXPECT_EQ(check(lstm({.layers = 3, .residual = true}), 5), "");
  EXPECT_EQ(check(lstm({.layers = 2, .drop = true, .recompute = true, .residual = true}), 5), "");
}

// The candidate sees the state through the reset gate, before or behind its product.
Layers gru(bool linear_before_reset) {
  const Lines candidate = linear_before_reset ? Lines{"v = FC(h_prev_0, U, bu) axis=2", "q = Mul(r, v)"}
                                              : Lines{"q_in = Mul(r, h_prev_0)", "q = FC(q_in, U, bu) axis=2"};
  Layers layers;
  layers.cell.step = {"i2h = FC(x, W, bw) axis=2",
                      "rx, ux, ox = Split(i2h) axis=2",
                      "rh = FC(h_prev_0, R, br) axis=2",
                      "rs = Sum(rx, rh)",
                      "r = Sigmoid(rs)",
                      "uh = FC(h_prev_0, Z, bz) axis=2",
                      "us = Sum(ux, uh)",
                      "u = Sigmoid(us)"};
  layers.cell.step.insert(layers.cell.step.end(), candidate.begin(), candidate.end());
  const Lines end = {"os = Sum(ox, q)", "o = Tanh(os)", "d = Sub(h_prev_0, o)", "ud = Mul(u, d)", "h_0 = Sum(o, ud)"};
  layers.cell.step.insert(layers.cell.step.end(), end.begin(), end.end());
  layers.cell.states = {state("h", 0)};
  layers.parameters = {
      {"h0_0", normal<double>({1, 3, 4}, 2)}, {"W", normal<double>({12, 3}, 3)}, {"bw", normal<double>({12}, 4)}};
  uint64_t seed = 5;
  for (const char* name : {"R", "Z", "U"}) layers.parameters.emplace_back(name, normal<double>({4, 4}, seed++));
  for (const char* name : {"br", "bz", "bu"}) layers.parameters.emplace_back(name, normal<double>({4}, seed++));
  return layers;
}

TEST(StackedLayers, Grus) {
  for (const bool before : {false, true})
    for (const std::vector<int>& outputs : {std::vector<int>{0}, {1}, {0, 1}}) {
      Layers layers = gru(before);
      layers.cell = differentiated(layers.cell, outputs);
      EXPECT_EQ(check(layers, 4), "") << before;
    }
}

NetDef forward_only_net(const Layers& layers, int64_t steps) {
  NetDef net = recurrent_net({layers.cell.step, layers.cell.states}, with_sequence(layers, steps));
  net.mutable_op(0)->MutableExtension(recurrent)->set_forward_only(true);
  expand_recurrent(net);
  return net;
}

TEST(StackedLayers, ForwardOnlyGivesTheSameBits) {
  for (const Layers& layers : {lstm({.layers = 3}), lstm({.layers = 2, .drop = true}), gru(true), gru(false)}) {
    const Feeds feeds = with_sequence(layers, 6);
    EXPECT_EQ(compare_results(run_with_gradients(forward_only_net(layers, 6), feeds, {}),
                              {run_recurrent(layers.cell, feeds, {}).outputs, {}}, 0),
              "");
  }
}

// One net on sequences of different lengths in turn. Lengths of rows may be greater than the number of timesteps.
// The arguments of the public format's executor of steps change nothing, not a bit.
TEST(StackedLayers, LengthsInTurn) {
  const Layers layers = lstm({.layers = 3, .drop = true, .lengths = {40, 25, 3}});
  std::vector<CellData> data;
  for (const int64_t steps : {40, 20, 30, 40, 21}) {
    const Feeds feeds = with_sequence(layers, steps);
    data.push_back({feeds, outside_gradients(layers.cell, feeds)});
  }
  NetDef net = expanded_net(layers.cell, data[0].feeds);
  const std::vector<CellResults> results = run_in_turn(net, data);
  *net.mutable_op(0)->add_arg() = make_arg("enable_rnn_executor", 1);
  *net.mutable_op(0)->add_arg() = make_arg("rnn_executor.num_threads", 4);
  *net.mutable_op(0)->add_arg() = make_arg("rnn_executor.max_cuda_streams", 2);
  const std::vector<CellResults> executed = run_in_turn(net, data);
  for (size_t i = 0; i < data.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(compare_results(executed[i], results[i], 0), "");
    EXPECT_EQ(compare_results(results[i], run_unrolled(layers.cell, data[i].feeds, data[i].outside), 1e-9), "");
  }
}

TEST(StackedLayers, LengthsInTurnForwardOnly) {
  const Layers layers = lstm({.layers = 2, .lengths = {40, 25, 3}});
  std::vector<CellData> data;
  for (const int64_t steps : {40, 20, 30, 40, 21}) data.push_back({with_sequence(layers, steps), {}});
  const std::vector<CellResults> results = run_in_turn(forward_only_net(layers, 40), data);
  for (size_t i = 0; i < data.size(); ++i)
    EXPECT_EQ(compare_results(results[i], {run_unrolled(layers.cell, data[i].feeds, {}).outputs, {}}, 1e-9), "") << i;
}

}  // namespace
}  // namespace stepnet::testing::stacked_layers_test
