#include "core/passes/inner_gradients.h"

#include <algorithm>
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

// Blobs of the operator whose names its arguments have, too.
Names in_arguments(const OperatorDef& op) {
  Names names;
  if (!op_spec(op.type()).blob_kernel) return names;
  OperatorDef without = op;
  without.clear_input();
  without.clear_output();
  const std::string text = without.SerializeAsString();
  for (const auto* all : {&op.input(), &op.output()})
    for (const std::string& name : *all)
      if (!name.empty() && text.find(name) != text.npos) names.insert(name);
  return names;
}

// One operator, while it is replaced.
class Block {
 public:
  // `before`: the net up to the operator; `prefix`: of names that are free.
  Block(const NetDef& before, const OperatorDef& op, bool step_net, std::string prefix)
      : net_(before), op_(op), step_net_(step_net), prefix_(std::move(prefix)) {
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
    give_names(made);
    return std::move(net_);
  }

 private:
  void check_blobs() const;
  void check_types() const;
  void differentiate();
  std::string made_dense(const std::string& blob);
  std::map<std::string, std::string> bytes() const;
  void give_names(const std::vector<std::string>& made);

  NetDef net_;
  const OperatorDef& op_;
  const bool step_net_;
  const std::string prefix_;
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
  try {
    result_ = add_gradient_operators_under(net_, request, prefix_);
  } catch (const NoDependence&) {
    refuse(*request.wanted.begin());
  }
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
  op.add_output(prefix_ + blob + "_grad_dense");
  return op.output(0);
}

// By name of what was made: the name under which its bytes were written; "" for what was written again, and for what
// networks have among their arguments.
std::map<std::string, std::string> Block::bytes() const {
  std::map<std::string, std::string> bytes;
  for (int i = result_.first_gradient_op; i < net_.op_size(); ++i) {
    const OperatorDef& op = net_.op(i);
    const OpSpec& spec = op_spec(op.type());
    for (int o = 0; o < op.output_size(); ++o) {
      const int source = aliased_input(spec, o);
      const std::string& of = source < 0 ? op.output(o) : op.input(source);
      const auto known = bytes.find(of);
      const std::string root = known == bytes.end() ? of : known->second;
      if (!bytes.emplace(op.output(o), root).second) bytes[op.output(o)] = "";
    }
    for (const std::string& name : in_arguments(op)) bytes[name] = "";
  }
  return bytes;
}

// The operator's outputs are blobs of their own: a gradient gets the name of one only if none of the others, and no
// blob that was there before, has the name or the bytes.
void Block::give_names(const std::vector<std::string>& made) {
  const std::map<std::string, std::string> bytes = this->bytes();
  Names given = known_;
  given.insert("");
  std::map<std::string, std::string> names;
  for (size_t i = 0; i < made.size(); ++i) {
    const std::string& output = op_.output(static_cast<int>(i));
    if (known_.count(output) == 0 && given.insert(bytes.at(made[i])).second) names.emplace(made[i], output);
  }
  const auto rename = [&](std::string& name) {
    if (const auto found = names.find(name); found != names.end()) name = found->second;
  };
  for (int i = result_.first_gradient_op; i < net_.op_size(); ++i) {
    OperatorDef& op = *net_.mutable_op(i);
    std::ranges::for_each(*op.mutable_input(), rename);
    std::ranges::for_each(*op.mutable_output(), rename);
  }
  for (size_t i = 0; i < made.size(); ++i) {
    const auto named = names.find(made[i]);
    const std::string& name = named == names.end() ? made[i] : named->second;
    const std::string& output = op_.output(static_cast<int>(i));
    if (name == output) continue;
    OperatorDef& copy = append_gradient_op(net_, op_with_role(Role::copy).type, op_);
    copy.add_input(name);
    copy.add_output(output);
  }
  for (int i = result_.first_gradient_op; i < net_.op_size(); ++i) {
    OperatorDef& op = *net_.mutable_op(i);
    op.clear_is_gradient_op();
    if (op.name().empty()) op.clear_name();
  }
}

// Beginnings of names that nothing in a net, nor in the nets inside it, mentions.
class Prefixes {
 public:
  explicit Prefixes(const NetDef& net) : net_(net) {}

  // The net may not be changed before the first call.
  std::string free(const std::string& base) {
    if (text_.empty()) text_ = net_.SerializeAsString();
    std::string prefix = base + "/";
    const auto is_taken = [&] { return text_.find(prefix) != text_.npos || !given_.insert(prefix).second; };
    for (int n = 1; is_taken(); ++n) prefix = fmt::format("{}_{}/", base, n);
    return prefix;
  }

 private:
  const NetDef& net_;
  std::string text_;  // few nets need it
  Names given_;
};

void expand_net(NetDef& net, bool step_net, Prefixes& prefixes);

void expand_inside(OperatorDef& op, Prefixes& prefixes) {
  for (Argument& arg : *op.mutable_arg()) {
    if (arg.has_n()) expand_net(*arg.mutable_n(), false, prefixes);
    for (NetDef& inner : *arg.mutable_nets()) expand_net(inner, false, prefixes);
  }
}

void expand_net(NetDef& net, bool step_net, Prefixes& prefixes) {
  if (!has_inner_gradients(net)) {
    for (OperatorDef& op : *net.mutable_op()) expand_inside(op, prefixes);
    return;
  }
  NetDef done;  // without what is of no use to derivatives
  done.set_name(net.name());
  *done.mutable_external_input() = net.external_input();
  if (net.has_device_option()) *done.mutable_device_option() = net.device_option();
  for (int i = 0; i < net.op_size(); ++i) {
    OperatorDef& op = *net.mutable_op(i);
    if (!stands_for_gradients(op)) {
      expand_inside(op, prefixes);
      *done.add_op() = op;
      continue;
    }
    const BoundOp bound = bind_op(op, net.name(), i);
    try {
      done = Block(done, op, step_net, prefixes.free(op.output(0))).expand();
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

std::string free_prefix(const NetDef& net, const std::string& base) {
  const std::string text = net.SerializeAsString();
  std::string prefix = base + "/";
  for (int n = 1; text.find(prefix) != text.npos; ++n) prefix = fmt::format("{}_{}/", base, n);
  return prefix;
}

bool has_inner_gradients(const NetDef& net) { return std::ranges::any_of(net.op(), stands_for_gradients); }

void expand_inner_gradients(NetDef& net, bool step_net) {
  Prefixes prefixes(net);
  expand_net(net, step_net, prefixes);
}

}  // namespace stepnet
