// How a timestep's parameters and states reach the states after it, for recurrent/form/sensitivities.h.
//
// The part of a step net from which its states are made is walked from its end. It may have operators that work element
// by element, and those that take parts of the last dimension, so that unit n of a state depends on unit n of what the
// part begins with. It begins with
//   - drives: u = FC(x, W, b), or a sequence that such an operator made of another in the net outside;
//   - parameters that operators read element by element;
//   - constants: what depends neither on parameters nor on states;
//   - the states before the timestep.
// A blob whose last dimension is `parts` times that of a state has a value of each part for each unit.
// Owns: what it says; the network may go. Threads: pure functions.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "stepnet/proto/recurrent.pb.h"

namespace stepnet {

enum class LearningRule { rtrl, snap1, eprop };

// What a blob of the net outside depends on.
struct OutsideSources {
  std::set<std::string> parameters, data;
};

struct PathsRequest {
  LearningRule rule = LearningRule::rtrl;
  std::function<OutsideSources(const std::string& blob)> sources;
  // The operator of the net outside that wrote the blob; null if none did.
  std::function<const OperatorDef*(const std::string& blob)> writer;
};

struct Drive {
  int op = -1;  // of the step net; -1: in the net outside
  std::string blob, x, weight, bias;
  int parts = 1;
  bool feeds_back = false;  // x depends on states, and what of that is kept is the diagonal of the weights
};

// A parameter, or what was computed of parameters alone, that an operator reads element by element.
struct DirectParameter {
  std::string blob;
  int op = -1, input = 0;
  int parts = 1;
};

// What a blob is made of.
struct PathEnds {
  std::set<int> states, drives, parameters;  // by number
};

struct StatePaths {
  std::vector<bool> is_carried;  // by state: an operator reads what it was
  std::set<int> ops;             // of the step net, from the ends to the states
  std::vector<Drive> drives;     // in order of their operators
  std::vector<DirectParameter> parameters;
  std::set<std::string> constants;  // step blobs that have a value for each timestep
  std::set<std::string> outside;    // blobs that are the same in all timesteps: references, or made of these
  std::set<int> outside_ops;        // operators of the step net that make those
  std::vector<PathEnds> ends;       // by state
  std::set<std::string> varying;    // step blobs that depend on a state, or on a parameter
};

// Throws Error that names the operator and the blobs: a state's Jacobian that is not diagonal, where the rule is to be
// exact; what the rules do not cover.
StatePaths find_state_paths(const RecurrentDef& def, const PathsRequest& request);

}  // namespace stepnet
