// The backward step net of a short form, derived from its operators' derivatives, and the links of its gradients. See
// recurrent/form/expansion.h.
#include <algorithm>
#include <map>

#include "core/net/versioned_net.h"
#include "core/operator/op_spec.h"
#include "core/passes/gradients.h"
#include "recurrent/form/expansion.h"
#include "recurrent/form/net_storage.h"
#include "recurrent/step/counters.h"

namespace stepnet {
namespace {

// Of networks in a backward step net that is not run, the names of what they read and write.
void forget_inner_nets(OperatorDef& op) {
  for (Argument& arg : *op.mutable_arg()) {
    if (arg.name() != "backward_step_net") continue;
    for (OperatorDef& inner : *arg.mutable_n()->mutable_op())
      if (op_spec(inner.type()).blob_kernel) inner.clear_arg();
  }
}

// A nested network keeps what its gradient reads of one timestep alone, so it runs again. What it writes to places of
// the outer network is still there. That it has a backward step net tells it what to keep; the gradient has its own to
// run. With both in both, networks within networks would take the power of their depth.
OperatorDef nested_again(Expansion& e, OperatorDef op) {
  forget_inner_nets(op);
  for (std::string& name : *op.mutable_output()) {
    const bool is_output =
        std::any_of(e.outputs.begin(), e.outputs.end(), [&](const BuiltOutput& o) { return o.internal == name; });
    if (is_output || contains(e.state_output, name)) name = e.fresh(name + "_again");
  }
  return op;
}

// Puts operators of the step net in front of the backward one, to make blobs that are not kept once more.
class Recomputation {
 public:
  explicit Recomputation(Expansion& e)
      : e_(e), wanted_(e.def.recompute().begin(), e.def.recompute().end()), versions_(e.step, true) {}

  void add() {
    for (const std::string& name : wanted_)
      require(e_.written.count(name) > 0, "\"recompute\" names \"{}\", which the step net does not write.{}", name,
              suggest(name, {e_.written.begin(), e_.written.end()}));
    for (int i = 0; i < versions_.size(); ++i) {
      const OperatorDef& op = e_.step.op(i);
      const bool nested = op_spec(op.type()).blob_kernel != nullptr;
      if (!nested && std::ranges::none_of(op.output(), [&](const auto& o) { return wanted_.count(o) > 0; })) continue;
      for (const std::string& output : op.output())
        require(nested || wanted_.count(output) > 0,
                "\"recompute\" has an output of {} but not \"{}\", which it writes too", op.type(), output);
      OperatorDef again = with_inputs_of(i);
      *e_.backward.add_op() = nested ? nested_again(e_, std::move(again)) : std::move(again);
    }
  }

 private:
  // What the operator read may have been overwritten by the end of the step: then that is made once more, too, under a
  // name of its own. A blob that is made again anyway has its versions in the same order as in the step.
  OperatorDef with_inputs_of(int index) {
    OperatorDef op = e_.step.op(index);
    for (int i = 0; i < op.input_size(); ++i) {
      const VersionedBlob& read = versions_.op(index).inputs[i];
      const bool is_there =
          op.input(i).empty() || wanted_.count(op.input(i)) > 0 || versions_.last(op.input(i)) == read;
      if (!is_there) op.set_input(i, made_again(read));
    }
    return op;
  }

  const std::string& made_again(const VersionedBlob& blob) {
    const auto known = again_.find(blob);
    if (known != again_.end()) return known->second;
    for (int i = versions_.size(); i-- > 0;) {
      const std::vector<VersionedBlob>& made = versions_.op(i).outputs;
      if (std::ranges::find(made, blob) == made.end()) continue;
      OperatorDef op = with_inputs_of(i);
      op.SetExtension(draws_as, std::string(draw_name(e_.step.op(i))));
      for (int o = 0; o < op.output_size(); ++o) {
        if (op.output(o).empty()) continue;
        op.set_output(o, e_.fresh(op.output(o) + "_before"));
        again_[made[o]] = op.output(o);
      }
      *e_.backward.add_op() = std::move(op);
      return again_.at(blob);
    }
    fail("\"{}\" is to be computed again, but what it was before an operator has written it is not known", blob.name);
  }

  Expansion& e_;
  const Names wanted_;
  const VersionedNet versions_;
  std::map<VersionedBlob, std::string> again_;
};

// By state: whether an output of the operator shows it, or depends on it in this timestep or a later one. To others no
// gradient ever arrives.
std::vector<bool> states_that_are_seen(const Expansion& e) {
  const NetStorage storage(e.step);
  Names needed;
  const auto need = [&](const std::string& name) { return needed.insert(storage.of(name)).second; };
  for (const BuiltOutput& output : e.outputs) need(output.internal);
  const size_t count = e.state_output.size();
  std::vector<bool> seen(count);
  for (size_t i = 0; i < count; ++i)
    seen[i] = std::ranges::any_of(
        e.views, [&](const BuiltView& view) { return view.state == e.state_name(static_cast<int>(i)); });
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < count; ++i) {
      seen[i] = seen[i] || needed.count(storage.of(e.def.state(static_cast<int>(i)).input())) > 0;
      if (seen[i]) more = need(e.state_output[i]) || more;
    }
    for (int i = e.step.op_size() - 1; i >= 0; --i) {
      const OperatorDef& op = e.step.op(i);
      if (std::ranges::any_of(op.output(), [&](const auto& name) { return needed.count(storage.of(name)) > 0; }))
        for (const std::string& name : op.input()) more = need(name) || more;
    }
  }
  return seen;
}

