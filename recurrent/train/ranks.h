// Ranks: the processes that train a model together, each on its part of every batch, with the same parameters, or each
// with its own layers of the model (recurrent/train/wavefront.h).
//
// All of them must make the same calls in the same order. Threads: one thread at a time. Errors: Error if they do not,
// or if others do not come in time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/checkpoint.h"
#include "stepnet/device.h"
#include "stepnet/net.h"
#include "stepnet/op_spec.h"
#include "stepnet/tensor.h"

namespace stepnet {

// A gradient that is added up over the ranks, of the type and shape of its parameter. Only those of one group share a
// shard. A sparse one is not there yet: its blob is made of the rows of all ranks.
struct ReducedGradient {
  std::string name, parameter;
  TensorType type;
  std::string group = {};
  std::string indices = {}, values = {};
  bool is_sparse() const { return !values.empty(); }
};

// Some parameters behind each other, of which each rank has as many elements as the others, the last one's filled up
// with zeros.
struct ParameterShard {
  std::string gradient;                 // blob: the rank's part of the sum of their gradients
  TensorType type;                      // [N], of the rank's part
  std::vector<std::string> parameters;  // all of their elements
};

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  bool is_first() const { return rank() == 0; }
  // Of the machine that this rank runs on: how many ranks are there, how many cores these may use together, and which
  // of these ranks this one is.
  virtual int ranks_here() const = 0;
  virtual int cores_here() const = 0;
  virtual int place_here() const = 0;
  // Whether tensors of that device can be added up over the ranks.
  virtual bool moves(Device device) const = 0;

  // The sums over all ranks, element by element.
  virtual std::vector<double> sum(std::vector<double> values) const = 0;
  // Every rank gets what the first one has; a tensor must be of one type and shape everywhere.
  virtual void broadcast(Tensor& value) const = 0;
  virtual void broadcast(Checkpoint& contents) const = 0;
  // [1, size() * b, ...], the parts [1, b, ...] of all ranks in their order.
  virtual Tensor gather(const Tensor& part) const = 0;
  // The first rank also gets the others' tensors, in the CPU's memory.
  virtual void collect(std::map<std::string, Tensor>& tensors) const = 0;

  // Makes the blob that the operators of add_reductions read.
  virtual void enter(Workspace& workspace) const = 0;
  virtual const std::string& blob() const = 0;
  // Lets the batch norms of a forward net measure all ranks' batches together (recurrent/distributed/batch_norms.h).
  // `share`: the blob of what the rank's batch is of that of all.
  virtual void synchronize_batch_norms(NetDef& net, const std::string& share) const = 0;
  // Lets a training net add gradients up over the ranks: each is sent as soon as the operators so far have made it, a
  // sparse one behind all operators so far, and at the end of the net all of them are the sums. `move_as`: the type
  // that they have on their way, float32 for their own, or bfloat16.
  virtual void add_reductions(NetDef& net, const std::vector<ReducedGradient>& gradients, DType move_as) const = 0;
  // The same, but each rank gets its part of the sums only.
  virtual std::vector<ParameterShard> add_sharded_reductions(NetDef& net, const std::vector<ReducedGradient>& gradients,
                                                             DType move_as) const = 0;
};
using RanksPtr = std::shared_ptr<const Ranks>;

}  // namespace stepnet
