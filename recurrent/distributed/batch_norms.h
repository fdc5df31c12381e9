// Batch norm over ranks that train together: the mean and the variance of what all of them have, in place of those of
// each rank's part of the batch. Threads: pure functions.
#pragma once

#include <string>

#include "stepnet/net.h"

namespace stepnet {

// Makes SyncBatchNorm and SyncSpatialBN (operators/collective/sync_batch_norm.cc) of the net's BatchNorm and SpatialBN,
// but for those with is_test. `world`: the blob of the common world; `share`: that of what the rank's batch is of that
// of all. Throws Error for one that stands in a net inside the net, such as a step net: how often that runs is a matter
// of its rank alone.
void synchronize_batch_norms(NetDef& net, const std::string& world, const std::string& share);

}  // namespace stepnet