GradientRequest request_of(Expansion& e) {
  GradientRequest request;
  const std::vector<bool> seen = states_that_are_seen(e);
  for (size_t i = 0; i < seen.size(); ++i) {
    const std::string given = e.state_output[i] + "_grad";
    e.taken.insert(given);
    if (seen[i]) request.targets.emplace_back(e.state_output[i], given);
  }
  for (BuiltOutput& output : e.outputs) {
    output.gradient = output.internal + "_grad";
    e.taken.insert(output.gradient);
    request.targets.emplace_back(output.internal, output.gradient);
  }
  for (const StateLink& s : e.def.state()) request.wanted.insert(s.input());
  for (const SequenceLink& s : e.def.sequence()) request.wanted.insert(s.inner());
  request.wanted.insert(e.references.begin(), e.references.end());
  return request;
}

// Where nothing that the step net gives depends on what it reads, all gradients are zero and no operator is needed.
GradientResult gradient_operators(NetDef& net, const GradientRequest& request) {
  const NetDef forward = net;
  try {
    return add_gradient_operators(net, request);
  } catch (const NoDependence&) {
    net = forward;
    GradientResult none;
    none.first_gradient_op = net.op_size();
    return none;
  }
}

GradientResult derive(Expansion& e) {
  NetDef both = e.step;
  GradientRequest request = request_of(e);
  request.fixed_storages = true;
  // What arrives for an output belongs to others, and is not written; a state's is ours.
  for (const BuiltOutput& output : e.outputs) both.add_external_input(output.gradient);
  GradientResult result = gradient_operators(both, request);
  e.backward.set_name(e.scope + "/backward_step");
  Recomputation(e).add();
  for (int i = result.first_gradient_op; i < both.op_size(); ++i) {
    OperatorDef& op = *e.backward.add_op();
    op = both.op(i);
    // The gradient of a write that the builder added is the builder's too.
    const bool copies = op.type() == op_with_role(Role::copy).type;
    for (const std::string& name : e.spread)
      if (copies && op.input(0) == name + "_grad") op.set_name(kSpreadName);
    e.taken.insert(both.op(i).output().begin(), both.op(i).output().end());
  }
  return result;
}

const std::string& dense_gradient(const GradientResult& result, const std::string& blob) {
  static const std::string none;
  const auto it = result.gradients.find(blob);
  if (it == result.gradients.end()) return none;
  if (it->second.is_sparse())
    throw Error(fmt::format("the gradient of \"{}\" in the step net is sparse", blob),
                "give the operator that reads it the argument dense_gradient: 1");
  return it->second.dense;
}

// Gradients go to their destinations: each is linked once, and written once more for every other destination.
class GradientLinks {
 public:
  GradientLinks(Expansion& e, const GradientResult& result) : e_(e), result_(result) {
    for (const OperatorDef& op : e.backward.op()) written_.insert(op.output().begin(), op.output().end());
  }

  // What arrives from outside or from the timestep after.
  void give(const std::string& gradient, const std::string& external, int offset) {
    e_.backward_links.push_back({gradient, external, offset});
    linked_.insert(gradient);
  }

  void lead(const std::string& blob, const std::string& external, int offset) {
    std::string gradient = dense_gradient(result_, blob);
    if (gradient.empty()) return;
    if (written_.count(gradient) == 0 || !linked_.insert(gradient).second) {
      const std::string own = e_.fresh(blob + "_grad");
      *e_.backward.add_op() = copy_op(gradient, own);
      gradient = own;
      linked_.insert(own);
    }
    e_.backward_links.push_back({gradient, external, offset});
  }

  void add_up(const std::string& reference) {
    std::string gradient = dense_gradient(result_, reference);
    if (gradient.empty()) return;
    if (written_.count(gradient) == 0 || !linked_.insert(gradient).second) {
      OperatorDef alias;
      alias.set_type(op_with_role(Role::alias).type);
      alias.add_input(gradient);
      gradient = e_.fresh(reference + "_grad");
      alias.add_output(gradient);
      *e_.backward.add_op() = alias;
    }
    e_.params.emplace_back(reference, gradient);
  }

 private:
  Expansion& e_;
  const GradientResult& result_;
  Names written_, linked_;
};

void link_gradients(Expansion& e, const GradientResult& result) {
  GradientLinks links(e, result);
  for (int i = 0; i < e.def.state_size(); ++i)
    links.give(e.state_output[i] + "_grad", e.state_name(i) + "_grad", e.row_after());
  for (const BuiltOutput& output : e.outputs) links.give(output.gradient, output.output + "_grad", 0);
  for (int i = 0; i < e.def.state_size(); ++i)
    links.lead(e.def.state(i).input(), e.state_name(i) + "_grad", e.row_before());
  for (const SequenceLink& s : e.def.sequence()) links.lead(s.inner(), s.outer() + "_grad", 0);
  for (const std::string& reference : e.references) links.add_up(reference);
}

void declare_backward_net(Expansion& e) {
  Names given, written;
  auto add = [&](const std::string& name) {
    if (!name.empty() && given.insert(name).second) e.backward.add_external_input(name);
  };
  for (const OperatorDef& op : e.backward.op()) {
    for (const std::string& name : op.input())
      if (written.count(name) == 0) add(name);
    written.insert(op.output().begin(), op.output().end());
  }
  for (const std::string& output : e.state_output) add(output + "_grad");
  for (const BuiltOutput& output : e.outputs) add(output.gradient);
}

}  // namespace

void build_backward(Expansion& e) {
  if (e.def.forward_only()) return;
  const GradientResult result = derive(e);
  link_gradients(e, result);
  declare_backward_net(e);
}

}  // namespace stepnet
