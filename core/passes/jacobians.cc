#include "core/passes/jacobians.h"

#include <algorithm>
#include <functional>
#include <ostream>
#include <set>
#include <utility>

#include "core/net/dataflow.h"
#include "core/operator/nets_inside.h"
#include "core/passes/batched_rows.h"
#include "core/passes/gradient_sums.h"
#include "core/passes/inner_gradients.h"
#include "core/tensor/dry_device.h"
#include "stepnet/arguments.h"
#include "stepnet/error.h"
#include "stepnet/net.h"
#include "stepnet/workspace.h"

namespace stepnet {
namespace {

using Types = std::map<std::string, TensorType>;
using Dims = std::vector<int64_t>;

// What a run of the net leaves in its blobs.
Types types_of_run(const NetDef& net, const Types& given, bool has_values) {
  Types types = given;
  Workspace workspace;
  for (const auto& [name, type] : given)
    workspace.create_local(name).tensor() =
        has_values ? on_device(*type.value, {}).clone() : Tensor::zeros(type.dtype, type.shape);
  std::ostream nowhere(nullptr);
  RunContext run;
  run.out = &nowhere;
  run_net_once(net, workspace, run, {.force_cpu = true});
  for (const std::string& name : workspace.names()) {
    const Blob& blob = workspace.at(name);
    if (blob.is_tensor() && blob.tensor().defined())
      types[name] = TensorType::of(blob.tensor().dtype(), blob.tensor().shape());
  }
  return types;
}

// What the net leaves in its blobs, found without computing it, as far as that goes; if it does not, and all that it
// reads is there, by a run.
Types types_after(const NetDef& net, const Types& given) {
  NetDef on_cpu = net;
  use_cpu(on_cpu);
  Types types;
  try {
    const DryScope scope;
    types = types_of_run(on_cpu, given, false);
  } catch (const Error&) {  // an operator needs elements to know a shape
    if (std::ranges::all_of(given, [](const auto& type) { return type.second.value != nullptr; })) {
      types = types_of_run(on_cpu, given, true);
    } else {
      types = given;
      infer_ops(on_cpu, types);
    }
  }
  for (auto& [name, type] : types)
    if (given.count(name) == 0) type.value = nullptr;
  return types;
}

std::string free_name(const NetDef& net, const std::string& base) {
  std::set<std::string> names(net.external_input().begin(), net.external_input().end());
  for (const OperatorDef& op : net.op()) {
    names.insert(op.input().begin(), op.input().end());
    names.insert(op.output().begin(), op.output().end());
  }
  std::string name = base;
  for (int n = 1; names.count(name) > 0; ++n) name = fmt::format("{}_{}", base, n);
  return name;
}

void check_types(const NetDef& net, const JacobianRequest& request) {
  for (const std::string& name : read_from_outside(net))
    require(request.types.count(name) > 0, "nothing says what type \"{}\" has, which the net reads", name);
  require(!request.inputs.empty(), "no blob is named with respect to which \"{}\" is to be differentiated",
          request.output);
  const std::set<std::string> written = written_names(net);
  for (const std::string& input : request.inputs) {
    require(std::ranges::count(request.inputs, input) == 1, "\"{}\" is named twice", input);
    require(written.count(input) == 0,
            "\"{}\" is written by the net, so that which of its values is meant is not known", input);
    const auto type = request.types.find(input);
    require(type != request.types.end(), "\"{}\" is nothing that the net reads", input);
    require(is_floating(type->second.dtype), "\"{}\" is {}, and only floating-point numbers have derivatives", input,
            type->second.str());
  }
}

void add_op(NetDef& net, const OperatorDef& like, const std::string& type, const std::vector<std::string>& inputs,
            const std::string& output, const std::vector<Argument>& args) {
  OperatorDef& op = append_gradient_op(net, type, like);
  op.mutable_input()->Add(inputs.begin(), inputs.end());
  op.add_output(output);
  op.mutable_arg()->Add(args.begin(), args.end());
}

// [n, y's shape]: row i is 1 at element i, else 0.
void add_unit_rows(NetDef& net, const OperatorDef& like, const TensorType& y, const std::string& prefix,
                   const std::string& name) {
  const int64_t n = y.shape.size();
  const auto add = [&](const std::string& type, const std::vector<std::string>& inputs, const std::string& output,
                       const std::vector<Argument>& args) {
    add_op(net, like, type, inputs, prefix + output, args);
    return prefix + output;
  };
  const std::string stop =
      add("GivenTensorInt64Fill", {}, "count", {make_arg("shape", Dims{1}), make_arg("values", Dims{n})});
  const std::string numbers = add("Range", {stop}, "numbers", {});
  const std::string column = add("ExpandDims", {numbers}, "column", {make_arg("dims", Dims{1})});
  const std::string same = add("EQ", {column, numbers}, "same", {});
  const std::string units = add("Cast", {same}, "units", {make_arg("to", static_cast<int>(y.dtype))});
  const Shape shape = y.shape.prepend(n);
  add_op(net, like, "Reshape", {units}, name, {make_arg("shape", Dims(shape.begin(), shape.end()))});
  net.mutable_op(net.op_size() - 1)->add_output(prefix + "units_shape");
}

void add_zeros(NetDef& net, const OperatorDef& like, const Shape& shape, DType dtype, const std::string& name) {
  add_op(net, like, "ConstantFill", {}, name,
         {make_arg("shape", Dims(shape.begin(), shape.end())), make_arg("dtype", static_cast<int>(dtype))});
}

// Shapes are constants of the net, and broadcasting would hide that others are fed: a run fails where what it reads has
// not the shape that the net was made for. Before anything is overwritten.
void put_checks_first(NetDef& net, const Types& read) {
  static const std::set<DType> comparable = {DType::float32, DType::float64, DType::int32, DType::int64,
                                             DType::boolean};
  const std::vector<std::string> names = read_from_outside(net);
  const std::string prefix = free_prefix(net, "jacobian_checks");
  const OperatorDef like = net.op(net.op_size() - 1);
  NetDef checked = net;
  checked.clear_op();
  int count = 0;
  for (const auto& [name, type] : read) {
    if (std::ranges::count(names, name) == 0 || !type.known || comparable.count(type.dtype) == 0) continue;
    const std::string shape = fmt::format("{}shape_{}", prefix, ++count);
    add_zeros(checked, like, type.shape, type.dtype, shape);
    add_op(checked, like, "EQ", {name, shape}, fmt::format("{}fits_{}", prefix, count),
           {make_arg("equal_shapes", true)});
  }
  for (OperatorDef& op : *net.mutable_op()) checked.add_op()->Swap(&op);
  net = std::move(checked);
}

// What rules have made must have the types that the operators one by one would have.
void check_promises(const NetDef& net, const JacobianRequest& request, const Types& promised) {
  const Types found = types_after(net, request.types);
  for (const auto& [name, type] : promised) {
    const auto is = found.find(name);
    if (is == found.end() || !is->second.known) continue;
    require(is->second.dtype == type.dtype && is->second.shape == type.shape,
            "the batched backward pass makes \"{}\", which is {}, but it would have to be {}; this is a mistake of "
            "Stepnet",
            name, is->second.str(), type.str());
  }
}

std::string dense(NetDef& net, const GradientName& gradient, const std::string& like, const std::string& name) {
  return gradient.is_sparse() ? append_dense_copy(net, gradient, like, name) : gradient.dense;
}

// `result_name`: of the Jacobian by an input, if the net has no such blob.
std::map<std::string, std::string> append_jacobian(
    NetDef& net, const JacobianRequest& request,
    const std::function<std::string(const std::string& input)>& result_name) {
  check_types(net, request);
  require(net.op_size() > 0, "net \"{}\" has no operators", net.name());
  const Types forward = types_after(net, request.types);
  const auto y = forward.find(request.output);
  require(y != forward.end() && y->second.known, "the shape of \"{}\" does not follow from those of what the net reads",
          request.output);
  require(is_floating(y->second.dtype), "\"{}\" is {}, and only floating-point numbers have derivatives",
          request.output, y->second.str());
  const OperatorDef like = net.op(net.op_size() - 1);
  const std::string prefix = free_prefix(net, "jacobian");
  // Beside those of the gradients, whose names begin with the other prefix.
  const std::string row_prefix = free_prefix(net, "jacobian_rows"), given = row_prefix + "given";

  GradientRequest gradients;
  gradients.targets = {{request.output, given}};
  gradients.wanted.insert(request.inputs.begin(), request.inputs.end());
  NetDef one = net;  // with the backward pass for one row
  const GradientResult result = add_gradient_operators_under(one, gradients, prefix);
  std::map<std::string, std::string> rows, made;
  for (const std::string& input : request.inputs) {
    const auto found = result.gradients.find(input);
    if (found != result.gradients.end() && found->second.defined())
      rows[input] = dense(one, found->second, input, prefix + input + "_dense");
  }
  Types types = request.types;
  types[given] = y->second;
  const Tensor zeros = Tensor::zeros(y->second.dtype, y->second.shape);
  types[given].value = &zeros;
  types = types_after(one, types);
  NetDef all = net;
  const int64_t n = y->second.shape.size();
  Types promised;
  if (n > 0) {
    add_unit_rows(all, like, y->second, row_prefix, given);
    for (auto& [name, type] : types) type.value = nullptr;
    RowBatch batch(all, n, std::move(types), row_prefix);
    batch.give(given);
    for (int i = result.first_gradient_op; i < one.op_size(); ++i) batch.add(one.op(i));
    for (auto& [input, name] : rows) name = batch.with_rows(name);
    promised = batch.promised();
  }
  for (const std::string& input : request.inputs) {
    const TensorType& type = request.types.at(input);
    made[input] = free_name(all, result_name(input));
    if (n > 0 && rows.count(input) > 0)
      add_op(all, like, "Copy", {rows.at(input)}, made[input], {});
    else
      add_zeros(all, like, type.shape.prepend(n), type.dtype, made[input]);
    promised[made[input]] = TensorType::of(type.dtype, type.shape.prepend(n));
  }
  check_promises(all, request, promised);
  net = std::move(all);
  return made;
}

}  // namespace

std::map<std::string, std::string> add_jacobian_operators(NetDef& net, const JacobianRequest& request) {
  const auto made = append_jacobian(net, request, [](const std::string& input) { return input + "_jacobian"; });
  put_checks_first(net, request.types);
  return made;
}

std::map<std::pair<std::string, std::string>, std::string> add_hessian_operators(NetDef& net,
                                                                                 const JacobianRequest& request) {
  check_types(net, request);
  require(net.op_size() > 0, "net \"{}\" has no operators", net.name());
  const Types forward = types_after(net, request.types);
  if (const auto loss = forward.find(request.output); loss != forward.end() && loss->second.known)
    require(loss->second.shape.size() == 1, "\"{}\" is {}, but a Hessian is that of one number", request.output,
            loss->second.str());
  GradientRequest gradients;
  gradients.targets = {{request.output, ""}};
  gradients.wanted.insert(request.inputs.begin(), request.inputs.end());
  NetDef with = net;
  const std::string prefix = free_prefix(net, "hessian");
  const GradientResult result = add_gradient_operators_under(with, gradients, prefix);
  std::map<std::string, std::string> slopes;
  for (const std::string& input : request.inputs) {
    const auto found = result.gradients.find(input);
    if (found != result.gradients.end() && found->second.defined())
      slopes[input] = dense(with, found->second, input, prefix + input + "_dense");
  }
  for (int i = result.first_gradient_op; i < with.op_size(); ++i) with.mutable_op(i)->clear_is_gradient_op();
  std::map<std::pair<std::string, std::string>, std::string> made;
  for (const std::string& a : request.inputs) {
    const auto result_name = [&](const std::string& b) { return (a == b ? a : a + "_" + b) + "_hessian"; };
    std::map<std::string, std::string> rows;
    try {
      if (slopes.count(a) > 0)
        rows = append_jacobian(with, {.output = slopes.at(a), .inputs = request.inputs, .types = request.types},
                               result_name);
    } catch (const NoDependence&) {  // the loss is linear in it
    }
    for (const std::string& b : request.inputs) {
      const TensorType& type = request.types.at(b);
      if (rows.count(b) == 0) {
        rows[b] = free_name(with, result_name(b));
        add_zeros(with, net.op(net.op_size() - 1), type.shape.prepend(request.types.at(a).shape.size()), type.dtype,
                  rows[b]);
      }
      made[{a, b}] = rows.at(b);
    }
  }
  put_checks_first(with, request.types);
  net = std::move(with);
  return made;
}

}  // namespace stepnet
