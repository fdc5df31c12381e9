// CUDA kernel for Scan. Meaning and derivative: see operators/reduce/scan.cc.
#include "operators/reduce/scan.h"

#include "gpu/runtime/launch.h"

namespace stepnet::gpu_scan {
namespace {

// A thread for each element behind the timesteps: neighbours read neighbouring elements.
template <class T>
void forward(const ScanArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::In<T> first, gpu::Out<T> h, gpu::Out<T> last,
             Call& call) {
  const ScanRows rows(args, call.in(0).shape());
  const bool leaving = args.leaving;
  gpu::each(call, static_cast<size_t>(rows.inner), [=] __device__(size_t i) {
    T state = first.data ? first[i] : T(0);  // on leaving, multiplied already
    for (int64_t k = 0; k < rows.steps; ++k) {
      const size_t at = static_cast<size_t>(rows.row(k)) + i;
      const T factor = a[at], next = (leaving ? state : factor * state) + b[at];
      if (h.data) h[at] = next;
      state = leaving ? factor * next : next;
    }
    if (last.data) last[i] = state;
  });
}

REGISTER(scan_cuda) { return cuda<ScanArgs>("Scan", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_scan
