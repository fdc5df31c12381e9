// Xor: C says where one of A and B is true, and not both, with broadcasting on request. Gradients end here.

#include "operators/pointwise/elementwise_binary.h"

namespace stepnet {
namespace {

void forward(const BroadcastArgs& args, In<bool> a, In<bool> b, Out<bool> c, Call& call) {
  elementwise_binary<std::not_equal_to<>>(args, a, b, c, call);
}

REGISTER(logical_xor) {
  return predicate_op("Xor", "xor", kBoolExamples)
      .doc("Where one of A and B is true, and not both, element by element.")
      .in_place("A", "C")
      .in_place("B", "C")
      .cpu(forward);
}

}  // namespace
}  // namespace stepnet
