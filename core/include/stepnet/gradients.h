// The derivatives of a net as operators of it: the backward pass, appended (add_gradient_operators), and directional
// derivatives, computed beside the values (add_tangent_operators).
//
// Names of gradients follow the public format: the gradient of x is x_grad; with several consumers the others are
// _x_grad_autosplit_<n>, and a Sum adds them in place into x_grad; sparse gradients are x_grad_indices and
// x_grad_values. Gradients of nets that have gradients are called g2/x_grad, then g3/x_grad, and written once each, so
// that these can be differentiated in turn; GradientResult tells which name is whose. Every write makes a new version
// of a blob; a formula that must read a version which is later overwritten is an Error, and only formulas of gradients
// that are needed are emitted, so only what they read is kept. Threads: pure functions.
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
  std::map<std::string, std::string> shapes;  // of what the backward pass writes: another blob that has its shape
};

// No target depends on a blob whose gradient is wanted: all these gradients are zero.
class NoDependence : public Error {
 public:
  using Error::Error;
};

// Appends to `net`. Throws Error: unknown target, targets that depend on no wanted blob (NoDependence), a needed value
// overwritten (the text has the words "version"), an operator without a derivative on the way.
GradientResult add_gradient_operators(NetDef& net, const GradientRequest& request);

// Forward mode. The tangent of a blob y(x) for a direction v of x is J v, J being the Jacobian of y: what
// (y(x + h v) - y(x)) / h goes to as h does to 0. It has the type and shape of y.
struct TangentRequest {
  // Blobs that the direction moves, each with the name of its tangent, which the caller feeds; "" for x_tangent, or
  // x_tangent_1, ... if the net has that name. What comes from outside is meant, or else what the net leaves behind.
  std::map<std::string, std::string> given;
  // Blobs whose tangents are needed; empty: the external outputs, or every blob if the net lists none.
  std::set<std::string> wanted;
  // Blobs that are taken to be constant.
  std::set<std::string> stop;
  // The net is a step net, see GradientRequest.
  bool fixed_storages = false;
};

struct TangentResult {
  // Blob to tangent: those given, and those wanted that depend on them; the others' tangents are zero.
  std::map<std::string, std::string> tangents;
};

// Puts operators for the tangents beside those of the net, each behind or, if that works in place, before the operator
// that it is of; only those that something wanted needs. A RecurrentNetwork becomes one that computes both. Tangents
// are derived from the derivatives: J v is the gradient, for the output's, of <J^T u, v>, which does not depend on u.
// So a net with tangents can be differentiated again, in both ways: the gradients of the tangent of a loss are the
// Hessian times v. Networks in short form are expanded first. Throws Error: a blob that is not there, a needed value
// overwritten by others, an operator without a derivative on the way.
TangentResult add_tangent_operators(NetDef& net, const TangentRequest& request);

}  // namespace stepnet
