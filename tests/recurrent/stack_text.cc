#include "tests/recurrent/stack_text.h"

#include <algorithm>

#include "stepnet/error.h"
#include "stepnet/proto/recurrent.pb.h"
#include "stepnet/text.h"

namespace stepnet::testing {
namespace {

constexpr int kUnits = 12;

class StackWriter {
 public:
  std::string write(const std::vector<std::pair<Layer, Behind>>& layers) {
    parameter("E", fmt::format("ints: 32 ints: {}", kUnits));
    std::string top = "x";
    for (const auto& [layer, behind] : layers) top = add(layer, behind, top);
    parameter("W_out", fmt::format("ints: 32 ints: {}", kUnits));
    parameter("b_out", "ints: 32");
    return fmt::format(R"(
name: "stack"
op {{ type: "Gather" input: "E" input: "tokens" output: "x" }}
{}
op {{ type: "FC" input: "{}" input: "W_out" input: "b_out" output: "logits" arg {{ name: "axis" i: 2 }} }}
op {{ type: "SoftmaxWithLoss" input: "logits" input: "next" output: "p" output: "loss" arg {{ name: "axis" i: 2 }} }}
[stepnet.model] {{
  init {{
{}  }}
  loss: "loss" input: "tokens" target: "next" logits: "logits"
{}  timesteps: 7 batch: 3
}}
)",
                       ops_, top, init_, carries_);
  }

 private:
  void parameter(const std::string& name, const std::string& shape) {
    init_ += fmt::format(
        "    op {{ type: \"GaussianFill\" output: \"{}\" arg {{ name: \"shape\" {} }} "
        "arg {{ name: \"std\" f: 0.3 }} }}\n",
        name, shape);
  }
  std::string matrix(const std::string& name, int gates) {
    parameter(name, fmt::format("ints: {} ints: {}", gates * kUnits, kUnits));
    return name;
  }
  std::string vector(const std::string& name, int gates = 1) {
    parameter(name, fmt::format("ints: {}", gates * kUnits));
    return name;
  }
  void carry(const std::string& from, const std::string& to) {
    carries_ += fmt::format("  carry {{ from: \"{}\" to: \"{}\" size: {} }}\n", from, to, kUnits);
  }

  std::string weights(int l, int gates) {
    std::string text;
    for (const char* w : {"w_ih", "w_hh"})
      text += fmt::format(" input: \"{}\"", matrix(fmt::format("{}_{}", w, l), gates));
    for (const char* b : {"b_ih", "b_hh"})
      text += fmt::format(" input: \"{}\"", vector(fmt::format("{}_{}", b, l), gates));
    return text;
  }

