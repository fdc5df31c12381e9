// Writing the full form: inputs and outputs in its order, and its arguments. Arguments that the public format does not
// have are written only where they say something. See recurrent/form/expansion.h. A network of which no gradient is
// asked for loses its backward step net again.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "core/net/expansions.h"
#include "recurrent/form/expansion.h"
#include "recurrent/form/spec.h"
#include "stepnet/arguments.h"
#include "stepnet/operator.h"

namespace stepnet {
namespace {

using InputIndex = std::map<std::string, int64_t>;  // of the operator

// The operator's inputs by name. Puts the first sequence first, then the initial states, the other given inputs, and
// the references that were not given.
InputIndex order_inputs(Expansion& e) {
  InputIndex index;
  std::vector<std::string> inputs;
  auto add = [&](const std::string& name) {
    if (index.emplace(name, static_cast<int64_t>(inputs.size())).second) inputs.push_back(name);
  };
  add(e.def.sequence(0).outer());
  for (const StateLink& s : e.def.state())
    if (s.has_initial()) add(s.initial());
  for (const std::string& name : e.op.input()) add(name);
  for (const std::string& name : e.references) add(name);
  e.op.clear_input();
  for (const std::string& name : inputs) e.op.add_input(name);
  return index;
}

// Views of states come first, in the order in which they were given, then the other outputs and the scratch.
void order_outputs(Expansion& e) {
  std::map<std::string, std::vector<BuiltView>> by_output;
  for (BuiltView& view : e.views) by_output[view.output].push_back(std::move(view));
  e.views.clear();
  for (const std::string& output : e.op.output()) {
    const std::vector<BuiltView>& views = by_output[output];
    e.views.insert(e.views.end(), views.begin(), views.end());
  }
  e.op.clear_output();
  for (const BuiltView& view : e.views) e.op.add_output(view.output);
  for (const BuiltOutput& output : e.outputs) e.op.add_output(output.output);
  e.op.add_output(e.scope + "/step_workspaces");
}

template <class T>
void add_arg(Expansion& e, const std::string& name, const T& value) {
  *e.op.add_arg() = make_arg(name, value);
}

void add_links(Expansion& e, const std::string& prefix, const std::vector<BuiltLink>& links) {
  std::vector<std::string> internal, external;
  std::vector<int64_t> offset;
  for (const BuiltLink& link : links) {
    internal.push_back(link.internal);
    external.push_back(link.external);
    offset.push_back(link.offset);
  }
  add_arg(e, prefix + "link_internal", internal);
  add_arg(e, prefix + "link_external", external);
  add_arg(e, prefix + "link_offset", offset);
}

void add_states(Expansion& e, const InputIndex& inputs) {
  std::vector<std::string> states;
  std::vector<int64_t> initial, ranks, sizes;
  for (int i = 0; i < e.def.state_size(); ++i) {
    const StateLink& s = e.def.state(i);
    states.push_back(e.state_name(i));
    initial.push_back(s.has_initial() ? inputs.at(s.initial()) : -1);
    ranks.push_back(s.size_size());
    sizes.insert(sizes.end(), s.size().begin(), s.size().end());
  }
  add_arg(e, "recurrent_states", states);
  add_arg(e, "initial_recurrent_state_ids", initial);
  if (sizes.empty()) return;
  add_arg(e, "zero_state_ranks", ranks);
  add_arg(e, "zero_state_sizes", sizes);
}

void add_views(Expansion& e) {
  std::vector<std::string> states, outputs;
  std::vector<int64_t> offsets;
  for (const BuiltView& view : e.views) {
    states.push_back(view.state);
    outputs.push_back(view.output);
    offsets.push_back(view.offset);
  }
  add_arg(e, "alias_src", states);
  add_arg(e, "alias_dst", outputs);
  add_arg(e, "alias_offset", offsets);
}

void add_extensions(Expansion& e, const InputIndex& inputs) {
  std::vector<int64_t> sequences;
  for (int i = 1; i < e.def.sequence_size(); ++i) sequences.push_back(inputs.at(e.def.sequence(i).outer()));
  if (!sequences.empty()) add_arg(e, "more_sequences", sequences);
  std::vector<std::string> internal, outputs, gradients;
  for (const BuiltOutput& output : e.outputs) {
    internal.push_back(output.internal);
    outputs.push_back(output.output);
    gradients.push_back(output.gradient);
  }
  if (!internal.empty()) {
    add_arg(e, "output_internal", internal);
    add_arg(e, "output_external", outputs);
    add_arg(e, "output_grads", gradients);
  }
  if (e.def.reverse()) add_arg(e, "reverse", true);
  if (e.def.has_lengths()) add_arg(e, "sequence_lengths_id", inputs.at(e.def.lengths()));
}

void add_backward(Expansion& e, const InputIndex& inputs) {
  std::vector<int64_t> params, with_grads;
  std::vector<std::string> param_grads;
  for (const auto& [reference, gradient] : e.params) {
    params.push_back(inputs.at(reference));
    param_grads.push_back(gradient);
  }
  for (size_t i = 0; i < e.views.size() + e.outputs.size(); ++i) with_grads.push_back(static_cast<int64_t>(i));
  add_arg(e, "backward_step_net", e.backward);
  add_links(e, "backward_", e.backward_links);
  add_arg(e, "param", params);
  add_arg(e, "param_grads", param_grads);
  add_arg(e, "outputs_with_grads", with_grads);
  add_arg(e, "recompute_blobs_on_backward",
          std::vector<std::string>(e.def.recompute().begin(), e.def.recompute().end()));
}

// Recurrent networks in a net after which nothing is differentiated run as those without a backward step net.
// The last output is what a gradient or a fetcher of step blobs reads.
void drop_backward_step_nets(NetDef& net) {
  std::set<std::string> read;
  for (const OperatorDef& op : net.op()) read.insert(op.input().begin(), op.input().end());
  for (OperatorDef& op : *net.mutable_op()) {
    if (op.type() != kRecurrentNetwork || op.output_size() == 0 || read.count(op.output(op.output_size() - 1)) > 0)
      continue;
    auto& args = *op.mutable_arg();
    args.erase(
        std::remove_if(args.begin(), args.end(), [](const Argument& arg) { return arg.name() == "backward_step_net"; }),
        args.end());
  }
}

REGISTER(full_form) {
  return entry([] { add_forward_only(drop_backward_step_nets); });
}

}  // namespace

void write_full_form(Expansion& e) {
  const InputIndex inputs = order_inputs(e);
  order_outputs(e);
  add_arg(e, "step_net", e.step);
  add_arg(e, "timestep", e.def.timestep());
  add_states(e, inputs);
  add_links(e, "", e.links);
  add_views(e);
  add_extensions(e, inputs);
  if (!e.def.forward_only()) add_backward(e, inputs);
  e.op.ClearExtension(recurrent);
}

}  // namespace stepnet
