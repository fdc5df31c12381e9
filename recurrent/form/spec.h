// RecurrentSpec: the arguments of RecurrentNetwork and RecurrentNetworkGradient as one checked struct.
//
// The public format spreads links, aliases and states over parallel lists. They are parsed here, once; every index,
// name and length is checked, and nothing else in recurrent/ sees the lists. Threads: value types.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "stepnet/operator.h"

namespace stepnet {

// The types of the two operators, for code that looks for them in a net.
inline constexpr const char* kRecurrentNetwork = "RecurrentNetwork";
inline constexpr const char* kRecurrentNetworkGradient = "RecurrentNetworkGradient";

struct RecurrentArgs {
  NetArg step_net, backward_step_net;
  std::string timestep;
  std::vector<std::string> recurrent_states;
  std::vector<int64_t> initial_recurrent_state_ids;
  std::vector<std::string> link_internal, link_external;
  std::vector<int64_t> link_offset;
  std::optional<std::vector<int64_t>> link_window;
  std::vector<std::string> alias_src, alias_dst;
  std::vector<int64_t> alias_offset;
  std::vector<std::string> backward_link_internal, backward_link_external;
  std::vector<int64_t> backward_link_offset;
  std::vector<int64_t> param;
  std::vector<std::string> param_grads;
  std::vector<int64_t> outputs_with_grads;
  std::vector<std::string> recompute_blobs_on_backward;
  std::vector<std::string> disabled_passes;
  // What the public format does not have.
  std::vector<int64_t> zero_state_ranks, zero_state_sizes;
  std::vector<int64_t> more_sequences;
  std::vector<std::string> output_internal, output_external, output_grads;
  bool reverse = false;
  int64_t sequence_lengths_id = -1;
  int64_t segment_steps = 0, segment_room = -1;
  std::optional<int64_t> memory_budget_bytes;
  bool rebuild_states = false;
  int64_t layer_hidden = 0, layer_gates = 1;
  std::vector<int64_t> layer_weights;
  // Tells the operators of two nets apart that share one scratch blob, so that none runs what the other compiled.
  std::shared_ptr<const int> identity = std::make_shared<int>();
};

// The step-net blob `internal` is, at timestep t, the rows t + offset ... t + offset + window - 1 of `external`.
struct Link {
  std::string internal, external;
  int64_t offset = 0, window = 1;
};

// The blob `output` is a view of the state's rows from `offset` on (from the end if negative). With `reverse` rows are
// counted from the other end, so that offset 1 shows the states after every step, and -1 that after the last.
struct StateView {
  std::string state, output;
  int64_t offset = 0;
};

struct StateSpec {
  std::string name;
  int initial = 0;                 // index of the forward operator's input that holds the first rows; -1: zeros
  std::vector<int64_t> size = {};  // of zeros: the dimensions after B
};

// The step-net blob `internal`, [1, B, ...], is row t of the output `external`, [T, B, ...].
struct StepOutput {
  std::string internal, external;
  std::string gradient;  // the row's gradient in the backward step net; "" if there is none
};

struct ParamSpecGrad {
  int input = 0;     // index of the forward operator's input
  std::string grad;  // its gradient of one timestep, in the backward step net; "" if the total's name is used there
};

struct RecurrentSpec {
  NetDef step_net;
  NetDef backward_net;  // empty in a net that only runs forward
  bool has_backward = false;
  std::string timestep;
  std::vector<StateSpec> states;
  std::vector<Link> links, backward_links;
  std::vector<StateView> views;
  std::vector<ParamSpecGrad> params;
  bool unnamed_params = false;  // the argument that names their gradients is absent
  std::vector<StepOutput> outputs;
  std::vector<int> outputs_with_grads;           // forward outputs: the views, then the step outputs, in their order
  std::vector<int> more_sequences;               // inputs that are sequences, beside input 0
  bool reverse = false;                          // timesteps go from T-1 to 0
  int lengths = -1;                              // the input with the samples' lengths; -1: there is none
  int64_t segment_steps = 0, segment_room = -1;  // see SegmentChoice
  std::optional<int64_t> memory_budget;          // bytes; it chooses segments instead
  bool rebuild_states = false;                   // see recurrent/network/rebuild.h
  std::set<std::string> recompute;
  std::set<std::string> disabled_passes;
  std::set<std::string> activated;            // blobs that hold activated gates, see recurrent/form/passes.h
  std::set<std::string> rematerialized;       // blobs that the backward step net makes again, see there
  std::map<std::string, std::string> rename;  // of the gradient operator, after memory sharing by other tools

  bool runs_pass(const std::string& pass) const { return disabled_passes.count(pass) == 0; }
  const std::string& renamed(const std::string& name) const {
    const auto it = rename.find(name);
    return it == rename.end() ? name : it->second;
  }
};

inline std::set<std::string> state_names(const RecurrentSpec& spec) {
  std::set<std::string> names;
  for (const StateSpec& state : spec.states) names.insert(state.name);
  return names;
}

// The part of parse_recurrent that is about what the public format does not have; the rest must be parsed.
void parse_extensions(const RecurrentArgs& args, int inputs, RecurrentSpec& spec);

// Declares the arguments on the forward or the gradient operator.
void declare_recurrent_args(OpBuilder<RecurrentArgs>& builder);

// `inputs`: how many the forward operator has, or an upper bound of it. Throws Error that names the argument.
RecurrentSpec parse_recurrent(const RecurrentArgs& args, const OperatorDef& def, int inputs);

}  // namespace stepnet
