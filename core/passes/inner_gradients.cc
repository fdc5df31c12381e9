#include "core/passes/inner_gradients.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/net/dataflow.h"
#include "core/operator/in_place.h"
#include "core/passes/gradient_sums.h"
#include "stepnet/arguments.h"
#include "stepnet/bound_op.h"
#include "stepnet/error.h"
#include "stepnet/gradients.h"
#include "stepnet/operator.h"

namespace stepnet {
namespace {

using Names = std::set<std::string>;

bool stands_for_gradients(const OperatorDef& op) { return op.type() == kGradients; }

// Of the net and all nets that its operators hold.
void take_names(const NetDef& net, Names& names) {
  names.insert(net.external_input().begin(), net.external_input().end());
  names.insert(net.external_output().begin(), net.external_output().end());
  for (const OperatorDef& op : net.op()) {
    names.insert(op.input().begin(), op.input().end());
    names.insert(op.output().begin(), op.output().end());
    for (const Argument& arg : op.arg()) {
      if (arg.has_n()) take_names(arg.n(), names);
      for (const NetDef& inner : arg.nets()) take_names(inner, names);
    }
  }
}

// What a gradient is called without the order, "g2/", that the names of gradients begin with.
std::string without_order(const std::string& name) {
  const size_t slash = name.find('/');
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  const bool has_order = slash != std::string::npos && slash > 1 && name[0] == 'g' &&
                         std::all_of(name.begin() + 1, name.begin() + static_cast<std::ptrdiff_t>(slash), is_digit);
  return has_order ? name.substr(slash + 1) : name;
}

// One operator, while it is replaced.
class Block {
 public:
  // `before`: the net up to the operator; `taken`: names that are not free.
  Block(const NetDef& before, const OperatorDef& op, bool step_net, Names& taken)
      : net_(before), op_(op), step_net_(step_net), taken_(taken) {
    take_names(before, known_);
  }

  // The net with what the operator stands for.
  NetDef expand() {
    require(op_.output_size() == op_.input_size() - 1,
            "there must be as many outputs as blobs to differentiate with respect to, behind the loss, but there are "
            "{} and {}",
            op_.output_size(), op_.input_size() - 1);
    check_blobs();
    differentiate();
    std::vector<std::string> made;
    for (int i = 1; i < op_.input_size(); ++i) made.push_back(made_dense(op_.input(i)));
    rename(made);
    return std::move(net_);
  }

 private:
  void check_blobs() const;
  void check_types() const;
  void differentiate();
  std::string made_dense(const std::string& blob);
  std::set<std::string> shared() const;
  std::map<std::string, std::string> new_names(const std::vector<std::string>& made);
  void rename(const std::vector<std::string>& made);
  std::string fresh(const std::string& name);

