// Which operators of a net are computed together on a GPU: a product and the Relu behind it that alone reads its
// result.
//
// The product's kernel writes where Relu's result is to be, and may put Relu into the product
// (core/compute/product_epilogue.h); if it has not, Relu works there in place. Either Relu writes over the product's
// result anyway, or this result is one that the net lets go of behind it, and then has no bytes at all. The two are
// neighbours in the net, so that nothing between them reads or writes what they do. Threads: pure functions.
#pragma once

#include <span>
#include <vector>

#include "core/net/dataflow.h"
#include "core/net/net_sharing.h"

namespace stepnet {

// By operator: whether it is such a product, and Relu the next operator. `releases`: the net lets go of intermediates.
std::vector<bool> find_merges(std::span<const NetStep> steps, const Dataflow& flow,
                              std::span<const StepSharing> sharing, bool releases);

}  // namespace stepnet
