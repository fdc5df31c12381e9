#include "tests/recurrent/estimate_nets.h"

#include <fstream>
#include <iterator>
#include <ostream>
#include <random>
#include <regex>

#include "stepnet/text.h"
#include "tests/recurrent/cell_files.h"
#include "tools/source_path.h"

namespace stepnet::testing {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  int64_t operator()(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }

 private:
  std::mt19937_64 random_;
};

TensorType floats(std::initializer_list<int64_t> dims) { return TensorType::of(DType::float32, Shape(dims)); }

constexpr const char* kMlp = R"(
  op { type: "FC" input: "X" input: "W1" input: "b1" output: "a1" }
  op { type: "Relu" input: "a1" output: "h1" }
  op { type: "FC" input: "h1" input: "W2" input: "b2" output: "a2" }
  op { type: "Tanh" input: "a2" output: "h2" }
  op { type: "FC" input: "h2" input: "W3" input: "b3" output: "a3" }
  op { type: "Sigmoid" input: "a3" output: "h3" }
  op { type: "Dropout" input: "h3" output: "d3" output: "mask" arg { name: "ratio" f: 0.3 } }
  op { type: "FC" input: "d3" input: "W4" input: "b4" output: "logits" }
  op { type: "SoftmaxWithLoss" input: "logits" input: "labels" output: "softmax" output: "loss" })";

EstimateNet mlp(Draw& draw) {
  const int64_t batch = draw(1, 200), in = draw(1, 60), h1 = draw(1, 90), h2 = draw(1, 90), h3 = draw(1, 90),
                out = draw(2, 20);
  return {"mlp",
          parse_net_text(kMlp, "mlp"),
          {{"X", floats({batch, in})}, {"labels", TensorType::of(DType::int32, {batch})}},
          {{"W1", floats({h1, in})},
           {"b1", floats({h1})},
           {"W2", floats({h2, h1})},
           {"b2", floats({h2})},
           {"W3", floats({h3, h2})},
           {"b3", floats({h3})},
           {"W4", floats({out, h3})},
           {"b4", floats({out})}},
          "loss"};
}

constexpr const char* kResidual = R"(
  op { type: "FC" input: "X" input: "W0" input: "b0" output: "a0" }
  op { type: "Tanh" input: "a0" output: "t0" }
  op { type: "Sum" input: "X" input: "t0" output: "x1" }
  op { type: "FC" input: "x1" input: "W1" input: "b1" output: "a1" }
  op { type: "Relu" input: "a1" output: "a1" }
  op { type: "FC" input: "a1" input: "W2" input: "b2" output: "t1" }
  op { type: "Add" input: "x1" input: "t1" output: "x2" }
  op { type: "SquaredL2Distance" input: "x2" input: "target" output: "loss" })";

EstimateNet residual(Draw& draw) {
  const int64_t batch = draw(1, 100), width = draw(1, 80), inner = draw(1, 100);
  return {"residual",
          parse_net_text(kResidual, "residual"),
          {{"X", floats({batch, width})}, {"target", floats({batch, width})}},
          {{"W0", floats({width, width})},
           {"b0", floats({width})},
           {"W1", floats({inner, width})},
           {"b1", floats({inner})},
           {"W2", floats({width, inner})},
           {"b2", floats({width})}},
          "loss"};
}

// softmax(Q K^T) V with queries, keys and values of one x.
constexpr const char* kAttention = R"(
  op { type: "FC" input: "x" input: "W_q" input: "b_q" output: "q" arg { name: "axis" i: 2 } }
  op { type: "FC" input: "x" input: "W_k" input: "b_k" output: "k" arg { name: "axis" i: 2 } }
  op { type: "FC" input: "x" input: "W_v" input: "b_v" output: "v" arg { name: "axis" i: 2 } }
  op { type: "BatchMatMul" input: "q" input: "k" output: "scores" arg { name: "trans_b" i: 1 } }
  op { type: "Softmax" input: "scores" output: "weights" arg { name: "axis" i: 2 } }
  op { type: "BatchMatMul" input: "weights" input: "v" output: "mixed" }
  op { type: "FC" input: "mixed" input: "W_o" input: "b_o" output: "y" arg { name: "axis" i: 2 } }
  op { type: "Sum" input: "y" input: "x" output: "z" })";

