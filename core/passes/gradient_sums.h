// GradientSums: the operators that add up the gradients of one blob.
//
// Dense gradients are added by a Sum, in place in the first that nobody else needs. Sparse ones are put behind one
// another, rows and indices; beside a dense one they are made dense first.
// Threads: none shared.
#pragma once

#include <string>
#include <vector>

#include "core/passes/gradient_names.h"
#include "stepnet/gradients.h"

namespace stepnet {

// Adds an operator of the backward pass, on the device and from the place of the operator that it is for.
OperatorDef& append_gradient_op(NetDef& net, const std::string& type, const OperatorDef& like);

// Adds one that makes a dense copy called `name` of a gradient, and returns that name. `like`: a blob of its shape,
// which rows are written out by. The copy is like the net's first operator's: on its device, and from its place.
std::string append_dense_copy(NetDef& net, const GradientName& gradient, const std::string& like,
                              const std::string& name);

class GradientSums {
 public:
  GradientSums(NetDef& net, GradientNames& names) : net_(net), names_(names) {}

  // The total of a blob's gradients, of which there are at least two. They are released, and the total is held.
  GradientName add_up(const std::string& blob, std::vector<GradientName> list, const OperatorDef& like);
  // Rows and their indices written out as a tensor like the blob; they are released, and the result is held.
  GradientName make_dense(const std::string& blob, const GradientName& sparse, const OperatorDef& like);

 private:
  GradientName add_up_dense(const std::string& blob, std::vector<GradientName>& list, const OperatorDef& like);
  GradientName add_up_sparse(const std::string& blob, const std::vector<GradientName>& list, const OperatorDef& like);

  NetDef& net_;
  GradientNames& names_;
};

}  // namespace stepnet
