// The small net, and its text, of the run that goes on in the folders which the harness for run folders makes.
#pragma once

namespace stepnet::testing {

inline constexpr const char* kRunNet = R"(
name: "tiny"
op { type: "Gather" input: "table" input: "tokens" output: "x" }
op {
  type: "RecurrentNetwork" input: "x" input: "h_before" output: "h_all" output: "h_last"
  [stepnet.recurrent] {
    step_net {
      name: "step"
      op { type: "FC" input: "h_prev" input: "W_h" input: "b_h" output: "r" arg { name: "axis" i: 2 } }
      op { type: "Sum" input: "r" input: "x_t" output: "s" }
      op { type: "Tanh" input: "s" output: "h" }
      external_input: "x_t" external_input: "h_prev" external_input: "W_h" external_input: "b_h"
      external_output: "h"
    }
    sequence { outer: "x" inner: "x_t" }
    state { input: "h_prev" output: "h" initial: "h_before" all: "h_all" last: "h_last" }
  }
}
op { type: "FC" input: "h_all" input: "W" input: "b" output: "logits" arg { name: "axis" i: 2 } }
op { type: "SoftmaxWithLoss" input: "logits" input: "next" output: "p" output: "loss" arg { name: "axis" i: 2 } }
[stepnet.model] {
  init {
    op { type: "GaussianFill" output: "table" arg { name: "shape" ints: 4 ints: 3 } }
    op { type: "GaussianFill" output: "W_h" arg { name: "shape" ints: 3 ints: 3 } }
    op { type: "ConstantFill" output: "b_h" arg { name: "shape" ints: 3 } }
    op { type: "GaussianFill" output: "W" arg { name: "shape" ints: 4 ints: 3 } }
    op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 4 } }
  }
  loss: "loss" input: "tokens" target: "next" logits: "logits"
  carry { from: "h_last" to: "h_before" size: 3 }
  timesteps: 2 batch: 2
}
)";
inline constexpr const char* kRunText = "abcdabcaabdcdabcabdcaacbdabcdacbdbaabcdabcdbac";

}  // namespace stepnet::testing
