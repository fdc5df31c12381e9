// NE: C says where A != B, with broadcasting on request; NaN differs from everything. Gradients end here.

#include "operators/pointwise/elementwise_binary.h"

namespace stepnet {
namespace {

template <class T>
void forward(const BroadcastArgs& args, In<T> a, In<T> b, Out<bool> c, Call& call) {
  elementwise_binary<std::not_equal_to<T>>(args, a, b, c, call);
}

REGISTER(ne) {
  return predicate_op("NE", "!=", kIntegerExamples)
      .doc("Where A differs from B, element by element.")
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>, forward<bool>);
}

}  // namespace
}  // namespace stepnet
