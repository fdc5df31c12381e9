#include "tests/recurrent/tiny_model.h"

namespace stepnet::testing {

std::string tiny_net_text(int classes) {
  return fmt::format(R"(
name: "tiny"
op {{ type: "Gather" input: "W_x" input: "tokens" output: "x" }}
op {{
  type: "RecurrentNetwork" input: "x" input: "h_before" input: "c_before"
  output: "h_all" output: "h_last" output: "c_last"
  [stepnet.recurrent] {{
    step_net {{
      name: "tiny_step"
      op {{ type: "FC" input: "h_prev" input: "W_h" input: "b" output: "h_gates" arg {{ name: "axis" i: 2 }} }}
      op {{ type: "Sum" input: "h_gates" input: "x_t" output: "gates" }}
      op {{ type: "LSTMUnit" input: "h_prev" input: "c_prev" input: "gates" input: "timestep" output: "h" output: "c"
           arg {{ name: "sequence_lengths" i: 0 }} }}
    }}
    sequence {{ outer: "x" inner: "x_t" }}
    state {{ input: "h_prev" output: "h" initial: "h_before" all: "h_all" last: "h_last" }}
    state {{ input: "c_prev" output: "c" initial: "c_before" last: "c_last" }}
  }}
}}
op {{ type: "FC" input: "h_all" input: "W_out" input: "b_out" output: "logits" arg {{ name: "axis" i: 2 }} }}
op {{ type: "SoftmaxWithLoss" input: "logits" input: "next" output: "p" output: "loss" arg {{ name: "axis" i: 2 }} }}
[stepnet.model] {{
  init {{
    op {{ type: "XavierFill" output: "W_x" arg {{ name: "shape" ints: 32 ints: 48 }} }}
    op {{ type: "XavierFill" output: "W_h" arg {{ name: "shape" ints: 48 ints: 12 }} }}
    op {{ type: "ConstantFill" output: "b" arg {{ name: "shape" ints: 48 }} }}
    op {{ type: "XavierFill" output: "W_out" arg {{ name: "shape" ints: {0} ints: 12 }} }}
    op {{ type: "ConstantFill" output: "b_out" arg {{ name: "shape" ints: {0} }} }}
  }}
  loss: "loss" input: "tokens" target: "next" logits: "logits"
  carry {{ from: "h_last" to: "h_before" size: 12 }}
  carry {{ from: "c_last" to: "c_before" size: 12 }}
  timesteps: 7 batch: 4
}}
)",
                     classes);
}

std::string tiny_text(size_t bytes) {
  const char* animals[] = {"cat", "dog", "hen", "cow"};
  const char* places[] = {"mat", "hill", "road"};
  std::string text;
  for (size_t i = 0; text.size() < bytes; ++i)
    text += fmt::format("the {} sat on the {}.\n", animals[(i + i / 4) % 4], places[i * i * i % 3]);
  return text;
}

TrainOptions tiny_options(const std::string& text_file, int64_t iterations) {
  TrainOptions options;
  options.text = text_file;
  options.iterations = iterations;
  options.optimizer.lr = 0.02;
  return options;
}

std::map<std::string, std::string> saved_bytes(const std::string& folder) {
  std::map<std::string, std::string> bytes;
  const auto loaded = load_latest(folder);
  if (!loaded) return bytes;
  for (const auto& [name, t] : loaded->contents.tensors)
    bytes[name] = t.str() + std::string(reinterpret_cast<const char*>(t.raw()), t.bytes());
  return bytes;
}

}  // namespace stepnet::testing
