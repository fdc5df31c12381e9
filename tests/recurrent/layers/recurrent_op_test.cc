// Recurrent and its gradient against loops over the same flat weights, and by central differences.
#include <cmath>

#include "core/tensor/dry_device.h"
#include "recurrent/form/short_form.h"
#include "recurrent/layers/vendor_weights.h"
#include "stepnet/gradients.h"
#include "tests/recurrent/flat_reference.h"

namespace stepnet::testing::recurrent_op_test {
namespace {

std::vector<FlatCase> all_cases() {
  std::vector<FlatCase> list;
  for (const char* mode : {"lstm", "gru", "rnn_tanh", "rnn_relu"})
    for (const int64_t layers : {1, 2, 3})
      for (const int64_t directions : {1, 2})
        for (const bool lengths : {false, true}) list.push_back({mode, layers, directions, lengths});
  list.push_back({.mode = "lstm", .layers = 2, .directions = 2, .skip = true, .inputs = 3});
  list.push_back({.mode = "gru", .skip = true, .inputs = 3});
  list.push_back({.mode = "rnn_relu", .layers = 2, .skip = true, .inputs = 3});
  list.push_back({.mode = "lstm", .layers = 2, .lengths = true, .states = false});
  list.push_back({.mode = "gru", .directions = 2, .states = false});
  list.push_back({.mode = "lstm", .inputs = 1, .hidden = 1});
  return list;
}

class Recurrent : public ::testing::TestWithParam<FlatCase> {};

TEST_P(Recurrent, IsCudnnsEquations) {
  const FlatCase& c = GetParam();
  for (const auto& [steps, batch] : {std::pair{1, 1}, {5, 3}, {9, 40}, {0, 2}, {3, 0}})
    for (const DType dtype : {DType::float64, DType::float32}) {
      SCOPED_TRACE(fmt::format("T = {}, B = {}, {}", steps, batch, dtype_name(dtype)));
      const Feeds feeds = flat_feeds(c, dtype, steps, batch);
      const auto out = run_op_on(recurrent_op(c), feeds);
      auto expected = run_flat_reference(c, feeds);
      const double tol = dtype == DType::float64 ? 1e-10 : 1e-5;
      EXPECT_EQ(compare(to_double(out[0]), expected["Y"], tol, ErrorScale::tensor), "");
      EXPECT_EQ(compare(to_double(out[1]), expected["last_hidden"], tol, ErrorScale::tensor), "");
      EXPECT_EQ(compare(to_double(out[2]), expected["last_cell"], tol, ErrorScale::tensor), "");
      EXPECT_EQ(out[0].dtype(), dtype);
    }
}

TEST_P(Recurrent, GradientsAreCentralDifferences) {
  const FlatCase& c = GetParam();
  if (c.layers > 2) return;
  const Feeds feeds = flat_feeds(c, DType::float64, 3, 2);
  std::vector<std::string> wrt;
  for (const auto& [name, value] : feeds)
    if (name != "lengths") wrt.push_back(name);
  EXPECT_EQ(check_gradient(recurrent_op(c), feeds, wrt), "");
  EXPECT_EQ(check_gradient(recurrent_op(c), feeds, {"weights"}, 1e-7, 1e-5, {"last_hidden"}), "");
}

INSTANTIATE_TEST_SUITE_P(Layers, Recurrent, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return name_of(info.param) + std::to_string(info.index); });

// LSTM, GRU or RNN of Stepnet, with the weights of the vector.
std::map<std::string, Tensor> run_as_step_net(const FlatCase& c, const Feeds& feeds) {
  const CellKind cell = c.mode == "lstm" ? CellKind::lstm : c.mode == "gru" ? CellKind::gru : CellKind::rnn;
  const FlatWeights w{cell, c.layers, c.directions, c.inputs, c.hidden, c.skip};
  Workspace blobs;
  for (const auto& [name, value] : feeds) blobs.tensor(name) = value;
  OperatorDef op = make_op(cell == CellKind::lstm  ? "LSTM"
                           : cell == CellKind::gru ? "GRU"
                                                   : "RNN",
                           {"X", "hidden"}, {"Y", "last_hidden"},
                           {make_arg("hidden", c.hidden), make_arg("layers", c.layers),
                            make_arg("bidirectional", static_cast<int>(c.directions - 1))});
  if (cell == CellKind::lstm) op.add_input("cell");
  if (cell == CellKind::lstm) op.add_output("last_cell");
  if (c.mode == "rnn_relu") *op.add_arg() = make_arg("nonlinearity", "relu");
  for (const Tensor& t : from_flat(w, feed_of(feeds, "weights"))) {
    const std::string name = fmt::format("w{}", op.input_size());
    blobs.tensor(name) = t;
    op.add_input(name);
  }
  if (c.lengths) op.add_input("lengths");
  NetDef net;
  *net.add_op() = op;
  expand_recurrent(net);
  RunContext run;
  run_net_once(net, blobs, run);
  std::map<std::string, Tensor> out;
  for (const char* name : {"Y", "last_hidden", "last_cell"})
    if (blobs.find(name)) out[name] = blobs.fetch(name).clone();
  return out;
}

TEST(FlatWeightsOfLayers, GiveStepNetsTheSameResults) {
  for (const FlatCase& c : all_cases()) {
    if (!c.states) continue;
    SCOPED_TRACE(name_of(c));
    const Feeds feeds = flat_feeds(c, DType::float32, 6, 4);
    auto expected = run_flat_reference(c, feeds);
    for (const auto& [name, value] : run_as_step_net(c, feeds))
      EXPECT_EQ(compare(to_double(value), expected[name], 1e-5, ErrorScale::tensor), "") << name;
  }
}

TEST(FlatWeightsOfLayers, GoThereAndBack) {
  for (const FlatCase& c : all_cases()) {
    const CellKind cell = c.mode == "lstm" ? CellKind::lstm : c.mode == "gru" ? CellKind::gru : CellKind::rnn;
    const FlatWeights w{cell, c.layers, c.directions, c.inputs, c.hidden, c.skip};
    EXPECT_EQ(flat_size(w), reference_size(c)) << name_of(c);
    const Tensor flat = normal<double>({flat_size(w)});
    Tensor back = Tensor::empty(DType::float64, flat.shape());
    to_flat(w, from_flat(w, flat), back);
    EXPECT_EQ(compare(back, flat, 0), "") << name_of(c);
    to_flat(w, std::vector<Tensor>(static_cast<size_t>(4 * c.layers * c.directions)), back);
    EXPECT_EQ(compare(back, Tensor::zeros(DType::float64, flat.shape()), 0), "");
  }
}

TEST(RecurrentGradient, OfThePublicFormatIgnoresGradientsOfLastStates) {
  const FlatCase c{.mode = "lstm", .layers = 2, .directions = 2};
  Feeds feeds = flat_feeds(c, DType::float64, 4, 3);
  feeds.emplace_back("dY", normal<double>({4, 3, 6}, 9));
  NetDef net;
  *net.add_op() = recurrent_op(c);
  NetDef derived = net;
  OperatorDef& gradient = *net.add_op() = net.op(0);
  gradient.set_type("RecurrentGradient");
  gradient.clear_input();
  gradient.clear_output();
  for (const char* name : {"X", "hidden", "cell", "weights", "scratch", "Y", "dY"}) gradient.add_input(name);
  for (const char* name : {"dX", "dh", "dc", "dw", "states", "scratch"}) gradient.add_output(name);
  for (const auto& [name, value] : feeds) derived.add_external_input(name);
  const auto found = add_gradient_operators(
      derived, {.targets = {{"Y", "dY"}}, .wanted = {"X", "hidden", "cell", "weights"}, .stop = {}});
  Workspace by_hand, by_derivative;
  for (const auto& [name, value] : feeds) by_hand.tensor(name) = by_derivative.tensor(name) = value;
  RunContext run;
  run_net_once(net, by_hand, run);
  run_net_once(derived, by_derivative, run);
  for (const auto& [input, gradient_name] : {std::pair{"X", "dX"}, {"hidden", "dh"}, {"cell", "dc"}, {"weights", "dw"}})
    EXPECT_EQ(compare(by_hand.fetch(gradient_name), by_derivative.fetch(found.gradients.at(input).dense), 0), "");
}

OperatorDef with_dropout(OperatorDef op, float probability, int seed = 0) {
  *op.add_arg() = make_arg("dropout", probability);
  *op.add_arg() = make_arg("seed", seed);
  return op;
}

TEST(RecurrentDropout, StandsBetweenLayers) {
  const FlatCase c{.mode = "gru", .layers = 2};
  const Feeds feeds = flat_feeds(c, DType::float64, 6, 5);
  const OperatorDef op = recurrent_op(c);
  const Tensor plain = run_op_on(op, feeds)[0];
  EXPECT_EQ(compare(run_op_on(with_dropout(op, 1), feeds)[0], plain, 0), "") << "1 drops nothing";
  EXPECT_EQ(compare(run_op_on(with_dropout(op, 0), feeds)[0], plain, 1e-14), "");
  const Tensor dropped = run_op_on(with_dropout(op, 0.5F), feeds)[0];
  EXPECT_NE(compare(dropped, plain, 1e-3), "");
  EXPECT_EQ(compare(run_op_on(with_dropout(op, 0.5F), feeds)[0], dropped, 0), "");
  EXPECT_NE(compare(run_op_on(with_dropout(op, 0.5F, 1), feeds)[0], dropped, 1e-3), "");
  EXPECT_NE(compare(run_op_on(with_dropout(op, 0.5F), feeds, 2)[0], dropped, 1e-3), "");
  OperatorDef test = with_dropout(op, 0.5F);
  *test.add_arg() = make_arg("is_test", true);
  EXPECT_EQ(compare(run_op_on(test, feeds)[0], plain, 0), "");
  const OperatorDef one = recurrent_op({.mode = "gru"});
  const Feeds of_one = flat_feeds({.mode = "gru"}, DType::float64, 6, 5);
  EXPECT_EQ(compare(run_op_on(with_dropout(one, 0.5F), of_one)[0], run_op_on(one, of_one)[0], 0), "");
}

TEST(RecurrentDropout, GradientHasTheSameDraws) {
  for (const char* mode : {"lstm", "gru", "rnn_tanh"}) {
    const FlatCase c{.mode = mode, .layers = 3, .directions = 2, .lengths = true};
    const Feeds feeds = flat_feeds(c, DType::float64, 3, 2);
    EXPECT_EQ(check_gradient(with_dropout(recurrent_op(c), 0.4F), feeds, {"X", "hidden", "weights"}), "") << mode;
  }
}

// Numbers that cudnnGetRNNTempSpaceSizes of cuDNN 9.19 gave, of B = 8, I = 16, H = 32 in float.
TEST(RecurrentEstimate, OfAGpuHasTheReserve) {
  struct Sizes {
    const char* mode;
    int64_t layers, directions, steps;
    float dropout;
    int64_t bytes;
  };
  for (const Sizes& s : {Sizes{"lstm", 1, 1, 5, 1, 25856},
                         {"lstm", 2, 1, 10, 1, 112896},
                         {"lstm", 2, 2, 5, 1, 112896},
                         {"lstm", 2, 1, 10, 0.5F, 113216},
                         {"lstm", 2, 2, 10, 0.5F, 226816},
                         {"gru", 2, 2, 10, 1, 266496},
                         {"gru", 1, 1, 5, 1, 30976},
                         {"rnn_tanh", 2, 1, 10, 1, 30976},
                         {"rnn_relu", 1, 2, 5, 1, 10496}}) {
    const FlatCase c{s.mode, s.layers, s.directions, false, false, true, 16, 32};
    NetDef net;
    *net.add_op() = recurrent_op(c);
    *net.mutable_op(0)->add_arg() = make_arg("dropout", s.dropout);
    const DryScope scope(DeviceKind::cuda);
    Workspace blobs;
    for (const char* name : {"X", "hidden", "cell", "weights"}) {
      const bool is_state = name != std::string("X") && name != std::string("weights");
      const Shape state{s.layers * s.directions, 8, 32};
      blobs.tensor(name) = Tensor::empty(DType::float32, name == std::string("X") ? Shape{s.steps, 8, 16}
                                                         : is_state               ? state
                                                                                  : Shape{reference_size(c)});
    }
    RunContext run;
    run_net_once(net, blobs, run);
    EXPECT_EQ(blobs.fetch("scratch").size(), s.bytes) << s.mode;
  }
}

TEST(RecurrentTraining, LearnsToRememberTheFirstValue) {
  const FlatCase c{.mode = "lstm", .layers = 2, .states = false, .inputs = 1, .hidden = 6};
  Feeds feeds = flat_feeds(c, DType::float64, 5, 8);
  feeds[1].second = uniform<double>({reference_size(c)}, -0.4, 0.4, 2);
  NetDef net;
  *net.add_op() = recurrent_op(c);
  *net.add_op() =
      make_op("Slice", {"Y"}, {"last"},
              {make_arg("starts", std::vector<int64_t>{4, 0, 0}), make_arg("ends", std::vector<int64_t>{5, 8, 6})});
  *net.add_op() =
      make_op("Slice", {"last"}, {"part"},
              {make_arg("starts", std::vector<int64_t>{0, 0, 0}), make_arg("ends", std::vector<int64_t>{1, 8, 1})});
  *net.add_op() = make_op("Reshape", {"part"}, {"guess", "shape"}, {make_arg("shape", std::vector<int64_t>{8})});
  *net.add_op() = make_op("SquaredL2Distance", {"guess", "target"}, {"distance"});
  *net.add_op() = make_op("SumElements", {"distance"}, {"loss"});
  const auto found = add_gradient_operators(net, {.targets = {{"loss", ""}}, .wanted = {"weights"}, .stop = {}});
  Workspace blobs;
  for (const auto& [name, value] : feeds) blobs.tensor(name) = value.clone();
  Tensor& target = blobs.tensor("target") = Tensor::empty(DType::float64, {8});
  for (int64_t n = 0; n < 8; ++n) target.data<double>()[n] = 0.5 * std::tanh(feeds[0].second.data<double>()[n]);
  Net bound(net, blobs);
  RunContext run;
  double first = 0, last = 0;
  for (int i = 0; i < 400; ++i) {
    bound.run(run);
    last = blobs.fetch("loss").item<double>();
    if (i == 0) first = last;
    const Tensor& gradient = blobs.fetch(found.gradients.at("weights").dense);
    for (int64_t k = 0; k < gradient.size(); ++k)
      blobs.tensor("weights").data<double>()[k] -= gradient.data<double>()[k];
  }
  EXPECT_LT(last, first / 5) << first;
}

}  // namespace
}  // namespace stepnet::testing::recurrent_op_test
