#include "recurrent/form/spec.h"

#include <algorithm>
#include <limits>

#include "core/nearest.h"
#include "core/net/dataflow.h"
#include "recurrent/form/passes.h"

namespace stepnet {
namespace {

constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();

void same_length(size_t a, size_t b, const char* name_a, const char* name_b) {
  require(a == b, "arguments \"{}\" and \"{}\" must have the same length, but have {} and {}", name_a, name_b, a, b);
}

std::vector<Link> parse_links(const std::vector<std::string>& internal, const std::vector<std::string>& external,
                              const std::vector<int64_t>& offset, const std::optional<std::vector<int64_t>>& window,
                              const std::string& prefix) {
  same_length(internal.size(), external.size(), (prefix + "link_internal").c_str(), (prefix + "link_external").c_str());
  same_length(internal.size(), offset.size(), (prefix + "link_internal").c_str(), (prefix + "link_offset").c_str());
  if (window) same_length(internal.size(), window->size(), (prefix + "link_internal").c_str(), "link_window");
  std::vector<Link> links;
  std::set<std::string> seen;
  for (size_t i = 0; i < internal.size(); ++i) {
    Link link{internal[i], external[i], offset[i], window ? (*window)[i] : 1};
    require(!link.internal.empty() && !link.external.empty(),
            "\"{}link_internal\" or \"{}link_external\" has an empty name at position {}", prefix, prefix, i);
    require(link.offset >= 0 && link.offset <= kMaxRows, "\"{}link_offset\" of \"{}\" is {}; it must be from 0 to {}",
            prefix, link.internal, link.offset, kMaxRows);
    require(link.window >= 0 && link.window <= kMaxRows, "\"link_window\" of \"{}\" is {}; it must be from 0 to {}",
            link.internal, link.window, kMaxRows);
    if (!seen.insert(link.internal).second)
      throw Error(fmt::format("\"{}link_internal\" links the step blob \"{}\" to two places", prefix, link.internal),
                  "link each step blob once; let a Copy in the step net write the second");
    links.push_back(std::move(link));
  }
  return links;
}

std::vector<StateSpec> parse_states(const RecurrentArgs& args, int inputs) {
  same_length(args.recurrent_states.size(), args.initial_recurrent_state_ids.size(), "recurrent_states",
              "initial_recurrent_state_ids");
  std::vector<StateSpec> states;
  std::set<std::string> seen;
  for (size_t i = 0; i < args.recurrent_states.size(); ++i) {
    const int64_t id = args.initial_recurrent_state_ids[i];
    const bool zeros = id == -1 && i < args.zero_state_ranks.size() && args.zero_state_ranks[i] > 0;
    require(zeros || (id >= 0 && id < inputs),
            "\"initial_recurrent_state_ids\" has {}, but the operator has inputs 0 to {}", id, inputs - 1);
    require(seen.insert(args.recurrent_states[i]).second, "\"recurrent_states\" has \"{}\" twice",
            args.recurrent_states[i]);
    states.push_back({args.recurrent_states[i], static_cast<int>(id)});
  }
  return states;
}

std::vector<StateView> parse_views(const RecurrentArgs& args) {
  same_length(args.alias_src.size(), args.alias_dst.size(), "alias_src", "alias_dst");
  same_length(args.alias_src.size(), args.alias_offset.size(), "alias_src", "alias_offset");
  std::vector<StateView> views;
  const std::set<std::string> states(args.recurrent_states.begin(), args.recurrent_states.end());
  for (size_t i = 0; i < args.alias_src.size(); ++i) {
    require(states.count(args.alias_src[i]) > 0, "\"alias_src\" has \"{}\", which is no recurrent state.{}",
            args.alias_src[i], Nearest{args.alias_src[i], states});
    views.push_back({args.alias_src[i], args.alias_dst[i], args.alias_offset[i]});
  }
  return views;
}

// Every state must be handed on: a step blob that some operator writes is linked to its rows after the first.
void check_states_are_written(const RecurrentSpec& spec) {
  const std::set<std::string> written = written_names(spec.step_net);
  std::set<std::string> states, handed_on;
  for (const StateSpec& state : spec.states) states.insert(state.name);
  for (const Link& link : spec.links)
    if (written.count(link.internal) > 0) handed_on.insert(link.external);
  for (const StateSpec& state : spec.states)
    if (handed_on.count(state.name) == 0)
      throw Error(fmt::format("no operator of the step net writes the state \"{}\"", state.name),
                  "link an output of the step net to it with offset 1");
  for (const Link& link : spec.links)
    require(states.count(link.external) > 0 || written.count(link.internal) == 0,
            "the step net writes \"{}\", which is linked to \"{}\", an input of the operator", link.internal,
            link.external);
}

void parse_rename(const OperatorDef& def, RecurrentSpec& spec) {
  constexpr std::string_view suffix = ".rename";
  for (const Argument& arg : def.arg())
    if (arg.name().ends_with(suffix) && arg.has_s())
      spec.rename[arg.name().substr(0, arg.name().size() - suffix.size())] = arg.s();
}

}  // namespace

void declare_recurrent_args(OpBuilder<RecurrentArgs>& b) {
  using A = RecurrentArgs;
  using Strings = std::vector<std::string>;
  using Ints = std::vector<int64_t>;
  b.required_arg("step_net", &A::step_net, "the net of one timestep, as a message or as protobuf text");
  b.arg("backward_step_net", &A::backward_step_net, NetArg{},
        "the net of one timestep backward; without it no gradient");
  b.arg("timestep", &A::timestep, std::string("timestep"), "the step blob that holds the timestep, int32 [1]");
  b.arg("recurrent_states", &A::recurrent_states, Strings{}, "names of the state tensors [T + L, B, D] to create");
  b.arg("initial_recurrent_state_ids", &A::initial_recurrent_state_ids, Ints{},
        "per state, the input with its first rows");
  b.arg("link_internal", &A::link_internal, Strings{}, "step blobs that are rows of tensors outside");
  b.arg("link_external", &A::link_external, Strings{}, "the tensors that they are rows of");
  b.arg("link_offset", &A::link_offset, Ints{}, "the row at timestep 0");
  b.arg("link_window", &A::link_window, std::optional<Ints>{}, "the number of rows; 1 if absent");
  b.arg("alias_src", &A::alias_src, Strings{}, "states to show outside");
  b.arg("alias_dst", &A::alias_dst, Strings{}, "the outputs that show them");
  b.arg("alias_offset", &A::alias_offset, Ints{}, "the first row shown; counted from the end if negative");
  b.arg("backward_link_internal", &A::backward_link_internal, Strings{}, "step blobs of the backward step net");
  b.arg("backward_link_external", &A::backward_link_external, Strings{}, "the gradient tensors they are rows of");
  b.arg("backward_link_offset", &A::backward_link_offset, Ints{}, "the row at timestep 0");
  b.arg("param", &A::param, Ints{}, "inputs whose gradients add up over time");
  b.arg("param_grads", &A::param_grads, Strings{}, "their gradients of one timestep, in the backward step net");
  b.arg("outputs_with_grads", &A::outputs_with_grads, Ints{}, "outputs whose gradients count");
  b.arg("recompute_blobs_on_backward", &A::recompute_blobs_on_backward, Strings{},
        "step blobs that the backward step net computes again");
  b.arg("disabled_passes", &A::disabled_passes, Strings{},
        "of the passes that make a step net fast, those to leave out: " +
            fmt::format("{}", fmt::join(pass_names(), ", ")));
  b.arg("zero_state_ranks", &A::zero_state_ranks, Ints{},
        "per state that starts at zero (-1 in initial_recurrent_state_ids), its number of dimensions after B, else 0");
  b.arg("zero_state_sizes", &A::zero_state_sizes, Ints{}, "those dimensions, one state after the other");
  b.arg("more_sequences", &A::more_sequences, Ints{}, "inputs beside the first that are sequences");
  b.arg("output_internal", &A::output_internal, Strings{}, "step blobs [1, B, ...] that are rows of outputs");
  b.arg("output_external", &A::output_external, Strings{}, "those outputs, which stand behind the views of states");
  b.arg("output_grads", &A::output_grads, Strings{}, "their rows' gradients in the backward step net");
  b.arg("reverse", &A::reverse, false, "runs from the last timestep to the first; states start behind the last");
  b.arg("sequence_lengths_id", &A::sequence_lengths_id, int64_t{-1}, "the input with the samples' lengths, int32 [B]");
  b.arg("segment_steps", &A::segment_steps, int64_t{0},
        "timesteps that run and are kept for the backward pass together, rounded up to whole blocks; 0: all");
  b.arg("segment_room", &A::segment_room, int64_t{-1},
        "bytes for what is kept of segments, and states before them, beside the segment at work; the rest runs again; "
        "-1: no bound");
  b.arg(
      "memory_budget_bytes", &A::memory_budget_bytes, std::optional<int64_t>{},
      "the most bytes that a forward and backward pass take beside inputs and given gradients; segments are chosen so");
  b.arg("rebuild_states", &A::rebuild_states, false,
        "states that an LSTMUnit makes and nobody outside sees are not kept for the backward pass, but made again from "
        "the gates; not of half types, and not where there are segments");
  b.arg("layer_hidden", &A::layer_hidden, int64_t{0},
        "H of the RNN, GRU or LSTM that this was written for: sequence, states and weights are checked by it; 0: none",
        at_least(0));
  b.arg("layer_gates", &A::layer_gates, int64_t{1}, "how many rows its weights have for each of H", at_least(1));
  b.arg("layer_weights", &A::layer_weights, Ints{}, "the inputs that are its w_ih, w_hh, b_ih and b_hh; -1: none is");
  b.own_args({"disabled_passes", "zero_state_ranks", "zero_state_sizes", "more_sequences", "output_internal",
              "output_external", "output_grads", "reverse", "sequence_lengths_id", "segment_steps", "segment_room",
              "memory_budget_bytes", "rebuild_states", "layer_hidden", "layer_gates", "layer_weights"});
  for (const char* name : {"enable_rnn_executor", "rnn_executor.*", "rnn_executor_debug"})
    b.accepts(name, "it chooses how timesteps are run, not what they compute");
  b.accepts("num_workspaces", "memory of timesteps is planned");
  b.accepts("*.rename", "a step blob has its storage to itself, whatever it shared it with");
}

RecurrentSpec parse_recurrent(const RecurrentArgs& args, const OperatorDef& def, int inputs) {
  RecurrentSpec spec;
  spec.step_net = args.step_net.net;
  // A backward step net may have no operator, where no output depends on an input; its links say that it is one.
  spec.has_backward = args.backward_step_net.present &&
                      (args.backward_step_net.net.op_size() > 0 || !args.backward_link_internal.empty());
  spec.backward_net = args.backward_step_net.net;
  spec.timestep = args.timestep;
  for (const std::string& pass : args.disabled_passes) {
    require(std::ranges::count(pass_names(), pass) > 0, "\"disabled_passes\" names \"{}\"; there are {}.{}", pass,
            fmt::join(pass_names(), ", "), Nearest{pass, pass_names()});
    spec.disabled_passes.insert(pass);
  }
  spec.states = parse_states(args, inputs);
  spec.links = parse_links(args.link_internal, args.link_external, args.link_offset, args.link_window, "");
  spec.views = parse_views(args);
  spec.backward_links = parse_links(args.backward_link_internal, args.backward_link_external, args.backward_link_offset,
                                    std::nullopt, "backward_");
  if (!args.param_grads.empty()) same_length(args.param.size(), args.param_grads.size(), "param", "param_grads");
  spec.unnamed_params = args.param_grads.empty();
  for (size_t i = 0; i < args.param.size(); ++i) {
    require(args.param[i] >= 0 && args.param[i] < inputs, "\"param\" has {}, but the operator has inputs 0 to {}",
            args.param[i], inputs - 1);
    spec.params.push_back({static_cast<int>(args.param[i]), args.param_grads.empty() ? "" : args.param_grads[i]});
  }
  parse_extensions(args, inputs, spec);
  spec.recompute.insert(args.recompute_blobs_on_backward.begin(), args.recompute_blobs_on_backward.end());
  parse_rename(def, spec);
  check_states_are_written(spec);
  return spec;
}

// The arguments of recurrent operators that the public format does not have; they are written where a short form asks
// for what they say.
namespace {

void parse_zero_states(const RecurrentArgs& args, RecurrentSpec& spec) {
  const auto& ranks = args.zero_state_ranks;
  require(ranks.empty() || ranks.size() == spec.states.size(),
          "arguments \"recurrent_states\" and \"zero_state_ranks\" must have the same length, but have {} and {}",
          spec.states.size(), ranks.size());
  const auto given = static_cast<int64_t>(args.zero_state_sizes.size());
  int64_t used = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    StateSpec& state = spec.states[i];
    require(ranks[i] >= 0 && ranks[i] <= Shape::kMaxRank - 2, "\"zero_state_ranks\" has {}; it must be from 0 to {}",
            ranks[i], Shape::kMaxRank - 2);
    require((ranks[i] > 0) == (state.initial < 0), "\"zero_state_ranks\" of \"{}\" is {}, but it starts as {}",
            state.name, ranks[i], state.initial < 0 ? "zeros" : "an input");
    for (int64_t d = 0; d < ranks[i]; ++d, ++used) {
      require(used < given, "\"zero_state_sizes\" has {} sizes, fewer than \"zero_state_ranks\" asks for", given);
      state.size.push_back(args.zero_state_sizes[used]);
      require(state.size.back() >= 0, "\"zero_state_sizes\" of \"{}\" has {}, which is negative", state.name,
              state.size.back());
    }
  }
  require(used == given, "\"zero_state_sizes\" has {} sizes, but \"zero_state_ranks\" asks for {}", given, used);
}

void parse_outputs(const RecurrentArgs& args, RecurrentSpec& spec) {
  const size_t count = args.output_internal.size();
  for (const auto& [list, name] :
       {std::pair{&args.output_external, "output_external"}, {&args.output_grads, "output_grads"}})
    require(list->size() == count,
            "arguments \"output_internal\" and \"{}\" must have the same length, but have {} and {}", name, count,
            list->size());
  const std::set<std::string> written = written_names(spec.step_net);
  std::set<std::string> seen, linked;
  for (const Link& link : spec.links) linked.insert(link.internal);
  for (size_t i = 0; i < count; ++i) {
    const std::string& blob = args.output_internal[i];
    require(!args.output_external[i].empty(), "\"output_external\" has an empty name at position {}", i);
    require(written.count(blob) > 0, "\"output_internal\" names \"{}\", which the step net does not write.{}", blob,
            Nearest{blob, written});
    require(seen.insert(blob).second, "\"output_internal\" has \"{}\" twice", blob);
    require(linked.count(blob) == 0, "\"output_internal\" names \"{}\", which \"link_internal\" links already", blob);
    spec.outputs.push_back({blob, args.output_external[i], args.output_grads[i]});
  }
}

void parse_outputs_with_grads(const RecurrentArgs& args, RecurrentSpec& spec) {
  const auto count = static_cast<int64_t>(spec.views.size() + spec.outputs.size());
  for (const int64_t i : args.outputs_with_grads) {
    require(i >= 0 && i < count, "\"outputs_with_grads\" has {}, but only the outputs 0 to {} are views of states{}", i,
            count - 1, spec.outputs.empty() ? "" : " or written by the step net");
    spec.outputs_with_grads.push_back(static_cast<int>(i));
  }
}

}  // namespace

