#include "stepnet/net_function.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "core/autograd/net/tape_net.h"
#include "core/net/expansions.h"
#include "stepnet/eager_op.h"
#include "stepnet/record.h"
#include "stepnet/tape.h"

namespace stepnet::autograd {
namespace {

constexpr size_t kMostKept = 256;

// A net of one operator, kept for the process.
struct OperatorNet {
  NetFunction function;
  std::vector<int> inputs;   // of the function, by their places among the operator's
  std::vector<int> outputs;  // of the operator, by their places among the function's; -1: absent
};

std::shared_ptr<const OperatorNet> make_operator_net(const OperatorDef& op) {
  std::vector<std::string> inputs, outputs;
  std::vector<int> input_places, output_places;
  for (int i = 0; i < op.input_size(); ++i) {
    if (op.input(i).empty() || std::ranges::find(inputs, op.input(i)) != inputs.end()) continue;
    inputs.push_back(op.input(i));
    input_places.push_back(i);
  }
  for (const std::string& name : op.output()) {
    output_places.push_back(name.empty() ? -1 : static_cast<int>(outputs.size()));
    if (!name.empty()) outputs.push_back(name);
  }
  NetDef net;
  net.set_name(op.name().empty() ? op.type() : op.name());
  *net.add_op() = op;
  return std::make_shared<const OperatorNet>(
      OperatorNet{NetFunction(std::move(net), std::move(inputs), std::move(outputs)), std::move(input_places),
                  std::move(output_places)});
}

std::shared_ptr<const OperatorNet> operator_net(const OperatorDef& op) {
  static std::mutex mutex;
  static std::unordered_map<std::string, std::shared_ptr<const OperatorNet>> nets;
  const std::string key = op.SerializeAsString();
  const std::lock_guard lock(mutex);
  if (const auto it = nets.find(key); it != nets.end()) return it->second;
  auto made = make_operator_net(op);
  if (nets.size() >= kMostKept) nets.clear();
  return nets.emplace(key, std::move(made)).first->second;
}

void check_operator_inputs(const OperatorDef& op, const std::vector<Variable>& inputs) {
  require(static_cast<int>(inputs.size()) == op.input_size(), "{} has {} inputs, and gets {}", op.type(),
          op.input_size(), inputs.size());
  for (int i = 0; i < op.input_size(); ++i) {
    require(inputs[i].defined() != op.input(i).empty(), "{}: input {} (\"{}\") is {}", op.type(), i, op.input(i),
            inputs[i].defined() ? "given, but has no name" : "undefined");
    const auto first = std::ranges::find(op.input(), op.input(i)) - op.input().begin();
    require(!inputs[i].defined() || inputs[i].is_same(inputs[first]), "{}: inputs {} and {} are both \"{}\"", op.type(),
            first, i, op.input(i));
  }
}

std::vector<bool> always_there(const OpSpec& spec, int outputs) {
  if (outputs >= 0) return std::vector<bool>(outputs, true);
  std::vector<bool> wanted;
  for (const ParamSpec& p : spec.outputs)
    if (p.variadic) {
      for (int i = 0; i < p.at_least; ++i) wanted.push_back(true);
    } else if (!p.optional) {
      wanted.push_back(true);
    } else {
      break;
    }
  return wanted;
}

// A net of one operator. It has all declared outputs unless it is told how many.
std::vector<Variable> run_on_blobs(EagerOp::Signature signature, const std::vector<Variable>& inputs,
                                   const RunOptions& options, Place place) {
  require(!options.in_place, "{} works on blobs, and cannot overwrite a variable", signature.type);
  const OpSpec& spec = op_spec(signature.type);
  for (size_t o = signature.outputs.size(); options.outputs < 0 && o < spec.outputs.size(); ++o)
    if (!spec.outputs[o].variadic) signature.outputs.push_back(true);
  return run(EagerOp::definition(signature), inputs, place);
}

}  // namespace

NetFunction::NetFunction(NetDef net, std::vector<std::string> inputs, std::vector<std::string> outputs) {
  expand_net(net);
  plan_ = std::make_shared<const TapeNet>(std::move(net), std::move(inputs), std::move(outputs));
}

std::vector<Variable> NetFunction::operator()(const std::vector<Variable>& inputs, Place place) const {
  NetDraw draw;
  if (plan_->draws()) draw = {random_state().seed, next_draw()};
  return plan_->run(inputs, draw, place);
}

std::vector<Variable> run(const OperatorDef& op, const std::vector<Variable>& inputs, Place place) {
  try {
    check_operator_inputs(op, inputs);
    const std::shared_ptr<const OperatorNet> net = operator_net(op);
    std::vector<Variable> given;
    for (const int i : net->inputs) given.push_back(inputs[i]);
    const std::vector<Variable> made = net->function(given, place);
    std::vector<Variable> outputs;
    for (const int k : net->outputs) outputs.push_back(k < 0 ? Variable() : made[k]);
    return outputs;
  } catch (Error& e) {
    add_call_place(e, place);
    throw;
  }
}

std::vector<Variable> run(const std::string& type, const std::vector<Variable>& inputs,
                          const std::vector<Argument>& args, const RunOptions& options, Place place) {
  std::shared_ptr<const EagerOp> op;
  try {
    EagerOp::Signature signature{.type = type, .inputs = {}, .outputs = {}, .args = args, .in_place = {}};
    for (const Variable& v : inputs) signature.inputs.push_back(v.defined());
    signature.outputs = always_there(op_spec(type), options.outputs);
    if (op_spec(type).blob_kernel) return run_on_blobs(std::move(signature), inputs, options, place);
    if (options.in_place) {
      signature.in_place.assign(signature.outputs.size(), -1);
      require(!inputs.empty() && !signature.outputs.empty(), "{} has no input to overwrite", type);
      signature.in_place[0] = 0;
    }
    op = EagerOp::get(signature);
  } catch (Error& e) {
    add_call_place(e, place);
    throw;
  }
  return run(*op, inputs, place);
}

}  // namespace stepnet::autograd
