// Calls of operators with something wrong in them, made from the operators' own examples.
//
// Threads: not for concurrent use.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stepnet/gradient_check.h"
#include "stepnet/op_spec.h"

namespace stepnet::testing {

// One operator on values, behind a net that makes what is no tensor (a mutex, an open database).
struct OpCall {
  OperatorDef def;
  NetDef before;
  std::map<std::string, Tensor> feeds;
  std::string folder;  // of the example's files
};

// The calls of `type` in the examples of all operators and in their gradients, of both orders, one for each set of
// arguments and inputs: those of its own examples, or if it has none, the first that others make.
std::map<std::string, std::vector<OpCall>> calls_of_all_operators(const std::string& folder);

// Makes the folder, or empties it.
void empty_folder(const std::string& folder);

struct Mutation {
  std::string what;   // "X as int32[2, 3]"
  std::string named;  // what an Error about it must mention, one of these words; empty: anything
  OpCall call;
};

// Every mutation of a call, one after the other.
void mutate_inputs(const OpCall& call, const std::function<void(const Mutation&)>& visit);
void mutate_values(const OpCall& call, const std::function<void(const Mutation&)>& visit);
void mutate_arguments(const OpCall& call, const std::function<void(const Mutation&)>& visit);
void mutate_names(const OpCall& call, const std::function<void(const Mutation&)>& visit);

}  // namespace stepnet::testing
