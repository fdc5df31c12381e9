// AddGradientOperators: appends the backward pass to a net.
//
// Names follow the public format: the gradient of x is x_grad; with several consumers the others are
// _x_grad_autosplit_<n>, and a Sum adds them in place into x_grad; sparse gradients are x_grad_indices and
// x_grad_values. Every write makes a new version of a blob; a formula that must read a version which is later
// overwritten is an Error, and only formulas of gradients that are needed are emitted, so only what they read is kept.
// Threads: pure functions.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "stepnet/error.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

// The gradient of a blob: a dense blob's name, or two for sparse rows. Empty: none.
struct GradientName {
  std::string dense;
  std::string indices, values;
  bool defined() const { return !dense.empty() || !values.empty(); }
  bool is_sparse() const { return !values.empty(); }
};

struct GradientRequest {
  // Blobs to differentiate, each with the name of its given gradient, or "" to start from ones.
  std::vector<std::pair<std::string, std::string>> targets;
  // Blobs whose gradients are needed; empty: every external input that is reached. Operators that none of these
  // depends on get no gradient operators.
  std::set<std::string> wanted;
  // Blobs that are never differentiated (labels, masks), beside those that the schemas stop at.
  std::set<std::string> stop;
  // The net is a step net: names of one storage go on sharing it when one of them is written, in place or not.
  bool fixed_storages = false;
};

// A forward operator that was differentiated: which of its inputs' gradients are wanted, and which of its outputs have
// one.
struct DifferentiatedOp {
  int op = 0;
  std::vector<bool> wanted, present;
};

struct GradientResult {
  // Blob (in its final version, or for external inputs the first) to its gradient. Those that are wanted share no bytes
  // under different names, with each other or with a given one, but in a step net.
  std::map<std::string, GradientName> gradients;
  int first_gradient_op = 0;   // operators of the net from here on are the backward pass
  std::set<std::string> kept;  // forward values, parameters included, that the backward pass reads
  std::vector<DifferentiatedOp> differentiated;
};

// No target depends on a blob whose gradient is wanted: all these gradients are zero.
class NoDependence : public Error {
 public:
  using Error::Error;
};

// Appends to `net`. Throws Error: unknown target, targets that depend on no wanted blob (NoDependence), a needed value
// overwritten (the text has the words "version"), an operator without a derivative on the way.
GradientResult add_gradient_operators(NetDef& net, const GradientRequest& request);

}  // namespace stepnet
