// LE: C says where A <= B, with broadcasting on request; NaN gives false. Gradients end here.

#include "operators/pointwise/elementwise_binary.h"

namespace stepnet {
namespace {

template <class T>
void forward(const BroadcastArgs& args, In<T> a, In<T> b, Out<bool> c, Call& call) {
  elementwise_binary<std::less_equal<T>>(args, a, b, c, call);
}

REGISTER(le) {
  return predicate_op("LE", "<=")
      .doc("Where A is at most B, element by element.")
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>);
}

}  // namespace
}  // namespace stepnet
