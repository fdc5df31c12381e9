// Ranks: the processes that train a model together, each on its part of every batch, with the same parameters.
//
// All of them must make the same calls in the same order. Threads: one thread at a time. Errors: Error if they do not,
// or if others do not come in time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stepnet/checkpoint.h"
#include "stepnet/net.h"
#include "stepnet/tensor.h"

namespace stepnet {

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  bool is_first() const { return rank() == 0; }

  // The sums over all ranks, element by element.
  virtual std::vector<double> sum(std::vector<double> values) const = 0;
  // Every rank gets what the first one has; a tensor must be of one type and shape everywhere.
  virtual void broadcast(Tensor& value) const = 0;
  virtual void broadcast(Checkpoint& contents) const = 0;
  // [1, size() * b, ...], the parts [1, b, ...] of all ranks in their order.
  virtual Tensor gather(const Tensor& part) const = 0;

  // Makes the blob that the operators of add_reductions read.
  virtual void enter(Workspace& workspace) const = 0;
  virtual const std::string& blob() const = 0;
  // Lets a training net add gradients up over the ranks: each is sent as soon as the operators so far have made it, and
  // at the end of the net all of them are the sums. `parameters`: of each gradient, which has its type and shape.
  virtual void add_reductions(NetDef& net, const std::vector<std::string>& gradients,
                              const std::vector<std::string>& parameters, const Workspace& workspace) const = 0;
};
using RanksPtr = std::shared_ptr<const Ranks>;

}  // namespace stepnet