  // Returns what the next layer reads.
  std::string add(Layer layer, Behind behind, const std::string& in) {
    const int l = layers_++;
    const std::string y = fmt::format("y_{}", l);
    if (layer == Layer::lstm) {
      ops_ += fmt::format(
          "op {{ type: \"LSTM\" name: \"layer_{0}\" input: \"{1}\" input: \"h_{0}\" input: \"c_{0}\"{2} output: "
          "\"{3}\" output: \"h_last_{0}\" output: \"c_last_{0}\" arg {{ name: \"hidden\" i: {4} }} }}\n",
          l, in, weights(l, 4), y, kUnits);
      carry(fmt::format("h_last_{}", l), fmt::format("h_{}", l));
      carry(fmt::format("c_last_{}", l), fmt::format("c_{}", l));
    } else if (layer == Layer::gru) {
      ops_ += fmt::format(
          "op {{ type: \"GRU\" input: \"{}\" input: \"\"{} output: \"{}\" arg {{ name: \"hidden\" i: {} }} }}\n", in,
          weights(l, 3), y, kUnits);
    } else if (layer == Layer::rnn) {
      ops_ += fmt::format(
          "op {{ type: \"RNN\" input: \"{1}\" input: \"h_{0}\"{2} output: \"{3}\" output: \"h_last_{0}\" arg {{ "
          "name: \"hidden\" i: {4} }} }}\n",
          l, in, weights(l, 1), y, kUnits);
      carry(fmt::format("h_last_{}", l), fmt::format("h_{}", l));
    } else {
      matrix(fmt::format("A_{}", l), 1);
      matrix(fmt::format("U_{}", l), 1);
      vector(fmt::format("a_{}", l));
      vector(fmt::format("start_{}", l));
      ops_ += fmt::format(R"(op {{ type: "RecurrentNetwork" input: "{1}" input: "start_{0}" output: "{2}"
  [stepnet.recurrent] {{
    step_net {{
      name: "cell_{0}"
      op {{ type: "FC" input: "x_t" input: "A_{0}" input: "a_{0}" output: "p_t" arg {{ name: "axis" i: 2 }} }}
      op {{ type: "FC" input: "s_prev" input: "U_{0}" output: "q_t" arg {{ name: "axis" i: 2 }} }}
      op {{ type: "Sum" input: "p_t" input: "q_t" output: "r_t" }}
      op {{ type: "Tanh" input: "r_t" output: "s" }}
    }}
    sequence {{ outer: "{1}" inner: "x_t" }}
    state {{ input: "s_prev" output: "s" initial: "start_{0}" all: "{2}" }}
  }}
}}
)",
                          l, in, y);
    }
    return add(behind, l, in, y);
  }

  std::string add(Behind behind, int l, const std::string& in, const std::string& y) {
    const std::string z = fmt::format("z_{}", l);
    switch (behind) {
      case Behind::nothing:
        return y;
      case Behind::tanh_in_place:
        ops_ += fmt::format(
            "op {{ type: \"Scale\" input: \"{0}\" output: \"{1}\" }} op {{ type: \"Tanh\" input: \"{1}\" "
            "output: \"{1}\" }}\n",
            y, z);
        return z;
      case Behind::sum_with_input:
        ops_ += fmt::format("op {{ type: \"Sum\" input: \"{}\" input: \"{}\" output: \"{}\" }}\n", y, in, z);
        return z;
      case Behind::product:
        ops_ += fmt::format(
            "op {{ type: \"FC\" input: \"{}\" input: \"{}\" input: \"{}\" output: \"{}\" arg {{ name: \"axis\" i: "
            "2 }} }}\n",
            y, matrix(fmt::format("V_{}", l), 1), vector(fmt::format("v_{}", l)), z);
        return z;
      case Behind::norm:
        ops_ += fmt::format(
            "op {{ type: \"LayerNorm\" input: \"{0}\" output: \"{1}\" output: \"mean_{2}\" output: \"std_{2}\" "
            "arg {{ name: \"axis\" i: 2 }} }}\n",
            y, z, l);
        return z;
    }
    return y;
  }

  int layers_ = 0;
  std::string ops_, init_, carries_;
};

}  // namespace

std::string stack_text(const std::vector<std::pair<Layer, Behind>>& layers) { return StackWriter().write(layers); }

std::string stack_text() {
  return stack_text({{Layer::lstm, Behind::sum_with_input},
                     {Layer::gru, Behind::product},
                     {Layer::learned_start, Behind::tanh_in_place},
                     {Layer::lstm, Behind::norm}});
}

std::string lstm_stack_text(int layers) {
  return stack_text(std::vector<std::pair<Layer, Behind>>(static_cast<size_t>(layers), {Layer::lstm, Behind::nothing}));
}

NetDef with_between(const std::string& stack, int l, const std::string& op) {
  const NetDef net = parse_net_text(stack, "stack.pbtxt"), between = parse_net_text(op, "between.pbtxt");
  const std::string y = fmt::format("y_{}", l);
  NetDef made = net;
  made.clear_op();
  for (OperatorDef reader : net.op()) {
    for (std::string& name : *reader.mutable_input())
      if (name == y) name = "between";
    if (reader.HasExtension(recurrent))
      for (SequenceLink& link : *reader.MutableExtension(recurrent)->mutable_sequence())
        if (link.outer() == y) link.set_outer("between");
    const bool writes = std::ranges::count(reader.output(), y) > 0;
    *made.add_op() = std::move(reader);
    if (!writes) continue;
    for (const OperatorDef& added : between.op()) *made.add_op() = added;
  }
  return made;
}

std::string with_ones(const std::string& stack, const std::string& name, const std::string& shape) {
  const std::string before = "  loss: \"loss\"", fill = "op { type: \"ConstantFill\" output: \"" + name + "\" ";
  const size_t at = stack.find("  }\n" + before);
  require(at != std::string::npos, "the stack has no init net");
  return stack.substr(0, at) + "    " + fill + "arg { name: \"shape\" " + shape +
         " } arg { name: \"value\" f: 1 } }\n" + stack.substr(at);
}

}  // namespace stepnet::testing
