// RNN, GRU and LSTM in nets against the published definitions of PyTorch and ONNX, as plain loops, and by central
// differences.
#include <algorithm>

#include "recurrent/form/layer_ops.h"
#include "recurrent/form/short_form.h"
#include "stepnet/net.h"
#include "tests/recurrent/layers.h"
#include "tests/tools/command.h"
#include "tools/source_path.h"

namespace stepnet::testing::layer_ops_test {
namespace {

const std::vector<Layers>& all_layers() {
  static const std::vector<Layers> all = [] {
    std::vector<Layers> list;
    for (const CellKind cell : {CellKind::rnn, CellKind::gru, CellKind::lstm})
      for (const int layers : {1, 2, 3})
        for (const int directions : {1, 2})
          for (const bool lengths : {false, true}) list.push_back({cell, layers, directions, lengths});
    list.push_back({.cell = CellKind::rnn, .layers = 2, .directions = 2, .nonlinearity = "relu"});
    list.push_back({.cell = CellKind::gru, .layers = 2, .directions = 2, .linear_before_reset = false});
    list.push_back({.cell = CellKind::lstm, .layers = 2, .forget_bias = 1.5F});
    list.push_back({.cell = CellKind::lstm, .layers = 2, .directions = 2, .lengths = true, .initial = false});
    list.push_back({.cell = CellKind::gru, .initial = false});
    return list;
  }();
  return all;
}

class CellOperators : public ::testing::TestWithParam<Layers> {};

TEST_P(CellOperators, AreThoseOfPyTorch) {
  const Layers& l = GetParam();
  if (!l.linear_before_reset) return;  // PyTorch has no other
  for (const auto& [steps, batch] : {std::pair{1, 1}, {4, 3}, {7, 40}})
    for (const DType dtype : {DType::float64, DType::float32}) {
      SCOPED_TRACE(fmt::format("T = {}, B = {}, {}", steps, batch, dtype_name(dtype)));
      const Feeds feeds = feeds_of(l, dtype, steps, batch);
      const auto blobs = run_forward(net_of(l), feeds);
      for (const auto& [name, expected] : run_as_pytorch(l, feeds))
        EXPECT_EQ(compare(blobs.at(name), expected, dtype == DType::float64 ? 1e-10 : 1e-5), "") << name;
    }
}

TEST_P(CellOperators, AreThoseOfOnnx) {
  const Layers& l = GetParam();
  if (l.layers != 1 && l.linear_before_reset) return;  // ONNX has one layer; more are tried for its own GRU
  const Feeds feeds = feeds_of(l, DType::float64, 4, 3);
  const auto blobs = run_forward(net_of(l), feeds);
  for (const auto& [name, expected] : run_as_onnx(l, feeds)) EXPECT_EQ(compare(blobs.at(name), expected, 1e-10), "");
}

TEST_P(CellOperators, GradientsAreCentralDifferences) {
  const Layers& l = GetParam();
  if (l.layers > 2) return;
  NetDef net = net_of(l);
  expand_cell_operators(net);
  EXPECT_EQ(check_net_gradients(net, feeds_of(l, DType::float64, 3, 2)), "");
}

TEST_P(CellOperators, WorkOnNothing) {
  for (const auto& [steps, batch] : {std::pair{3, 0}, {0, 2}}) {
    const Feeds feeds = feeds_of(GetParam(), DType::float64, steps, batch);
    const auto blobs = run_forward(net_of(GetParam()), feeds);
    for (const auto& [name, expected] : run_as_pytorch(GetParam(), feeds))
      EXPECT_EQ(compare(blobs.at(name), expected, 1e-10), "") << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, CellOperators, ::testing::ValuesIn(all_layers()),
                         [](const auto& info) { return name_of(info.param) + std::to_string(info.index); });

TEST(CellOperatorsOfNets, OutputsMayBeLeftOut) {
  const Layers l{.cell = CellKind::lstm, .layers = 2, .directions = 2};
  const Feeds feeds = feeds_of(l, DType::float64, 3, 2);
  const auto whole = run_forward(net_of(l), feeds);
  for (const std::vector<std::string>& outputs :
       {std::vector<std::string>{"Y"}, {"", "h_n"}, {"", "", "c_n"}, {"Y", "", "c_n"}}) {
    NetDef net = net_of(l);
    net.clear_external_output();
    net.mutable_op(0)->clear_output();
    for (const std::string& name : outputs) net.mutable_op(0)->add_output(name);
    const auto some = run_forward(net, feeds);
    for (const std::string& name : outputs)
      if (!name.empty()) {
        EXPECT_EQ(compare(some.at(name), whole.at(name), 0), "") << name;
      }
  }
}

TEST(CellOperatorsOfNets, DropoutStandsBetweenLayers) {
  Layers l{.cell = CellKind::gru, .layers = 2};
  const Feeds feeds = feeds_of(l, DType::float64, 3, 2);
  const Tensor plain = run_forward(net_of(l), feeds).at("Y");
  l.dropout = 0.5F;
  l.is_test = true;
  EXPECT_EQ(compare(run_forward(net_of(l), feeds).at("Y"), plain, 0), "");
  l.is_test = false;
  const auto blobs = run_forward(net_of(l), feeds);
  EXPECT_NE(compare(blobs.at("Y"), plain, 1e-3), "");
  const Tensor &mask = blobs.at("cells/layer_0/mask"), &below = blobs.at("cells/layer_0/all");
  const Tensor& kept = blobs.at("cells/layer_0/kept");
  for (int64_t i = 0; i < kept.size(); ++i)
    EXPECT_EQ(kept.data<double>()[i], mask.data<bool>()[i] ? 2 * below.data<double>()[i] : 0);
  NetDef net = net_of(l);
  expand_cell_operators(net);
  EXPECT_EQ(std::ranges::count_if(net.op(), [](const OperatorDef& op) { return op.type() == "Dropout"; }), 1);
  EXPECT_EQ(check_net_gradients(net, feeds), "");
}

TEST(CellOperatorsOfNets, TwoInANetKeepApart) {
  const Layers l{.cell = CellKind::lstm};
  const Feeds feeds = feeds_of(l, DType::float64, 3, 2);
  NetDef net = net_of(l);
  *net.add_op() = net.op(0);
  net.mutable_op(0)->clear_name();
  net.mutable_op(1)->set_name("second");
  net.mutable_op(1)->set_output(0, "Y2");
  net.mutable_op(1)->set_output(1, "h_n2");
  net.mutable_op(1)->set_output(2, "c_n2");
  const auto blobs = run_forward(net, feeds);
  EXPECT_EQ(compare(blobs.at("Y2"), blobs.at("Y"), 0), "");
  EXPECT_EQ(compare(blobs.at("c_n2"), blobs.at("c_n"), 0), "");
}

std::string refusal(const Layers& l, void (*change)(OperatorDef&)) {
  NetDef net = net_of(l);
  change(*net.mutable_op(0));
  return error_of([&] { expand_recurrent(net); });
}

TEST(CellOperatorsOfNets, MistakesAreNamed) {
  auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const Layers lstm{.cell = CellKind::lstm, .layers = 2, .directions = 2};
  std::string text = refusal(lstm, [](OperatorDef& op) { op.mutable_input()->RemoveLast(); });
  EXPECT_TRUE(has(text,
                  "LSTM: layers: 2, directions: 2 take 19 inputs (X, h0, c0, and w_ih, w_hh, b_ih, b_hh for each), "
                  "and lengths if they are given, but it has 18"))
      << text;
  text = refusal(lstm, [](OperatorDef& op) { op.set_input(4, ""); });
  EXPECT_TRUE(has(text, "input 4 (\"weights\") has an empty name")) << text;
  text = refusal(lstm, [](OperatorDef& op) { op.mutable_arg(0)->set_name("hiden"); });
  EXPECT_TRUE(has(text, "hidden")) << text;
  text = refusal(lstm, [](OperatorDef& op) { *op.add_arg() = make_arg("disabled_passes", "merge"); });
  EXPECT_TRUE(has(text, "LSTM has no argument \"disabled_passes\"; `stepnet ops LSTM` tells those it has")) << text;
  text = refusal(lstm, [](OperatorDef& op) { op.add_output("more"); });
  EXPECT_TRUE(has(text, "4 outputs for 0 to 3")) << text;
  text = refusal(lstm, [](OperatorDef& op) { *op.add_arg() = make_arg("dropout", 1.0F); });
  EXPECT_TRUE(has(text, "argument \"dropout\" must be from 0 to less than 1, but is 1")) << text;
  text = refusal({.cell = CellKind::rnn}, [](OperatorDef& op) { *op.add_arg() = make_arg("nonlinearity", "sine"); });
  EXPECT_TRUE(has(text, "nonlinearity")) << text;
  text = error_of([&] { run_op_on(net_of(lstm).op(0), feeds_of(lstm, DType::float32, 2, 2)); });
  EXPECT_TRUE(has(text, "LSTM stands for several operators and does not run itself")) << text;
}

// The fact, and the fix if there is one; before a run it is the same.
std::string size_error(const Layers& l, const std::string& blob, const Tensor& value) {
  Feeds feeds = feeds_of(l, DType::float32, 4, 2);
  std::map<std::string, TensorType> known;
  for (auto& [name, given] : feeds) {
    if (name == blob) given = value;
    known[name] = TensorType::of(given.dtype(), given.shape());
  }
  const auto said = [](const std::string& text) {
    const size_t fix = text.find("\n  fix ");
    return text.substr(0, text.find('\n')) + (fix == text.npos ? "" : text.substr(fix));
  };
  NetDef net = net_of(l);
  const std::string running = said(error_of([&] { run_forward(net, feeds); }));
  expand_recurrent(net);
  EXPECT_EQ(said(error_of([&] { infer_net(net, known); })), running);
  return running;
}

TEST(CellOperatorsOfNets, SizesThatDoNotFitAreNamed) {
  const Layers lstm{.cell = CellKind::lstm}, zeros{.cell = CellKind::lstm, .initial = false};
  const Layers gru{.cell = CellKind::gru, .layers = 2, .linear_before_reset = false};
  const std::string name = "RecurrentNetwork: argument \"hidden\" is 3, so ";
  EXPECT_EQ(size_error(zeros, "weight_hh_l0", normal<float>({8, 2})),
            name +
                "w_hh must be [12, 3], but is [8, 2]\n  fix set hidden to 2, or give weights of 12 rows, 4 for each "
                "of 3");
  EXPECT_EQ(size_error(lstm, "weight_ih_l0", normal<float>({10, 2})), name + "w_ih must be [12, 2], but is [10, 2]");
  EXPECT_EQ(size_error(lstm, "weight_hh_l0", normal<float>({12, 4})), name + "w_hh must be [12, 3], but is [12, 4]");
  EXPECT_EQ(size_error(lstm, "bias_hh_l0", normal<float>({3})), name + "b_hh must be [12], but is [3]");
  EXPECT_EQ(size_error(lstm, "c0", normal<float>({1, 2, 4})),
            name + "an initial state must be 3 wide, but is [1, 2, 4]");
  EXPECT_EQ(size_error(gru, "bias_ih_l0", normal<float>({12})),
            name + "b_ih must be [9], but is [12]\n  fix set hidden to 4, or give weights of 9 rows, 3 for each of 3");
  EXPECT_EQ(size_error(lstm, "weight_ih_l0", normal<float>({12, 5})),
            "RecurrentNetwork: the sequence has rows of 2 values, so w_ih must be [12, 2], but is [12, 5]");
  EXPECT_EQ(
      size_error(lstm, "X", normal<float>({7, 2})),
      "RecurrentNetwork: the sequence must be [T, B, I], but is [7, 2]\n  fix 7 timesteps of one sample are [7, 1, "
      "2]");
}

// Numbers of inputs that are larger than an int, or than there are inputs, are no inputs.
TEST(CellOperatorsOfNets, InputsThatAreNotThereHaveNoSizes) {
  for (const char* ids : {"layer_weights", "initial_recurrent_state_ids"})
    for (const int64_t id : {int64_t{7}, int64_t{1} << 31, (int64_t{1} << 32) + 1}) {
      NetDef net;
      OperatorDef& op = *net.add_op();
      op.set_type("RecurrentNetwork");
      op.add_input("x");
      op.add_output("y");
      *op.add_arg() = make_arg("layer_hidden", int64_t{1});
      *op.add_arg() = make_arg(ids, std::vector<int64_t>{id});
      error_of([&] { infer_net(net, {{"x", TensorType::of(DType::float32, {2, 1, 1})}}); });
    }
}

TEST(CellOperatorsOfNets, TheExampleIsAccepted) {
  const std::string path = source_path("tools/examples/bidirectional_lstm.pbtxt");
  EXPECT_EQ(stepnet({"check", "--strict", path}).code, 0) << stepnet({"check", "--strict", path}).text();
}

}  // namespace
}  // namespace stepnet::testing::layer_ops_test
