// Recurrent as plain loops over the flat vector of weights, written from cuDNN's equations, and its feeds.
//
// The vector is read from front to back by a cursor, so that the reference knows nothing of
// recurrent/layers/vendor_weights.h. Threads: pure functions.
#pragma once

#include <map>
#include <string>

#include "tests/operators/op_test.h"

namespace stepnet::testing {

struct FlatCase {
  std::string mode = "lstm";
  int64_t layers = 1, directions = 1;
  bool lengths = false;
  bool skip = false;
  bool states = true;  // initial ones are given
  int64_t inputs = 2, hidden = 3;
};
void PrintTo(const FlatCase& c, std::ostream* out);
std::string name_of(const FlatCase& c);

int64_t reference_gates(const std::string& mode);
int64_t reference_size(const FlatCase& c);

// "Recurrent" of X, hidden, cell, weights and lengths, with outputs Y, last_hidden, last_cell, scratch and states.
OperatorDef recurrent_op(const FlatCase& c);
Feeds flat_feeds(const FlatCase& c, DType dtype, int64_t steps, int64_t batch);
Tensor feed_of(const Feeds& feeds, const std::string& name);

// Y, last_hidden and last_cell, in float64.
std::map<std::string, Tensor> run_flat_reference(const FlatCase& c, const Feeds& feeds);

}  // namespace stepnet::testing
