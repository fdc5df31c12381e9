// The arguments of recurrent operators that the public format does not have; the builder writes them where a short form
// asks for what they say.
#include <algorithm>

#include "core/net/dataflow.h"
#include "recurrent/form/spec.h"

namespace stepnet {
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
  std::set<std::string> seen;
  for (size_t i = 0; i < count; ++i) {
    const std::string& blob = args.output_internal[i];
    require(!args.output_external[i].empty(), "\"output_external\" has an empty name at position {}", i);
    require(written.count(blob) > 0, "\"output_internal\" names \"{}\", which the step net does not write.{}", blob,
            suggest(blob, {written.begin(), written.end()}));
    require(seen.insert(blob).second, "\"output_internal\" has \"{}\" twice", blob);
    for (const Link& link : spec.links)
      require(link.internal != blob, "\"output_internal\" names \"{}\", which \"link_internal\" links already", blob);
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
}

}  // namespace stepnet
