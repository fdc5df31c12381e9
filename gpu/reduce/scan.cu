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
  const ScanPointers<T> p{a.data, b.data, first.data, h.data, last.data};
  gpu::each(call, static_cast<size_t>(rows.inner),
            [=] __device__(size_t i) { scan_element(args, rows, p, static_cast<int64_t>(i)); });
}

REGISTER(scan_cuda) { return cuda<ScanArgs>("Scan", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_scan
