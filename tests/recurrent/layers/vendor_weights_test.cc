// RecurrentParamSet and RecurrentParamGet, and what the four operators say about mistakes.
#include <numeric>

#include "stepnet/arguments.h"
#include "tests/recurrent/flat_reference.h"

namespace stepnet::testing::vendor_weights_test {
namespace {

std::vector<std::string> gates_of(const std::string& mode) {
  if (mode == "lstm") return {"input_gate", "forget_gate", "cell", "output_gate"};
  if (mode == "gru") return {"reset_gate", "update_gate", "cell"};
  return {"cell"};
}

OperatorDef access(const FlatCase& c, bool set, const std::string& param_type, const std::string& input_type,
                   int64_t layer) {
  OperatorDef op = recurrent_op(c);
  op.set_type(set ? "RecurrentParamSet" : "RecurrentParamGet");
  op.clear_input();
  op.clear_output();
  for (const char* name : {"X", "weights", "value"})
    if (set || name != std::string("value")) op.add_input(name);
  op.add_output(set ? "weights" : "value");
  *op.add_arg() = make_arg("param_type", param_type);
  *op.add_arg() = make_arg("input_type", input_type);
  *op.add_arg() = make_arg("layer", layer);
  return op;
}

template <class T>
Tensor counted(int64_t size) {
  Tensor t = Tensor::empty(dtype_of<T>(), {size});
  std::iota(t.data<T>(), t.data<T>() + size, T(0));
  return t;
}

// Every parameter by its name, in the order in which the vector has them: matrices, then biases.
struct Named {
  std::string type, input;
  int64_t layer;
  Shape shape;
};
std::vector<Named> in_order(const FlatCase& c) {
  std::vector<Named> all;
  for (const char* kind : {"_w", "_b"})
    for (int64_t layer = 0; layer < c.layers * c.directions; ++layer)
      for (const char* input : {"input", "recurrent"})
        for (const std::string& gate : gates_of(c.mode)) {
          const bool of_state = input == std::string("recurrent");
          const int64_t columns = of_state ? c.hidden : layer < c.directions ? c.inputs : c.directions * c.hidden;
          const bool is_matrix = kind == std::string("_w");
          all.push_back({gate + kind, input, layer, is_matrix ? Shape{c.hidden, columns} : Shape{c.hidden}});
        }
  return all;
}

TEST(RecurrentParameters, FollowOneAnotherInTheVector) {
  for (const char* mode : {"lstm", "gru", "rnn_tanh", "rnn_relu"})
    for (const int64_t directions : {1, 2}) {
      const FlatCase c{.mode = mode, .layers = 2, .directions = directions};
      const Tensor flat = counted<float>(reference_size(c)), x = Tensor::zeros(DType::float32, {1, 1, c.inputs});
      float next = 0;
      for (const Named& n : in_order(c)) {
        const auto out = run_op_on(access(c, false, n.type, n.input, n.layer), {{"X", x}, {"weights", flat}});
        ASSERT_EQ(out[0].shape(), n.shape) << mode << n.type;
        for (const float v : out[0].span<float>()) ASSERT_EQ(v, next++) << mode << " " << n.type << " " << n.layer;
      }
      EXPECT_EQ(next, static_cast<float>(flat.size()));
    }
}

TEST(RecurrentParameters, AreSetAlone) {
  const FlatCase c{.mode = "lstm", .layers = 2, .directions = 2};
  const Tensor x = Tensor::zeros(DType::float64, {4, 2, c.inputs});
  Tensor flat = Tensor::zeros(DType::float64, {reference_size(c)});
  double at = 0;
  for (const Named& n : in_order(c)) {
    Tensor value = counted<double>(n.shape.size());
    for (double& v : value.span<double>()) v += at;
    at += static_cast<double>(n.shape.size());
    flat = run_op_on(access(c, true, n.type, n.input, n.layer), {{"X", x}, {"weights", flat}, {"value", value}})[0];
  }
  EXPECT_EQ(compare(flat, counted<double>(reference_size(c)), 0), "");
}

TEST(RecurrentParameters, OfASkippedInputAreEmpty) {
  const FlatCase c{.mode = "gru", .skip = true, .inputs = 3};
  const Tensor x = Tensor::zeros(DType::float32, {1, 1, 3}), flat = counted<float>(reference_size(c));
  const auto out = run_op_on(access(c, false, "cell_w", "input", 0), {{"X", x}, {"weights", flat}});
  EXPECT_EQ(out[0].size(), 0);
  const auto first = run_op_on(access(c, false, "reset_gate_w", "recurrent", 0), {{"X", x}, {"weights", flat}});
  EXPECT_EQ(first[0].data<float>()[0], 0) << "the vector begins with the state's matrices";
}

std::string mistake(const FlatCase& c, OperatorDef op, Feeds feeds = {}) {
  if (feeds.empty()) feeds = flat_feeds(c, DType::float32, 3, 2);
  return error_of([&] { run_op_on(op, feeds); });
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(RecurrentMistakes, AreNamed) {
  const FlatCase c{.mode = "lstm", .layers = 2};
  OperatorDef op = recurrent_op(c);
  Feeds feeds = flat_feeds(c, DType::float32, 3, 2);
  feeds[1].second = Tensor::zeros(DType::float32, {7});
  expect_part(mistake(c, op, feeds), "these layers have 180 weights for X [3, 2, 2], but the weights are [7]");
  feeds = flat_feeds(c, DType::float32, 3, 2);
  feeds[2].second = Tensor::zeros(DType::float32, {2, 3, 3});
  expect_part(mistake(c, op, feeds), "the hidden state must be [2, 2, 3], but is [2, 3, 3]");
  feeds = flat_feeds(c, DType::float32, 3, 2);
  feeds[0].second = Tensor::zeros(DType::float32, {3, 2});
  expect_part(mistake(c, op, feeds), "X must be [T, B, I], but has shape [3, 2]");
  OperatorDef other = op;
  other.mutable_arg(3)->set_s("ltsm");
  expect_part(mistake(c, other), "rnn_mode");
  other = op;
  other.mutable_arg(4)->set_s("skip");
  expect_part(mistake(c, other), "with the input_mode skip X must have 3 values at each timestep, but has 2");
  other = op;
  *other.add_arg() = make_arg("dropout", -0.5F);
  expect_part(mistake(c, other), "dropout");
  const FlatCase with_lengths{.mode = "gru", .lengths = true};
  feeds = flat_feeds(with_lengths, DType::float32, 3, 2);
  feeds.back().second = Tensor::of<int32_t>({2}, {1, 4});
  expect_part(mistake(with_lengths, recurrent_op(with_lengths), feeds), "a sample has 4 timesteps, but X has 3");
  feeds.back().second = Tensor::of<int32_t>({3}, {1, 1, 1});
  expect_part(mistake(with_lengths, recurrent_op(with_lengths), feeds), "the lengths must be [2]");
}

TEST(RecurrentMistakes, OfNamesListWhatThereIs) {
  const FlatCase c{.mode = "gru"};
  const Feeds feeds = {{"X", Tensor::zeros(DType::float32, {1, 1, 2})},
                       {"weights", counted<float>(reference_size(c))},
                       {"value", counted<float>(2)}};
  expect_part(mistake(c, access(c, false, "input_gate_w", "input", 0), feeds),
              "param_type is \"input_gate_w\", but with rnn_mode gru must be reset_gate_w or update_gate_w or cell_w");
  expect_part(mistake(c, access(c, false, "cell_w", "input", 1), feeds),
              "layer is 1, but 1 layers in 1 directions are numbered from 0 to 0");
  expect_part(mistake(c, access(c, true, "cell_w", "input", 0), feeds),
              "cell_w of layer 0 is [3, 2], but the values are [2]");
}

TEST(RecurrentMistakes, OfTestsHaveNoGradient) {
  const FlatCase c{.mode = "gru"};
  OperatorDef op = recurrent_op(c);
  *op.add_arg() = make_arg("is_test", true);
  const Feeds feeds = flat_feeds(c, DType::float64, 2, 2);
  expect_part(error_of([&] { check_gradient(op, feeds, {"X"}); }), "with is_test nothing is kept for a gradient");
}

}  // namespace
}  // namespace stepnet::testing::vendor_weights_test
