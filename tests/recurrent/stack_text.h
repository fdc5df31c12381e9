// Stacks of recurrent layers as text, for tests that share layers out. Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "stepnet/proto/net.pb.h"

namespace stepnet::testing {

// How a layer is written, and what stands behind it.
enum class Layer { lstm, gru, rnn, learned_start };
enum class Behind { nothing, tanh_in_place, sum_with_input, product, norm };

// A model of 32 tokens with layers of 12 units on each other, 7 timesteps and a batch of 3. Layers lstm and rnn carry
// their states, gru starts with zeros, learned_start with a parameter.
std::string stack_text(const std::vector<std::pair<Layer, Behind>>& layers);

// Four layers, one of each kind.
std::string stack_text();

// LSTMs that nothing stands between: layer l makes y_l.
std::string lstm_stack_text(int layers);

// The stack with operators behind layer `l`, which read y_l and write "between". What read y_l reads that.
NetDef with_between(const std::string& stack, int l, const std::string& op);

// The same with a parameter of ones more.
std::string with_ones(const std::string& stack, const std::string& name, const std::string& shape);

}  // namespace stepnet::testing