  NetDef net_;
  const OperatorDef& op_;
  const bool step_net_;
  Names& taken_;
  Names known_;
  GradientResult result_;
};

// A name means what it holds in this place.
void Block::check_blobs() const {
  const BoundNet bound(net_, {.fixed_storages = step_net_});
  for (const std::string& name : op_.input()) {
    const int blob = bound.flow.find(name);
    if (blob < 0 && known_.count(name) == 0)
      fail("there is no blob \"{}\" before it.{}", name, suggest(name, bound.flow.names()));
    if (blob < 0 || bound.flow.first(blob) < 0 || bound.flow.first(blob) == bound.flow.last(blob)) continue;
    const BoundOp& writer = bound.ops[bound.flow.last_writer(blob)];
    throw Error(fmt::format("\"{}\" comes from outside, and operator {} ({}) has overwritten it, so that which of its "
                            "values is meant is not known",
                            name, writer.index, writer.def.type()),
                fmt::format("let {} write to another blob", writer.def.type()));
  }
}

// The gradient of a Cast that does not say what it casts from has the type of what it has cast, integers too.
void Block::check_types() const {
  for (const DifferentiatedOp& d : result_.differentiated) {
    const OperatorDef& op = net_.op(d.op);
    if (op_spec(op.type()).role == Role::cast && !find_arg(op, "from_type"))
      throw Error(fmt::format("\"{}\" depends on \"{}\" by a Cast, whose input may be integers, which have no gradient",
                              op_.input(0), op.input(0)),
                  "give Cast the argument \"from_type\", or put StopGradient before it");
  }
}

void Block::differentiate() {
  GradientRequest request;
  request.targets = {{op_.input(0), ""}};
  request.fixed_storages = step_net_;
  request.wanted.insert(op_.input().begin() + 1, op_.input().end());
  const auto refuse = [&](const std::string& blob) {
    throw Error(fmt::format("the loss \"{}\" does not depend on \"{}\"", op_.input(0), blob),
                "leave that out, or compute the loss from it, by operators that have a gradient");
  };
  if (net_.op_size() == 0) refuse(*request.wanted.begin());
  // Then names are written once each, as those of all gradients of gradients.
  const bool was_gradient = net_.op(0).is_gradient_op();
  net_.mutable_op(0)->set_is_gradient_op(true);
  try {
    result_ = add_gradient_operators(net_, request);
  } catch (const NoDependence&) {
    refuse(*request.wanted.begin());
  }
  if (!was_gradient) net_.mutable_op(0)->clear_is_gradient_op();
  for (const std::string& blob : request.wanted) {
    const auto gradient = result_.gradients.find(blob);
    if (gradient == result_.gradients.end() || !gradient->second.defined()) refuse(blob);
  }
  check_types();
}

// The name of the gradient, after rows of a sparse one are written out.
std::string Block::made_dense(const std::string& blob) {
  const GradientName& gradient = result_.gradients.at(blob);
  if (!gradient.is_sparse()) return gradient.dense;
  OperatorDef& op = append_gradient_op(net_, op_with_role(Role::rows_to_dense).type, op_);
  for (const std::string& name : {gradient.indices, gradient.values, blob}) op.add_input(name);
  op.add_output(fresh(blob + "_grad_dense"));
  return op.output(0);
}

// Names that others may show the bytes of, and those that were written more than once.
std::set<std::string> Block::shared() const {
  std::set<std::string> shared, written;
  for (int i = result_.first_gradient_op; i < net_.op_size(); ++i) {
    const OperatorDef& op = net_.op(i);
    for (int o = 0; o < op.output_size(); ++o) {
      if (!written.insert(op.output(o)).second) shared.insert(op.output(o));
      const int source = aliased_input(op_spec(op.type()), o);
      if (source >= 0) shared.insert({op.input(source), op.output(o)});
    }
  }
  return shared;
}

// The operator's outputs are blobs of their own: a gradient is called so only if nothing else has the name or the
// bytes.
std::map<std::string, std::string> Block::new_names(const std::vector<std::string>& made) {
  const std::set<std::string> shared = this->shared();
  std::map<std::string, std::string> names;
  for (size_t i = 0; i < made.size(); ++i)
    if (const std::string& output = op_.output(static_cast<int>(i));
        known_.count(output) == 0 && shared.count(made[i]) == 0)
      names.emplace(made[i], output);
  for (int i = result_.first_gradient_op; i < net_.op_size(); ++i)
    for (const std::string& name : net_.op(i).output())
      if (!name.empty() && names.count(name) == 0) names[name] = fresh(name);
  return names;
}

void Block::rename(const std::vector<std::string>& made) {
  const std::map<std::string, std::string> names = new_names(made);
  const auto rename = [&](std::string& name) {
    if (const auto found = names.find(name); found != names.end()) name = found->second;
  };
  for (int i = result_.first_gradient_op; i < net_.op_size(); ++i) {
    OperatorDef& op = *net_.mutable_op(i);
    op.clear_is_gradient_op();
    op.clear_name();
    std::ranges::for_each(*op.mutable_input(), rename);
    std::ranges::for_each(*op.mutable_output(), rename);
  }
  for (size_t i = 0; i < made.size(); ++i) {
    const std::string& output = op_.output(static_cast<int>(i));
    if (names.at(made[i]) == output) continue;
    OperatorDef& copy = append_gradient_op(net_, op_with_role(Role::copy).type, op_);
    copy.clear_is_gradient_op();
    copy.clear_name();
    copy.add_input(names.at(made[i]));
    copy.add_output(output);
  }
}

std::string Block::fresh(const std::string& name) {
  const std::string base = fmt::format("{}/{}", op_.output(0), without_order(name));
  std::string free = base;
  for (int n = 1; !taken_.insert(free).second; ++n) free = fmt::format("{}_{}", base, n);
  return free;
}

void expand_net(NetDef& net, bool step_net, Names& taken);

void expand_inside(OperatorDef& op, Names& taken) {
  for (Argument& arg : *op.mutable_arg()) {
    if (arg.has_n()) expand_net(*arg.mutable_n(), false, taken);
    for (NetDef& inner : *arg.mutable_nets()) expand_net(inner, false, taken);
  }
}

void expand_net(NetDef& net, bool step_net, Names& taken) {
  if (!has_inner_gradients(net)) {
    for (OperatorDef& op : *net.mutable_op()) expand_inside(op, taken);
    return;
  }
  NetDef done;  // without what is of no use to derivatives
  done.set_name(net.name());
  *done.mutable_external_input() = net.external_input();
  if (net.has_device_option()) *done.mutable_device_option() = net.device_option();
  for (int i = 0; i < net.op_size(); ++i) {
    OperatorDef& op = *net.mutable_op(i);
    if (!stands_for_gradients(op)) {
      expand_inside(op, taken);
      done.add_op()->Swap(&op);
      continue;
    }
    const BoundOp bound = bind_op(op, net.name(), i);
    try {
      done = Block(done, op, step_net, taken).expand();
    } catch (Error& e) {
      if (e.has("op"))
        e.add("in", fmt::format("what operator {} ({}) of net \"{}\" stands for", i, op.type(), net.name()));
      else
        add_op_context(e, bound);
      throw;
    }
  }
  net.mutable_op()->Swap(done.mutable_op());
}

}  // namespace

bool has_inner_gradients(const NetDef& net) { return std::ranges::any_of(net.op(), stands_for_gradients); }

void expand_inner_gradients(NetDef& net, bool step_net) {
  Names taken;
  take_names(net, taken);
  expand_net(net, step_net, taken);
}

}  // namespace stepnet
