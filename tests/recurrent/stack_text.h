// Stacks of recurrent layers as text, for tests that share layers out. Threads: pure functions.
#pragma once

#include <string>
#include <vector>

namespace stepnet::testing {

// How a layer is written, and what stands behind it.
enum class Layer { lstm, gru, rnn, learned_start };
enum class Behind { nothing, tanh_in_place, sum_with_input, product, norm };

// A model of 32 tokens with layers of 12 units on each other, 7 timesteps and a batch of 3. Layers lstm and rnn carry
// their states, gru starts with zeros, learned_start with a parameter.
std::string stack_text(const std::vector<std::pair<Layer, Behind>>& layers);

// Four layers, one of each kind.
std::string stack_text();

}  // namespace stepnet::testing
