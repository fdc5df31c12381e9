// CUDA kernels for EQ, NE, LT, LE, GT and GE. Meaning: see operators/pointwise/compare.cc.
#include "gpu/loops/elementwise.h"

namespace stepnet::gpu_compare {
namespace {

template <class Comparison, class T>
void forward(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<bool> c, Call& call) {
  gpu::binary<Comparison>(args, a, b, c, call);
}

template <class Comparison, class... T>
Registration compare(const char* type) {
  return cuda<BroadcastArgs>(type, forward<Comparison, float>, forward<Comparison, double>,
                             forward<Comparison, int32_t>, forward<Comparison, int64_t>, forward<Comparison, T>...);
}

REGISTER(eq_cuda) { return compare<std::equal_to<>, bool>("EQ"); }
REGISTER(ne_cuda) { return compare<std::not_equal_to<>, bool>("NE"); }
REGISTER(lt_cuda) { return compare<std::less<>>("LT"); }
REGISTER(le_cuda) { return compare<std::less_equal<>>("LE"); }
REGISTER(gt_cuda) { return compare<std::greater<>>("GT"); }
REGISTER(ge_cuda) { return compare<std::greater_equal<>>("GE"); }

}  // namespace
}  // namespace stepnet::gpu_compare
