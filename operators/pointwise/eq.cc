// EQ: C says where A == B, with broadcasting on request; NaN equals nothing. Gradients end here.

#include "operators/pointwise/elementwise_binary.h"

namespace stepnet {
namespace {

template <class T>
void forward(const BroadcastArgs& args, In<T> a, In<T> b, Out<bool> c, Call& call) {
  elementwise_binary<std::equal_to<T>>(args, a, b, c, call);
}

REGISTER(eq) {
  return predicate_op("EQ", "==", kIntegerExamples)
      .doc("Where A equals B, element by element.")
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>, forward<bool>);
}

}  // namespace
}  // namespace stepnet
