// What operators on blobs keep between a forward and a backward pass, for whoever runs these apart from each other.
//
// Threads: registration runs before main.
#pragma once

#include <optional>
#include <vector>

#include "stepnet/workspace.h"

namespace stepnet {

// The tensors that an object keeps. They may be emptied, and must be what they were when a backward pass runs.
using KeptTensors = std::vector<Tensor*>;

// Adds a function for objects of one type, which does as `settle_kept` says, or nothing if the blob holds another.
bool register_settling(std::optional<KeptTensors> (*settle)(Blob&));
// Tells the object in the blob that it has run for now: it lets go of everything but what a backward pass reads. No
// tensors if the blob holds no such object.
KeptTensors settle_kept(Blob& blob);

}  // namespace stepnet
