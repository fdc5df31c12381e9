// And: C says where both A and B are true, with broadcasting on request. Gradients end here.

#include "operators/pointwise/elementwise_binary.h"

namespace stepnet {
namespace {

void forward(const BroadcastArgs& args, In<bool> a, In<bool> b, Out<bool> c, Call& call) {
  elementwise_binary<std::logical_and<>>(args, a, b, c, call);
}

REGISTER(logical_and) {
  return predicate_op("And", "and", kBoolExamples)
      .doc("Where both A and B are true, element by element.")
      .in_place("A", "C")
      .in_place("B", "C")
      .cpu(forward);
}

}  // namespace
}  // namespace stepnet
