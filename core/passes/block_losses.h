// A language model's loss without its scores: FC and SoftmaxWithLoss become FCSoftmaxWithLoss, which works on a block
// of rows at a time (operators/loss/fc_softmax_with_loss.cc). Scores, probabilities and the scores' gradient are then
// never whole in memory.
//
// It is done where nobody else reads scores or probabilities, or has their bytes: no other operator of the forward or
// the backward pass, no net inside an operator, nobody outside. On a CPU, for labels (not for distributions, which are
// as large as scores), where the weights of rows have no wanted gradient, for parameters in float32 or float64, and
// from a size on: what fits into the cache is not worth it. Loss and gradients differ by roundings.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "stepnet/gradients.h"
#include "stepnet/op_spec.h"

namespace stepnet {

// Bytes of a net's scores from which on they are not made whole.
inline constexpr int64_t kLeastScoreBytes = int64_t{16} << 20;

// Rewrites a net that is to be differentiated as `request` says, or, if that is null, is not. Returns how many losses
// have changed. `types`: of blobs that are there before the net runs; where those of the FC's weights or the labels are
// not among them, the loss stays as it is. Throws Error as add_gradient_operators.
int block_losses(NetDef& net, const GradientRequest* request, const std::map<std::string, TensorType>& types,
                 int64_t least_bytes = kLeastScoreBytes);

// Lets the forward part of a net that has been differentiated leave gradients where the backward pass has them, so that
// it multiplies them in place. To be done last: plans of what runs again (core/passes/recompute.h) take values of the
// forward part to be gone once the gradients of their operators have been computed.
void leave_gradients_in_place(NetDef& net, GradientResult& result);

}  // namespace stepnet