void parse_extensions(const RecurrentArgs& args, int inputs, RecurrentSpec& spec) {
  parse_zero_states(args, spec);
  parse_outputs(args, spec);
  parse_outputs_with_grads(args, spec);
  std::set<int64_t> seen = {0};
  for (const int64_t i : args.more_sequences) {
    require(i >= 0 && i < inputs, "\"more_sequences\" has {}, but the operator has inputs 0 to {}", i, inputs - 1);
    require(seen.insert(i).second, "\"more_sequences\" has {}, which is a sequence already", i);
    spec.more_sequences.push_back(static_cast<int>(i));
  }
  spec.reverse = args.reverse;
  require(args.sequence_lengths_id >= -1 && args.sequence_lengths_id < inputs,
          "\"sequence_lengths_id\" is {}, but the operator has inputs 0 to {}", args.sequence_lengths_id, inputs - 1);
  spec.lengths = static_cast<int>(args.sequence_lengths_id);
  require(args.segment_steps >= 0, "\"segment_steps\" is {}; it must be at least 0", args.segment_steps);
  require(args.segment_room >= -1, "\"segment_room\" is {}; it must be a number of bytes, or -1 for no bound",
          args.segment_room);
  spec.segment_steps = args.segment_steps;
  spec.segment_room = args.segment_room;
  require(!args.memory_budget_bytes || *args.memory_budget_bytes > 0,
          "\"memory_budget_bytes\" is {}; it must be more than 0", args.memory_budget_bytes.value_or(0));
  require(!args.memory_budget_bytes || (args.segment_steps == 0 && args.segment_room == -1),
          "\"memory_budget_bytes\" chooses segments, so \"segment_steps\" and \"segment_room\" cannot be given, too");
  spec.memory_budget = args.memory_budget_bytes;
  spec.rebuild_states = args.rebuild_states;
  for (const int64_t i : args.layer_weights)
    require(i >= -1 && i < inputs, "\"layer_weights\" has {}, but the operator has inputs 0 to {}", i, inputs - 1);
}

}  // namespace stepnet
