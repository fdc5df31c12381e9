// Jacobians and Hessians of nets in one backward pass for all rows (core/passes/batched_rows.h).
//
// Row i of the Jacobian of y is the gradient for a given gradient that is 1 at element i of y and 0 elsewhere. The
// operators of the backward pass are rewritten to run for all of these at once. The Hessian of a loss is the Jacobian
// of its gradient. Threads: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stepnet/gradients.h"
#include "stepnet/op_spec.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

struct JacobianRequest {
  std::string output;               // what is differentiated; of a Hessian the loss, of one element
  std::vector<std::string> inputs;  // with respect to these
  // Of all that the net reads: the result is for these shapes. Values are only needed where a shape depends on them.
  std::map<std::string, TensorType> types;
};

// Appends operators that compute the Jacobian. Returns, by input, a blob [elements of the output, the input's shape].
// Networks must be in full form. Throws Error: a blob that is not there, an input that the output does not depend on
// (NoDependence), types that do not say the shape of the output, and what add_gradient_operators refuses.
std::map<std::string, std::string> add_jacobian_operators(NetDef& net, const JacobianRequest& request);

// Appends operators that compute second derivatives. Returns, by inputs a and b, a blob [elements of a, b's shape]: the
// derivatives by b of the loss's gradient with respect to a. Throws Error as above; a loss of several elements.
std::map<std::pair<std::string, std::string>, std::string> add_hessian_operators(NetDef& net,
                                                                                 const JacobianRequest& request);

}  // namespace stepnet
