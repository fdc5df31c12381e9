// The nets inside a net: in arguments, in step nets of the short form, in a model's initialisers, and in definitions of
// operators; and what passes
// over any net ask of networks in short form.
//
// Threads: pure functions. Nesting is bounded by the reader (100 messages), so recursion is safe.
#pragma once

#include <map>
#include <string>

#include "core/operator/extensions.h"
#include "stepnet/proto/recurrent.pb.h"

namespace stepnet {

// Calls `fn` for the nets that define operators of the net, and for the gradient nets among their arguments.
template <class Fn>
void for_each_definition(NetDef& net, const Fn& fn) {
  for (Argument& arg : *net.mutable_arg()) {
    if (!holds_definitions(arg)) continue;
    for (NetDef& definition : *arg.mutable_nets()) {
      fn(definition);
      for (Argument& field : *definition.mutable_arg())
        if (field.has_n()) fn(*field.mutable_n());
    }
  }
}

// Calls `fn` for the net and then for every net inside it, at any depth.
template <class Fn>
void for_each_net(NetDef& net, const Fn& fn) {
  fn(net);
  for (OperatorDef& op : *net.mutable_op()) {
    for (Argument& arg : *op.mutable_arg()) {
      if (arg.has_n()) for_each_net(*arg.mutable_n(), fn);
      for (NetDef& inner : *arg.mutable_nets()) for_each_net(inner, fn);
    }
    if (op.HasExtension(recurrent) && op.GetExtension(recurrent).has_step_net())
      for_each_net(*op.MutableExtension(recurrent)->mutable_step_net(), fn);
  }
  if (net.HasExtension(model) && net.GetExtension(model).has_init())
    for_each_net(*net.MutableExtension(model)->mutable_init(), fn);
  for_each_definition(net, [&](NetDef& definition) { for_each_net(definition, fn); });
}

// Lets the net, the nets in it and their operators ask for the CPU where they ask for a device.
inline void use_cpu(NetDef& net) {
  for_each_net(net, [](NetDef& inner) {
    if (inner.has_device_option()) inner.mutable_device_option()->set_device_type(CPU);
    for (OperatorDef& op : *inner.mutable_op())
      if (op.has_device_option()) op.mutable_device_option()->set_device_type(CPU);
  });
}

// True if the operator is a network in short form, which is no operator before it is expanded.
bool has_short_form(const OperatorDef& op);

// Blobs of the net around the operator get the names that the map has for them: sequences, states, outputs, lengths,
// and what the step net, or one inside it, reads by name. Names that stand for blobs of the step net stay.
void rename_in_short_form(RecurrentDef& def, const std::map<std::string, std::string>& names);

}  // namespace stepnet
