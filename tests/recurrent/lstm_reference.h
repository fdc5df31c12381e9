// A character LSTM language model in plain loops over doubles: the loss and the gradients that Stepnet must give.
//
// x = table[token], gates = Wx x + bx + Wh h + bh in the order i, f, o, g; c = f c + i g, h = o tanh(c), with
// `forget_bias` added to f; a row past its length keeps its states, or drops them to zero. The loss is the mean cross
// entropy of Wo h + bo over all T * B places. Uses nothing of Stepnet. Threads: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace stepnet::testing {

using Numbers = std::vector<double>;

struct LstmModel {
  int steps = 0, batch = 0, classes = 0, embedding = 0, width = 0;
  double forget_bias = 0;
  bool drop_states = false;
  std::vector<int> tokens, next;  // [T, B]
  std::vector<int> lengths;       // [B]
  // table [V, I], Wx [4H, I], bx [4H], Wh [4H, H], bh [4H], Wo [V, H], bo [V], h0 and c0 [B, H]
  std::map<std::string, Numbers> values;
};

struct LstmResults {
  double loss = 0;
  std::map<std::string, Numbers> gradients;  // of every value
};

LstmResults run_lstm(const LstmModel& model);

}  // namespace stepnet::testing
