#include "recurrent/form/backward_reads.h"

#include <map>

#include "core/net/dataflow.h"
#include "stepnet/bound_op.h"

namespace stepnet {
namespace {

const OpSpec& spec_in_net(const NetDef& net, int index) {
  try {
    return op_spec(net.op(index).type());
  } catch (Error& e) {
    BoundOp place;
    place.def = net.op(index);
    place.net_name = net.name();
    place.index = index;
    add_op_context(e, place);
    throw;
  }
}

}  // namespace

BackwardReads backward_reads(const RecurrentSpec& spec) {
  BackwardReads reads;
  std::set<std::string> written;
  for (int index = 0; index < spec.backward_net.op_size(); ++index) {
    const OperatorDef& op = spec.backward_net.op(index);
    const OpSpec& schema = spec_in_net(spec.backward_net, index);
    const std::vector<bool> values = element_reads(schema, op);
    for (int i = 0; i < op.input_size(); ++i)
      if (written.count(op.input(i)) == 0) (values[i] ? reads.values : reads.shapes).insert(op.input(i));
    written.insert(op.output().begin(), op.output().end());
  }
  // A parameter's gradient may be a forward value as it is, read by no operator.
  for (const ParamSpecGrad& p : spec.params)
    if (written.count(p.grad) == 0) reads.values.insert(p.grad);
  for (const std::string& name : reads.values) reads.shapes.erase(name);
  return reads;
}

std::vector<Link> links_for_backward(const RecurrentSpec& spec) {
  std::vector<Link> links = spec.links;
  std::set<std::string> read, written;
  for (const OperatorDef& op : spec.backward_net.op()) {
    read.insert(op.input().begin(), op.input().end());
    written.insert(op.output().begin(), op.output().end());
  }
  for (const ParamSpecGrad& p : spec.params) read.insert(p.grad);
  std::map<std::string, const Link*> by_name;
  for (const Link& link : spec.links) by_name.emplace(link.internal, &link);
  // Names that show another's storage at the end of the step; writing one in place changes nothing in that.
  std::map<std::string, std::string> shows;
  for (const OperatorDef& op : spec.step_net.op()) {
    const OpSpec* schema = find_op(op.type());
    if (!schema || schema->role != Role::alias || op.input_size() != 1 || op.output_size() != 1) continue;
    const auto shown = shows.find(op.input(0));
    const std::string storage = shown == shows.end() ? op.input(0) : shown->second;
    if (by_name.count(op.output(0)) == 0) shows[op.output(0)] = storage;
  }
  for (const auto& [name, storage] : shows) {
    const auto source = by_name.find(storage);
    if (source == by_name.end() || read.count(name) == 0 || written.count(name) > 0) continue;  // or made again
    Link link = *source->second;
    link.internal = name;
    links.push_back(std::move(link));
  }
  return links;
}

NetDef needed_operators(const NetDef& backward_net, std::set<std::string> needed) {
  NetDef net = backward_net;
  net.clear_op();
  std::vector<OperatorDef> kept;
  for (int i = backward_net.op_size() - 1; i >= 0; --i) {
    OperatorDef op = backward_net.op(i);
    const OpSpec& schema = op_spec(op.type());
    bool any = schema.side_effect;
    for (int o = 0; o < op.output_size(); ++o) {
      if (needed.count(op.output(o)) > 0) {
        any = true;
      } else if (schema.output_spec(o) && schema.output_spec(o)->uses) {
        op.set_output(o, "");
      }
    }
    if (!any) continue;
    for (const std::string& name : op.input()) needed.insert(name);
    kept.push_back(std::move(op));
  }
  for (auto it = kept.rbegin(); it != kept.rend(); ++it) *net.add_op() = *it;
  return net;
}

}  // namespace stepnet
