// A definition of an operator in text: a net of the argument "stepnet.operators", read and checked.
//
//   arg { name: "stepnet.operators" nets {
//     name: "MySwish" external_input: "x" external_output: "y"
//     arg { name: "order" i: 0 }                              # an argument of it, with its default
//     op { type: "Sigmoid" input: "x" output: "s" }
//     op { type: "Mul" input: "x" input: "s" output: "y" }
//     arg { name: "gradient_net" n { ... } }                  # optional
//   } }
//
// Throws Error: a name that is taken, missing or given twice, an operator that reads what is not given to it, that
// holds nets, or that is wrong; and what a gradient net may not have. Threads: pure functions.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "stepnet/proto/net.pb.h"

namespace stepnet {

struct OperatorDefinition {
  std::string type;
  NetDef net;                                  // what it uses of other definitions is in its place
  std::map<std::string, Argument> parameters;  // by name, with their defaults; without a value if there is none
  std::vector<bool> copied;                    // by input: its operators may write over it, or must tell it from others
  std::set<std::string> inside;                // names of blobs in its step nets
  bool has_gradient_net = false;
  // Input i is "$x<i>" in it, output o "$y<o>", their gradients "$x<i>_grad" and "$y<o>_grad".
  NetDef gradient_net;
};

// `expand` puts what a net uses of other definitions in its place.
OperatorDefinition read_definition(const NetDef& written, const std::function<void(NetDef&)>& expand);

// Lets the arguments of the operator, and of those in its nets, that say "$NAME" have the parameter's value.
void give_parameters(OperatorDef& op, const std::map<std::string, Argument>& parameters);

// True if it is an argument without a value, which must be given.
bool is_without_value(const Argument& arg);

}  // namespace stepnet
