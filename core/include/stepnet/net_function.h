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

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
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

// --- A net of what runs on the tape ----------------------------------------------------------------------------------

struct CaptureOptions {
  std::string name = "captured";                                 // of the net
  std::vector<std::string> inputs = {};                          // their names; empty: x0, x1, ...
  std::vector<std::pair<std::string, Variable>> constants = {};  // names for those of these that are read
  bool check = true;  // run the net once, and throw Error unless its outputs are those of the eager run to the bit
};

struct Captured {
  NetDef net;                                // external inputs: `inputs`, and then the constants
  std::vector<std::string> inputs, outputs;  // of the net, in the order of the variables
  std::map<std::string, Tensor> constants;   // to feed beside the inputs; they share the bytes of the variables
  // What `backward` has accumulated in leaves, as it is when the capture ends. The names are external outputs, too;
  // of a sparse gradient, those of its indices and values.
  struct LeafGradient {
    Variable leaf;
    std::string dense, indices, values;
  };
  std::vector<LeafGradient> gradients;
  // Bytes that `fn` has overwritten and that were there before, parameters that it updates for example. The net leaves
  // them alone: what they would hold is the external output `name`, and `over` is the input or constant that was read
  // there before, or "".
  struct Written {
    std::string name, over;
    Tensor bytes;
  };
  std::vector<Written> written;
};

// Calls `fn` once, eagerly, and writes down as a net all operators that it runs on this thread's tape, forward and
// backward: it may call grad and backward. Shapes, and what the program decides, are those of this run. Constants are
// values that were there before and that an operator reads: parameters are w1, w2, ..., others c1, c2, ...
// Throws Error where the net would not compute what `fn` does: a value that was made or written meanwhile by anything
// but operators and nets of them, random operators, operators on blobs, several threads.
using TapeProgram = std::function<std::vector<Variable>(const std::vector<Variable>&)>;
Captured capture(const TapeProgram& fn, const std::vector<Variable>& inputs, const CaptureOptions& options = {});
// Inside of a captured function: says of bytes that it has made itself that they depend on no input, so that they
// become a constant of the net. Outside of a capture it does nothing.
Variable captured_constant(Tensor value);

}  // namespace stepnet::autograd
