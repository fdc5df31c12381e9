// What the tape holds for backward: a table of operators and of compositions of them, what a gradient of each input
// reads, and the bytes that the allocator counts.
//
// Values are named by letters: inputs by their own, 'o' is the output, and 's' what is computed on the way. Sizes in
// bytes are multiples of the allocator's step, so that it counts neither more nor less than the elements.
// Threads: one at a time, with nothing else that allocates.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "stepnet/device.h"
#include "stepnet/error.h"
#include "stepnet/node.h"
#include "stepnet/record.h"

namespace stepnet::bench {

using Variables = std::vector<autograd::Variable>;

struct HeldInput {
  char letter;
  Shape shape;
  std::string reads = {};  // by the gradient of this input
  DType dtype = DType::float32;
  bool differentiable() const { return dtype == DType::float32; }
};

struct HeldCase {
  std::string name;
  std::vector<HeldInput> inputs;
  std::function<autograd::Variable(const Variables&)> run;
  Shape output = {}, step = {};  // of 'o' and 's', where something reads them

  int64_t bytes_of(char letter) const {
    constexpr int64_t kFloat = 4;
    if (letter == 'o') return kFloat * output.size();
    if (letter == 's') return kFloat * step.size();
    for (const HeldInput& in : inputs)
      if (in.letter == letter) return static_cast<int64_t>(dtype_size(in.dtype)) * in.shape.size();
    fail("{} has no value {}", name, letter);
  }
  // Of everything that the gradients of these inputs read; each value counts once.
  int64_t expected_bytes(const std::string& trained) const {
    std::set<char> read;
    for (const HeldInput& in : inputs)
      if (trained.find(in.letter) != std::string::npos) read.insert(in.reads.begin(), in.reads.end());
    int64_t bytes = 0;
    for (const char letter : read) bytes += bytes_of(letter);
    return bytes;
  }
  // Every choice of inputs that require gradients, but that of none, as letters.
  std::vector<std::string> choices() const {
    std::string all;
    for (const HeldInput& in : inputs)
      if (in.differentiable()) all += in.letter;
    std::vector<std::string> choices;
    for (size_t mask = 1; mask < size_t{1} << all.size(); ++mask) {
      std::string choice;
      for (size_t i = 0; i < all.size(); ++i)
        if ((mask >> i) & 1) choice += all[i];
      choices.push_back(choice);
    }
    return choices;
  }
};

// Elements that every operator of the table accepts: positive numbers, indices 0 and true.
inline Tensor held_values(const HeldInput& in) {
  Tensor t = Tensor::zeros(in.dtype, in.shape);
  if (in.dtype == DType::float32)
    for (float& v : t.span<float>()) v = 0.5F;
  return t;
}

// Bytes that are live after the operator ran, its inputs and its output have been let go of, and its node has not.
// Inputs that require gradients are outputs of a node that saves nothing, since a leaf would be kept as one.
inline int64_t held_bytes(const HeldCase& c, const std::string& trained) {
  Variables leaves, inputs;
  const auto is_trained = [&](const HeldInput& in) { return trained.find(in.letter) != std::string::npos; };
  for (const HeldInput& in : c.inputs)
    if (is_trained(in)) leaves.emplace_back(held_values(in), true);
  const int64_t before = allocator(Device{}).counters().live;
  size_t next = 0;
  for (const HeldInput& in : c.inputs)
    inputs.push_back(is_trained(in) ? autograd::run("Scale", {leaves[next++]}, {make_arg("scale", 1.5F)})[0]
                                    : autograd::Variable(held_values(in)));
  autograd::Variable output = c.run(inputs);
  const std::shared_ptr<autograd::Node> node = output.grad_fn();
  inputs.clear();
  output = {};
  return allocator(Device{}).counters().live - before;
}

const std::vector<HeldCase>& held_cases();

}  // namespace stepnet::bench