EstimateNet attention(Draw& draw) {
  const int64_t batch = draw(1, 9), length = draw(1, 20), width = draw(2, 40), inner = draw(1, 40);
  EstimateNet net{
      "attention", parse_net_text(kAttention, "attention"), {{"x", floats({batch, length, width})}}, {}, "z"};
  for (const char* p : {"q", "k", "v"}) {
    net.parameters[std::string("W_") + p] = floats({inner, width});
    net.parameters[std::string("b_") + p] = floats({inner});
  }
  net.parameters["W_o"] = floats({width, inner});
  net.parameters["b_o"] = floats({width});
  return net;
}

constexpr const char* kNormed = R"(
  op { type: "FC" input: "X" input: "W1" input: "b1" output: "a" }
  op { type: "LayerNorm" input: "a" input: "gain" input: "bias" output: "n" output: "mean" output: "std"
       arg { name: "elementwise_affine" i: 1 } }
  op { type: "Gelu" input: "n" output: "g" }
  op { type: "FC" input: "g" input: "W2" input: "b2" output: "Y" })";

EstimateNet normed(Draw& draw) {
  const int64_t batch = draw(1, 100), in = draw(1, 60), inner = draw(2, 100), out = draw(1, 40);
  return {"normed",
          parse_net_text(kNormed, "normed"),
          {{"X", floats({batch, in})}},
          {{"W1", floats({inner, in})},
           {"b1", floats({inner})},
           {"gain", floats({inner})},
           {"bias", floats({inner})},
           {"W2", floats({out, inner})},
           {"b2", floats({out})}},
          "Y"};
}

std::string text_of(const std::string& example) {
  std::ifstream file(source_path("tools/examples/" + example));
  return {std::istreambuf_iterator<char>(file), {}};
}

// An LSTM reads the source; another one, with attention over all states of the first, the target.
EstimateNet encoder_decoder(Draw& draw) {
  static const std::regex names("\"(x|h0|c0|W_x|b_x|W_h|b_h|h_all|h_last|c_last)\"");
  NetDef net = parse_net_text(std::regex_replace(text_of("lstm.pbtxt"), names, "\"encoder_$1\""), "encoder");
  net.MergeFrom(parse_net_text(
      std::regex_replace(text_of("cells/attention_dot.pbtxt"), std::regex("\"encoder\""), "\"encoder_h_all\""),
      "decoder"));
  net.clear_external_input();
  net.clear_external_output();
  net.add_external_output("h_all");
  const int64_t batch = draw(1, 20), source = draw(1, 30), target = draw(1, 30), in = draw(1, 20), h = draw(1, 40);
  EstimateNet result{"encoder_decoder", net, {}, {}, "h_all"};
  result.data["encoder_x"] = floats({source, batch, in});
  result.data["x"] = floats({target, batch, in});
  for (const char* state : {"encoder_h0", "encoder_c0", "h0", "c0", "context0"})
    result.data[state] = floats({1, batch, h});
  for (const std::string prefix : {"encoder_", ""}) {
    result.parameters[prefix + "W_x"] = floats({4 * h, prefix.empty() ? in + h : in});
    result.parameters[prefix + "W_h"] = floats({4 * h, h});
    result.parameters[prefix + "b_x"] = result.parameters[prefix + "b_h"] = floats({4 * h});
  }
  return result;
}

}  // namespace

std::vector<EstimateNet> estimate_nets(uint64_t seed) {
  Draw draw(seed);
  std::vector<EstimateNet> nets = {mlp(draw), residual(draw), attention(draw), normed(draw), encoder_decoder(draw)};
  for (EstimateNet& net : nets) net.net.set_name(net.name);
  return nets;
}

std::vector<EstimateNet> estimate_cells(uint64_t seed) {
  std::vector<EstimateNet> nets;
  Draw draw(seed);
  for (const CellFile& cell : cell_files()) {
    const Sizes sizes = {{'T', draw(1, 40)}, {'B', draw(1, 40)}, {'I', draw(1, 30)}, {'H', draw(1, 40)},
                         {'P', draw(1, 20)}, {'D', 2},           {'S', draw(1, 9)},  {'A', draw(1, 20)}};
    EstimateNet net{cell.name, cell_net(cell.name), {}, {}, ""};
    for (const auto& [name, value] : cell_feeds(cell.name, DType::float32, sizes)) {
      const bool trained = is_floating(value.dtype()) && (name[0] == 'W' || name[0] == 'b');
      (trained ? net.parameters : net.data)[name] = TensorType::of(value.dtype(), value.shape());
    }
    net.loss = net.net.external_output(0);
    nets.push_back(std::move(net));
  }
  return nets;
}

void PrintTo(const EstimateNet& net, std::ostream* out) { *out << net.name; }

}  // namespace stepnet::testing
