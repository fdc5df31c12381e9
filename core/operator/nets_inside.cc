#include "core/operator/nets_inside.h"

#include <set>

namespace stepnet {
namespace {

using Renames = std::map<std::string, std::string>;

void rename(std::string* name, const Renames& names) {
  if (const auto found = names.find(*name); found != names.end()) *name = found->second;
}

void rename_in_net(NetDef& net, Renames names);

// The step net's blobs hide those outside that have the same name.
void rename_in_step_net(RecurrentDef& def, Renames names) {
  for (const SequenceLink& sequence : def.sequence()) names.erase(sequence.inner());
  for (const StateLink& state : def.state()) names.erase(state.input());
  names.erase(def.timestep());
  rename_in_net(*def.mutable_step_net(), std::move(names));
}

void rename_in_net(NetDef& net, Renames names) {
  for (const OperatorDef& op : net.op())
    for (const std::string& name : op.output()) names.erase(name);
  for (std::string& name : *net.mutable_external_input()) rename(&name, names);
  for (OperatorDef& op : *net.mutable_op()) {
    for (std::string& name : *op.mutable_input()) rename(&name, names);
    for (Argument& arg : *op.mutable_arg()) {
      if (arg.has_n()) rename_in_net(*arg.mutable_n(), names);
      for (NetDef& inner : *arg.mutable_nets()) rename_in_net(inner, names);
    }
    if (op.HasExtension(recurrent)) rename_in_short_form(*op.MutableExtension(recurrent), names);
  }
}

}  // namespace

bool has_short_form(const OperatorDef& op) { return op.HasExtension(recurrent); }

void rename_in_short_form(RecurrentDef& def, const Renames& names) {
  rename_in_step_net(def, names);
  for (SequenceLink& sequence : *def.mutable_sequence()) rename(sequence.mutable_outer(), names);
  for (StateLink& state : *def.mutable_state()) {
    if (state.has_initial()) rename(state.mutable_initial(), names);
    if (state.has_all()) rename(state.mutable_all(), names);
    if (state.has_last()) rename(state.mutable_last(), names);
  }
  for (OutputLink& output : *def.mutable_output()) rename(output.mutable_outer(), names);
  if (def.has_lengths()) rename(def.mutable_lengths(), names);
}

}  // namespace stepnet
