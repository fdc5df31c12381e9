#include "core/gradcheck/blame.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/gradcheck/examples.h"
#include "core/net/expansions.h"
#include "core/operator/in_place.h"
#include "core/passes/defined_operators.h"
#include "core/passes/network_rules.h"
#include "stepnet/arguments.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "stepnet/op_spec.h"

namespace stepnet {
namespace {

// Of an operator alone: a net has many operators, and blobs inside may be larger than what it is given.
constexpr int64_t kManyAlone = 200;

std::string path_of(const OperatorDef& op, int index) {
  const std::string name = !op.name().empty() ? op.name() : op.output_size() > 0 ? op.output(0) : "";
  const Argument* definition = op.type() == kWithGradient ? find_arg(op, "definition") : nullptr;
  return fmt::format("op {} ({}){}{}", index, op.type(), name.empty() ? "" : fmt::format(" \"{}\"", name),
                     definition ? ", the gradient net of " + definition->s() : "");
}

// The operators that compute the results of operator `with_gradient` from its other inputs, rising.
std::vector<int> operators_of_use(const NetDef& net, int with_gradient) {
  const OperatorDef& op = net.op(with_gradient);
  std::set<std::string> needed, given = {""};
  for (int i = 0; i < op.input_size(); ++i) (is_given_result(op, i) ? needed : given).insert(op.input(i));
  std::vector<int> ops;
  for (int i = with_gradient - 1; i >= 0 && !needed.empty(); --i) {
    bool writes = false;
    for (const std::string& name : net.op(i).output()) writes = needed.erase(name) > 0 || writes;
    if (!writes) continue;
    for (const std::string& name : net.op(i).input())
      if (given.count(name) == 0) needed.insert(name);
    ops.push_back(i);
  }
  std::ranges::reverse(ops);
  return ops;
}

const Tensor* tensor_at(const Workspace& workspace, const std::string& name) {
  const Blob* blob = name.empty() ? nullptr : workspace.find(name);
  return blob && blob->is_tensor() && !blob->empty() ? &blob->tensor() : nullptr;
}

bool is_double(const Tensor* value) { return value && value->dtype() == DType::float64; }

// By operator, the outputs that the net's results depend on.
std::vector<std::set<std::string>> needed_outputs(const NetDef& net, std::set<std::string> needed) {
  std::vector<std::set<std::string>> outputs(static_cast<size_t>(net.op_size()));
  for (int i = net.op_size() - 1; i >= 0; --i) {
    for (const std::string& name : net.op(i).output())
      if (needed.erase(name) > 0) outputs[i].insert(name);
    if (!outputs[i].empty()) needed.insert(net.op(i).input().begin(), net.op(i).input().end());
  }
  return outputs;
}

// An output in the place of an input gets a name of its own, where the operator does not have to work in place: the
// checks try that by themselves, and of what is overwritten there may be no second derivative.
std::map<std::string, std::string> move_apart(OperatorDef& op) {
  const OpSpec& spec = op_spec(op.type());
  const std::string drawn = op.HasExtension(draws_as) || op.output_size() == 0 ? "" : op.output(0);
  std::map<std::string, std::string> moved;
  for (int o = 0; o < op.output_size(); ++o) {
    const std::string name = op.output(o);
    for (int i = 0; i < op.input_size(); ++i) {
      const InPlaceRule* rule = op.input(i) == name && !name.empty() ? in_place_rule(spec, i, o) : nullptr;
      if (!rule || rule->enforced) continue;
      moved[name] = name + "_after";
      op.set_output(o, moved[name]);
      break;
    }
  }
  if (spec.random && moved.count(drawn) > 0) op.SetExtension(draws_as, drawn);
  return moved;
}

class Search {
 public:
  Search(const GradientSubject& subject, const GradientCheckOptions& options, const CheckDerivatives& check,
         GradientReport& report)
      : subject_(subject), options_(options), check_(check), report_(report) {
    options_.where_possible = true;
    options_.many_elements = std::min(options_.many_elements, kManyAlone);
  }

  // Blames operators of the net, which runs on what the workspace holds. `moving`: blobs whose derivatives are asked
  // for. Returns whether there were any, in another timestep included.
  bool search(const NetDef& net, Workspace& workspace, std::set<std::string> moving,
              const std::set<std::string>& results, const std::string& prefix, const std::string& when) {
    const std::vector<std::set<std::string>> needed = needed_outputs(net, results);
    std::set<int> in_uses;  // a gradient net stands for their derivatives
    for (int i = 0; i < net.op_size(); ++i)
      if (net.op(i).type() == kWithGradient)
        for (const int inner : operators_of_use(net, i)) in_uses.insert(inner);
    bool found = false;
    for (int i = 0; i < net.op_size(); ++i) {
      const OperatorDef& op = net.op(i);
      const Place place{prefix + path_of(op, i), when};
      GradientSubject alone = before_run(net, op, workspace, moving);
      if (op.type() == kWithGradient) put_use(net, i, alone);
      run_once(single(net, op), workspace, options_.seed);
      const bool moves = !alone.inputs.empty();
      for (const std::string& name : op.output()) {
        moving.erase(name);
        if (!moves || !is_double(tensor_at(workspace, name))) continue;
        moving.insert(name);
        if (needed[i].count(name) > 0) alone.outputs.push_back(name);
      }
      if (moves && !alone.outputs.empty() && in_uses.count(i) == 0) found = is_blamed(std::move(alone), place) || found;
    }
    return found;
  }

