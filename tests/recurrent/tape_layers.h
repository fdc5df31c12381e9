// Layers of recurrent networks for tests of the tape.
#pragma once

#include "stepnet/saved_value.h"
#include "tests/core/autograd/net_testing.h"

namespace stepnet::autograd::testing {

using Names = std::vector<std::string>;

inline std::vector<Variable> leaves(const Blobs& feeds, const Names& names) {
  std::vector<Variable> all;
  for (const std::string& name : names) {
    if (name.empty()) {
      all.emplace_back();
      continue;
    }
    const Tensor& value = feeds.at(name);
    all.emplace_back(value.clone(), is_floating(value.dtype()));
  }
  return all;
}

// A layer of the operator `type`, with the outputs Y, h_n and, of LSTM, c_n.
struct Layer {
  std::string text;
  Names inputs, outputs;
  std::vector<Argument> args;
  Blobs feeds;
};

inline Layer layer(const std::string& type, int64_t steps = 5) {
  const int64_t gates = type == "LSTM" ? 4 : type == "GRU" ? 3 : 1;
  Layer l;
  l.inputs = {"X", "h0", "w_ih", "w_hh", "b_ih", "b_hh"};
  l.outputs = {"Y", "h_n"};
  l.feeds = {{"X", numbers({steps, 2, 3}, 1)},     {"h0", numbers({1, 2, 4}, 2)},
             {"w_ih", numbers({gates * 4, 3}, 3)}, {"w_hh", numbers({gates * 4, 4}, 4)},
             {"b_ih", numbers({gates * 4}, 5)},    {"b_hh", numbers({gates * 4}, 6)}};
  if (type == "LSTM") {
    l.inputs.insert(l.inputs.begin() + 2, "c0");
    l.outputs.emplace_back("c_n");
    l.feeds["c0"] = numbers({1, 2, 4}, 7);
  }
  l.args = {make_arg("hidden", 4)};
  l.text = op_text(type, l.inputs, l.outputs, "arg { name: \"hidden\" i: 4 }");
  return l;
}

// Saved values wait in memory that the allocator does not count.
inline SavedValueHooks stored_elsewhere() {
  struct Stored {
    DType dtype;
    Shape shape;
    std::vector<std::byte> bytes;
  };
  return {[](const Tensor& t) {
            return std::any(std::make_shared<Stored>(
                Stored{t.dtype(), t.shape(), std::vector<std::byte>(t.raw(), t.raw() + t.bytes())}));
          },
          [](const std::any& packed) {
            const auto& stored = *std::any_cast<std::shared_ptr<Stored>>(packed);
            Tensor t = Tensor::empty(stored.dtype, stored.shape);
            if (t.bytes() > 0) std::memcpy(t.raw(), stored.bytes.data(), t.bytes());
            return t;
          }};
}

}  // namespace stepnet::autograd::testing
