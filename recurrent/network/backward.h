// One run of RecurrentNetworkGradient, and the gradient tensors that its steps read and write.
//
// Threads: one run at a time.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "recurrent/network/kept.h"
#include "recurrent/network/states.h"
#include "stepnet/op_spec.h"

namespace stepnet {

// The operator's call, and what its arguments say.
struct Backward {
  const RecurrentSpec& spec;
  RecurrentScratch& scratch;
  BlobCall& call;
  int first_input = 0;  // of the forward inputs among the inputs
  int64_t steps = 0, batch = 0;
  std::map<std::string, Tensor> gradients;            // by the name that links use
  std::vector<std::pair<Tensor, Blob*>> wide_totals;  // sums in float32, and the outputs of half types that they become

  const Tensor& forward_input(int i) const { return std::as_const(*call.in[first_input + i]).tensor(); }
  const std::string& forward_name(int i) const { return call.def.input(first_input + i); }
  Blob* output(int i) const { return i < static_cast<int>(call.out.size()) ? call.out[i] : nullptr; }
  const std::string& renamed(const std::string& name) const { return spec.renamed(name); }
  // [T + L, B, ...], perhaps without bytes.
  Tensor state(const StateSpec& s) const { return state_over_time(scratch, call.workspace, s.name); }
  const std::string& state_gradient(const StateSpec& s) const {
    return scratch.gradient_names.states[static_cast<size_t>(&s - spec.states.data())];
  }
  // Each sequence's input, and the output with its gradient.
  std::vector<std::pair<int, int>> sequences() const {
    std::vector<std::pair<int, int>> all = {{0, 0}};
    for (const int input : spec.more_sequences)
      all.emplace_back(input, static_cast<int>(spec.params.size() + spec.states.size() + all.size()));
    return all;
  }
};

// The gradient tensors of which some operator writes row t + offset in every timestep t, with the offsets.
std::set<std::pair<std::string, int64_t>> written_rows(const RecurrentSpec& spec);

// Each makes tensors and puts them into `gradients`: of states; of sequences; of outputs that the step net writes.
void prepare_state_gradients(Backward& b);
void prepare_sequence_gradients(Backward& b);
void take_output_gradients(Backward& b);
// Zeros in those rows of states' gradients that no step writes.
void clear_state_gradients(const Backward& b);
// The gradients of views. Rows that no step writes are added to at once; the others are when their step has written
// them.
std::vector<RowSum> take_outside_gradients(Backward& b);
// The first rows of states' gradients become the gradients of initial values.
void finish_initial_states(const Backward& b);

}  // namespace stepnet
