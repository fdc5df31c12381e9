// NetFunction: a whole net as one operation of the tape.
//
//   const NetFunction cell(net, {"x", "w", "b"}, {"y"});
//   const Variable y = cell({x, w, b})[0];
//
// A call runs the net in a workspace of its own on the variables' values and records one node. What its backward pass
// reads is saved and the rest let go of; only the operators of the gradient pass (stepnet/gradients.h) run then,
// for the inputs whose gradients are wanted, and those nets are made once. The node can be differentiated to any order,
// but for operators on blobs (RecurrentNetwork), which have first derivatives and whose workspace stays with the node
// until it is released. An input that the net overwrites is copied first.
// Threads: immutable; calls may run at the same time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stepnet/proto/net.pb.h"
#include "stepnet/variable.h"

namespace stepnet::autograd {

class TapeNet;

class NetFunction {
 public:
  // `inputs` and `outputs` are blobs of the net, in the order of the variables; every blob that the net reads and does
  // not write must be an input. Networks in short form are expanded. Throws Error as check_net does.
  NetFunction(NetDef net, std::vector<std::string> inputs, std::vector<std::string> outputs);
  // An output that is computed from no input that requires a gradient has no history. An output that is not a tensor is
  // undefined. Throws Error: what the net's operators throw; one on the way to an output has no derivative.
  std::vector<Variable> operator()(const std::vector<Variable>& inputs, Place place = Place::here()) const;

 private:
  std::shared_ptr<const TapeNet> plan_;
};

// Runs one operator as a net of its own, with names, arguments and short form as it stands in a net: operators on blobs
// that find things by their names. Inputs are in the operator's order, undefined where their name is ""; outputs
// likewise, undefined also where the operator puts no tensor.
std::vector<Variable> run(const OperatorDef& op, const std::vector<Variable>& inputs, Place place = Place::here());

}  // namespace stepnet::autograd
