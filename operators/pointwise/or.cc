// Or: C says where A or B or both are true, with broadcasting on request. Gradients end here.

#include "operators/pointwise/elementwise_binary.h"

namespace stepnet {
namespace {

void forward(const BroadcastArgs& args, In<bool> a, In<bool> b, Out<bool> c, Call& call) {
  elementwise_binary<std::logical_or<>>(args, a, b, c, call);
}

REGISTER(logical_or) {
  return predicate_op("Or", "or", kBoolExamples)
      .doc("Where A or B or both are true, element by element.")
      .in_place("A", "C")
      .in_place("B", "C")
      .cpu(forward);
}

}  // namespace
}  // namespace stepnet
