// Passes over the nets that a network is written as, before they are compiled, and the names of all passes over step
// nets (recurrent/step/passes.h has those of the compiler).
//
// Threads: pure functions.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recurrent/form/expansion.h"
#include "recurrent/form/spec.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

struct NetPass {
  std::string_view name;                // in `disabled_passes`
  bool (*applies)(const Expansion& e);  // null: always
  void (*run)(Expansion& e);            // null: what makes or runs the network asks for it by itself
  std::string_view does;                // in one sentence
};
std::span<const NetPass> net_passes();
// Runs them in their order over the step net of a short form whose names have been checked.
void run_passes(Expansion& e);

// Of these and of the compiler of step nets (recurrent/step/passes.h), sorted: what `disabled_passes` may name;
// docs/passes.md says what each does.
const std::vector<std::string>& pass_names();

// split_concat, over a step net in short form before its gradient is derived: an FC of parts that a Concat lays side by
// side becomes one FCColumns for each part and their Sum. So the product with the sequence can run for many timesteps
// at once, though another part is a state, and the Concat need neither be made nor kept for the backward pass.
//
// Concat and FC must give the same number as "axis", since the number of dimensions is not known here. All readers of
// the Concat must be such FCs, and nothing outside of the step net may see it. A Concat of more than 64 parts stays, or
// of parts that other Concats make, where those together have more.
struct ConcatUse {
  std::set<std::string> states;  // inputs of the step net that the timestep before gives
  std::set<std::string> shown;   // blobs that must stay
  std::function<std::string(const std::string& blob)> term_name;  // a new name, for a term of the blob
};

NetDef split_concats(const NetDef& net, const ConcatUse& use);

// merge, over a step net in short form before its gradient is derived: FCs that read the same input, such as those of
// an LSTM's gates, become one FC with all their weights below each other, and a SplitByRows. One large product is
// faster than several small ones, forward and backward.
//
// The weights are joined in the net outside, once per run. They must come from there, and the FCs must give the same
// "axis".
struct MergeUse {
  std::set<std::string> inside;  // names that the step net gets from links: no parameters
  std::set<std::string> kept;    // blobs that are made where they are, because they are computed again
  // New names from such ones, for the step net and for the net outside.
  std::function<std::string(const std::string&)> fresh, fresh_outside;
};

struct MergedProducts {
  NetDef step;
  std::vector<OperatorDef> joins;  // for the net outside
};

MergedProducts merge_products(const NetDef& step, const MergeUse& use);

// activate, over a step net and its backward one: an operator that can (SavedInstead in stepnet/op_spec.h)
// overwrites a value that nobody but its gradient operator reads again with one that saves the gradient work: an LSTM's
// gates after their activations in place of their sums. Sets `activated`. Forward and gradient operator must do it
// alike.
void activate_gates(RecurrentSpec& spec);

// rematerialize, over a step net and its backward one: what an operator makes by additions and products alone of what
// the backward step net reads anyway is not kept for that, but made there once more, in front of the first operator
// that reads it. So a loop of elementwise operators has one operand less to read, and the forward one one less to
// write. Operators that are in no such loop, as products of matrices, keep what they read. Sets `rematerialized`.
// Forward and gradient operator must do it alike. `products`: operators of the step net, by index, that multiply each
// of some elements by each of some others, which is as little work for what they make.
void rematerialize(RecurrentSpec& spec, const std::set<int>& products = {});

}  // namespace stepnet
