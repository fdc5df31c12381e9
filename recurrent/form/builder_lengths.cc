// Samples of different lengths. In the timesteps beyond a sample's length its rows of sequences and outputs are zero,
// and its states keep what they were: one operator for each sequence, state and output of the step net. See
// recurrent/form/expansion.h.
#include "core/operator/op_spec.h"
#include "recurrent/form/expansion.h"

namespace stepnet {
namespace {

OperatorDef mask_op(const Expansion& e, const std::string& from, const std::string& to, const std::string& beyond) {
  OperatorDef op;
  op.set_type(op_with_role(Role::mask_by_length).type);
  for (const std::string& name : {from, e.def.lengths(), e.def.timestep()}) op.add_input(name);
  if (!beyond.empty()) op.add_input(beyond);
  op.add_output(to);
  return op;
}

std::string masked(Expansion& e, const std::string& blob, const std::string& beyond) {
  const std::string name = e.fresh(blob + "_masked");
  *e.step.add_op() = mask_op(e, blob, name, beyond);
  e.written.insert(name);
  return name;
}

}  // namespace

void mask_by_lengths(Expansion& e) {
  if (!e.def.has_lengths()) return;
  NetDef step = e.step;
  step.clear_op();
  for (SequenceLink& s : *e.def.mutable_sequence()) {
    const std::string row = e.fresh(s.inner() + "_row");
    *step.add_op() = mask_op(e, row, s.inner(), "");
    e.written.insert(s.inner());
    if (step.external_input_size() > 0) step.add_external_input(row);
    s.set_inner(row);
  }
  if (step.external_input_size() > 0) step.add_external_input(e.def.lengths());
  step.mutable_op()->MergeFrom(e.step.op());
  e.step = std::move(step);
  for (OutputLink& o : *e.def.mutable_output()) o.set_inner(masked(e, o.inner(), ""));
  for (StateLink& s : *e.def.mutable_state()) s.set_output(masked(e, s.output(), s.input()));
}

}  // namespace stepnet
