// How operators that hold nets are differentiated where a formula of small operators does not do: forward, and, of a
// network's gradient, backward; and how the nets that they hold run. Whoever has such operators registers how.
//
// Threads: registration runs before main; rules are pure functions.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/net/dataflow.h"
#include "stepnet/gradients.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tensor.h"

namespace stepnet {

// By names of the net around the operator.
struct TangentCall {
  const OperatorDef& op;
  // The tangent of what an input holds before the operator; "" if that is constant.
  std::function<std::string(const std::string& input)> tangent;
  std::function<bool(const std::string& output)> is_needed;
  std::function<std::string(const std::string& base)> fresh;    // a name that the net does not have
  std::function<void(int first)> check_unchanged = {};          // see check_inputs_unchanged
  std::function<bool(const std::string& output)> is_read = {};  // by another operator of the net
  bool in_step_net = false;
};

struct TangentOperators {
  std::vector<OperatorDef> ops;                 // in the place of the operator
  std::map<std::string, std::string> tangents;  // of its outputs; of one that is constant, none
};

using TangentRule = TangentOperators (*)(const TangentCall& call);
// `reads`: whether the rule asks for the tangent of an actual input; null: of all.
void add_tangent_rule(const std::string& type, TangentRule rule,
                      bool (*reads)(const OperatorDef& op, int input) = nullptr);

// By actual inputs and outputs.
struct GradientCall {
  const OperatorDef& op;
  std::vector<std::string> gradients;  // of outputs; "" for none
  std::vector<bool> wanted;            // of inputs
  std::function<std::string(const std::string& base)> fresh;
  std::function<void(int first)> check_unchanged = {};
};

struct GradientOperators {
  std::vector<OperatorDef> ops;        // behind all others; they write fresh names alone
  std::vector<std::string> gradients;  // of inputs; "" for none
};

using GradientOperatorRule = GradientOperators (*)(const GradientCall& call);
void add_gradient_rule(const std::string& type, GradientOperatorRule rule);
GradientOperatorRule gradient_rule(const std::string& type);  // null if there is none

// A net that an operator runs, as an ordinary net, at one point of the run.
struct InnerRun {
  std::string what, when;  // "step net", "timestep 3"
  NetDef net;
  std::map<std::string, Tensor> feeds;  // all that the net reads, on the CPU
  std::set<std::string> results;        // what it writes for the operator
};

// `values`: of the operator's inputs, on the CPU, by name. Some points of its run, the first one among them. Throws
// Error if the net cannot run as an ordinary one.
using InnerRunRule = std::vector<InnerRun> (*)(const OperatorDef& op, const std::map<std::string, Tensor>& values,
                                               uint64_t seed);
void add_inner_run_rule(const std::string& type, InnerRunRule rule);
InnerRunRule inner_run_rule(const std::string& type);  // null if there is none

// Throws Error if an input of the operator from `first` on does not hold what it held, in this order, as the input of
// the operator that wrote its last input: as a network's gradient is given the network's inputs once more.
void check_inputs_unchanged(const BoundNet& net, int op, int first);

// As add_tangent_operators, of a net whose networks are in full form; those that it makes are left in short form.
TangentResult add_short_tangent_operators(NetDef& net, const TangentRequest& request);

}  // namespace stepnet
