// Which elements of a net's blobs belong to which sample of a batch.
//
// Found from shapes and from what operators say of their rows (OpBuilder::rowwise, reshapes), step nets included. What
// they do not say is taken to mix samples, so that an answer is never wrong.
// Threads: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stepnet/op_spec.h"
#include "stepnet/proto/recurrent.pb.h"

namespace stepnet {

struct SampleBlob {
  static constexpr int64_t kMixed = -1;

  TensorType type;
  // Element e, in the order of memory, belongs to sample (e / inner) mod samples. 0: none depends on a sample. kMixed:
  // an element may depend on several, or nothing is known.
  int64_t inner = 0;

  bool holds_samples() const { return inner > 0 && type.known; }
};

// By name; what stands for "" is never looked at.
struct SampleBlobs {
  int64_t samples = 0;
  std::map<std::string, SampleBlob> blobs;

  const SampleBlob& at(const std::string& name) const;  // mixed if it is not there
};

// A blob that is fed, whose dimension `axis` is that of samples. Throws Error if it has not as many.
SampleBlob fed_samples(const std::string& name, const TensorType& type, int axis, int64_t samples);

// Of an operator that is no network, its outputs, of which "" are mixed.
std::vector<SampleBlob> traced_outputs(const OperatorDef& op, const SampleBlobs& known);
// Adds the outputs of an operator; networks are in short form.
void trace_samples(const OperatorDef& op, SampleBlobs& known);

// The argument as a whole number.
int64_t int_arg(const OperatorDef& op, const char* name, int64_t otherwise);
// True if it looks rows of a table up, of the first of two inputs, by the indices that the second has.
bool looks_rows_up(const OperatorDef& op);
// True if it is a MatMul whose rows are those of its first input as it stands.
bool multiplies_rows(const OperatorDef& op);

// The blobs that the step net of a network in short form finds in every timestep, and its outputs, from what its step
// net has made of these.
SampleBlobs enter_step_net(const RecurrentDef& def, const SampleBlobs& outside);
void leave_step_net(const RecurrentDef& def, const SampleBlobs& inside, SampleBlobs& outside);

}  // namespace stepnet