 private:
  struct Place {
    std::string path, when;
  };

  static NetDef single(const NetDef& net, const OperatorDef& op) {
    NetDef one = net;
    one.clear_op();
    one.clear_external_input();
    one.clear_external_output();
    *one.add_op() = op;
    return one;
  }

  GradientSubject before_run(const NetDef& net, const OperatorDef& op, const Workspace& workspace,
                             const std::set<std::string>& moving) const {
    GradientSubject alone{single(net, op), {}, {}, {}, subject_.device, subject_.files};
    const OpSpec& spec = op_spec(op.type());
    for (int i = 0; i < op.input_size(); ++i) {
      const std::string& name = op.input(i);
      const Tensor* value = tensor_at(workspace, name);
      if (!value) continue;
      if (alone.feeds.count(name) == 0) alone.feeds[name] = copied_to(*value, {}).clone();
      const ParamSpec* param = spec.input_spec(i);
      if (moving.count(name) > 0 && is_double(value) && param && has_derivative(spec, param->name) &&
          std::ranges::count(alone.inputs, name) == 0)
        alone.inputs.push_back(name);
    }
    return alone;
  }

  // A gradient net is compared with the operators whose derivative it is.
  static void put_use(const NetDef& net, int with_gradient, GradientSubject& alone) {
    const OperatorDef& op = net.op(with_gradient);
    alone.net.clear_op();
    for (const int i : operators_of_use(net, with_gradient)) *alone.net.add_op() = net.op(i);
    *alone.net.add_op() = op;
    for (int i = 0; i < op.input_size(); ++i) {
      if (!is_given_result(op, i)) continue;
      alone.feeds.erase(op.input(i));
      std::erase(alone.inputs, op.input(i));
    }
  }

  // The operator, or one inside it.
  bool is_blamed(GradientSubject alone, const Place& place) {
    if (seen_.count(place.path) > 0) return true;  // in another timestep
    const GradientSubject inside = alone;
    const auto moved = move_apart(*alone.net.mutable_op(alone.net.op_size() - 1));
    for (std::string& output : alone.outputs)
      if (const auto found = moved.find(output); found != moved.end()) output = found->second;
    std::string wrong, refused;
    try {
      const GradientReport report = check_(alone, options_);
      if (report.right()) return false;
      wrong = report.str();
    } catch (const NoDependence&) {  // its derivatives are zero
      return false;
    } catch (const Error& e) {
      refused = e.fact();
    }
    if (search_inside(inside, place)) return true;
    if (!refused.empty()) {
      report_.unsearched.emplace(place.path, refused);
      return false;
    }
    seen_.insert(place.path);
    report_.blamed.push_back({place.path, alone.net.op(alone.net.op_size() - 1).type(),
                              place.when.empty() ? wrong : place.when + ": " + wrong});
    return true;
  }

  // In the nets that the operator runs.
  bool search_inside(const GradientSubject& around, const Place& place) {
    const OperatorDef& op = around.net.op(around.net.op_size() - 1);
    const InnerRunRule rule = inner_run_rule(op.type());
    if (!rule) return false;
    bool found = false;
    try {
      for (const InnerRun& run : rule(op, around.feeds, options_.seed)) {
        Workspace workspace;
        workspace.confine(subject_.files);
        std::set<std::string> moving;
        for (const auto& [name, value] : run.feeds) {
          workspace.tensor(name) = copied_to(value, subject_.device);
          if (value.dtype() == DType::float64) moving.insert(name);
        }
        const std::string when =
            place.when.empty() || run.when.empty() ? place.when + run.when : place.when + ", " + run.when;
        found = search(run.net, workspace, moving, run.results, fmt::format("{}, {} ", place.path, run.what), when) ||
                found;
      }
    } catch (const Error& e) {
      report_.unsearched.emplace(place.path + ", inside", e.fact());
    }
    return found;
  }

  const GradientSubject& subject_;
  GradientCheckOptions options_;
  const CheckDerivatives& check_;
  GradientReport& report_;
  std::set<std::string> seen_;
};

}  // namespace

void find_blamed(const GradientSubject& subject, const GradientCheckOptions& options, const CheckDerivatives& check,
                 GradientReport& report) {
  NetDef net = subject.net;
  expand_net(net);
  if (net.op_size() == 0 || (net.op_size() == 1 && !inner_run_rule(net.op(0).type()))) return;
  Workspace workspace;
  workspace.confine(subject.files);
  for (const auto& [name, value] : subject.feeds) workspace.tensor(name) = copied_to(value, subject.device);
  report.searched = true;
  try {
    Search(subject, options, check, report)
        .search(net, workspace, {subject.inputs.begin(), subject.inputs.end()},
                {subject.outputs.begin(), subject.outputs.end()}, "", "");
  } catch (const Error& e) {
    report.unsearched.emplace("the net, operator by operator,", e.fact());
  }
}

}  // namespace stepnet
