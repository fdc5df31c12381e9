// Recurrent and its relatives on a GPU give what they give on the CPU.
#include "stepnet/arguments.h"
#include "stepnet/gradients.h"
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::recurrent_op_test {
namespace {

const Device kGpu{DeviceKind::cuda, 0};

Tensor on(Device device, const Tensor& t) {
  Tensor there = Tensor::empty(t.dtype(), t.shape(), device);
  there.copy_from(t);
  return there;
}

struct Layers {
  std::string mode;
  int layers = 1, directions = 1;
  int64_t weights = 0;  // of I = 2, H = 3
  bool lengths = false;
};

OperatorDef recurrent(const Layers& l) {
  OperatorDef op = make_op(
      "Recurrent", {"X", "hidden", l.mode == "lstm" ? "cell" : "", "weights"},
      {"Y", "last_hidden", "last_cell", "scratch", "states"},
      {make_arg("hidden_size", 3), make_arg("num_layers", l.layers), make_arg("bidirectional", l.directions - 1),
       make_arg("rnn_mode", l.mode), make_arg("input_mode", "linear")});
  if (l.lengths) op.add_input("lengths");
  return op;
}

template <class T>
Feeds feeds_of(const Layers& l, int64_t steps, int64_t batch) {
  const Shape state{l.layers * l.directions, batch, 3};
  Feeds feeds = {{"X", normal<T>({steps, batch, 2}, 1)},
                 {"hidden", normal<T>(state, 2)},
                 {"weights", normal<T>({l.weights}, 3)},
                 {"dY", normal<T>({steps, batch, 3 * l.directions}, 4)},
                 {"d_hidden", normal<T>(state, 5)}};
  if (l.mode == "lstm") feeds.emplace_back("cell", normal<T>(state, 6));
  if (l.lengths) feeds.emplace_back("lengths", integers<int32_t>({batch}, 1, steps, 7));
  return feeds;
}

// Outputs and gradients.
std::map<std::string, Tensor> run_layers(const OperatorDef& op, const Feeds& feeds, Device device) {
  NetDef net;
  *net.add_op() = op;
  if (device.kind == DeviceKind::cuda) net.mutable_op(0)->mutable_device_option()->set_device_type(CUDA);
  for (const auto& [name, value] : feeds) net.add_external_input(name);
  std::set<std::string> wanted;
  for (const std::string& name : op.input())
    if (!name.empty() && name != "lengths") wanted.insert(name);
  const auto found = add_gradient_operators(
      net, {.targets = {{"Y", "dY"}, {"last_hidden", "d_hidden"}}, .wanted = wanted, .stop = {}});
  Workspace blobs;
  for (const auto& [name, value] : feeds) blobs.tensor(name) = on(device, value);
  RunContext run;
  run_net_once(net, blobs, run);
  std::map<std::string, Tensor> results;
  for (const char* name : {"Y", "last_hidden", "last_cell"}) results[name] = on({}, blobs.fetch(name));
  for (const std::string& name : wanted)
    results["gradient of " + name] = on({}, blobs.fetch(found.gradients.at(name).dense));
  return results;
}

void compare_layers(const OperatorDef& op, const Feeds& feeds, double tol) {
  const auto expected = run_layers(op, feeds, {});
  for (const auto& [name, value] : run_layers(op, feeds, kGpu))
    EXPECT_EQ(compare(value, expected.at(name), tol, ErrorScale::tensor), "") << name;
}

TEST_F(GpuTest, Recurrent) {
  for (Layers l : {Layers{"lstm", 1, 1, 84},
                   {"lstm", 2, 2, 432},
                   {"gru", 1, 2, 126},
                   {"gru", 2, 1, 135},
                   {"rnn_tanh", 2, 1, 45},
                   {"rnn_relu", 1, 1, 21}})
    for (const auto& [steps, batch] : {std::pair{1, 1}, {6, 4}, {0, 2}, {3, 0}})
      for (const bool lengths : {false, true}) {
        if (lengths && steps == 0) continue;
        l.lengths = lengths;
        SCOPED_TRACE(fmt::format("{} {} {} T = {}, B = {}", l.mode, l.layers, l.directions, steps, batch));
        compare_layers(recurrent(l), feeds_of<double>(l, steps, batch), 1e-11);
        compare_layers(recurrent(l), feeds_of<float>(l, steps, batch), 1e-4);
      }
}

TEST_F(GpuTest, RecurrentInTests) {
  const Layers l{"lstm", 2, 1, 180};
  OperatorDef op = recurrent(l);
  *op.add_arg() = make_arg("is_test", true);
  *op.add_arg() = make_arg("dropout", 0.5F);
  op.mutable_output()->RemoveLast();  // bytes, which differ
  op.mutable_output()->RemoveLast();
  EXPECT_EQ(compare_devices(op, feeds_of<float>(l, 5, 3), 1e-5), "");
}

// A gradient that is computed twice is the same: the first did not spoil the scratch.
TEST_F(GpuTest, RecurrentScratchStays) {
  const Layers l{"gru", 2, 1, 135};
  const Feeds feeds = feeds_of<double>(l, 4, 3);
  NetDef net;
  *net.add_op() = recurrent(l);
  for (const char* gradient : {"first", "second"}) {
    OperatorDef& op = *net.add_op() = recurrent(l);
    op.set_type("RecurrentGradient");
    op.clear_input();
    op.clear_output();
    for (const char* name : {"X", "hidden", "", "weights", "scratch", "Y", "dY"}) op.add_input(name);
    op.add_output(gradient);
  }
  *net.mutable_op(0)->add_arg() = make_arg("dropout", 0.5F);
  for (int i : {1, 2}) *net.mutable_op(i)->add_arg() = make_arg("dropout", 0.5F);
  net.mutable_device_option()->set_device_type(CUDA);
  Workspace blobs;
  for (const auto& [name, value] : feeds) blobs.tensor(name) = on(kGpu, value);
  RunContext run;
  run_net_once(net, blobs, run);
  EXPECT_EQ(compare(on({}, blobs.fetch("first")), on({}, blobs.fetch("second")), 0), "");
}

TEST_F(GpuTest, RecurrentParameters) {
  const auto args = std::vector<Argument>{make_arg("hidden_size", 3),
                                          make_arg("num_layers", 2),
                                          make_arg("rnn_mode", "lstm"),
                                          make_arg("input_mode", "linear"),
                                          make_arg("param_type", "cell_w"),
                                          make_arg("input_type", "recurrent"),
                                          make_arg("layer", 1)};
  const Feeds feeds = {
      {"X", normal<float>({2, 2, 2})}, {"weights", normal<float>({180}, 2)}, {"value", normal<float>({3, 3}, 3)}};
  EXPECT_EQ(compare_devices(make_op("RecurrentParamSet", {"X", "weights", "value"}, {"weights"}, args), feeds, 0), "");
  EXPECT_EQ(compare_devices(make_op("RecurrentParamGet", {"X", "weights"}, {"got"}, args), feeds, 0), "");
}

}  // namespace
}  // namespace stepnet::testing::recurrent_op_test
