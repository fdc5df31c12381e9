// CUDA kernels for the operators of operators/shape/copy.cc, where their meaning and derivatives stand.
#include "gpu/runtime/launch.h"
#include "operators/loops/copy_elements.h"
#include "stepnet/operator.h"

namespace stepnet::gpu_copy {
namespace {

void share(const Tensor& x, Tensor& y) { y = x; }

REGISTER(alias_cuda) { return cuda("Alias", share); }

REGISTER(copy_cuda) { return cuda("Copy", copy_values); }

// The framework gave y a place on the operator's device, which is not where it belongs.
void copy_to_cpu(const Tensor& x, Tensor& y) {
  Tensor copy = Tensor::empty(x.dtype(), x.shape());
  copy.copy_from(x);
  y = std::move(copy);
}

REGISTER(copy_cpu_to_gpu_cuda) { return cuda("CopyCPUToGPU", copy_values); }
REGISTER(copy_gpu_to_cpu_cuda) { return cuda("CopyGPUToCPU", copy_to_cpu); }
REGISTER(copy_from_cpu_input_cuda) { return cuda("CopyFromCPUInput", copy_values); }
REGISTER(ensure_cpu_output_cuda) { return cuda("EnsureCPUOutput", copy_to_cpu); }

// Of several GPUs the result stays on the operator's.
void copy_like(const Tensor& x, const Tensor& like, Tensor& y, Call& call) {
  like.device().kind == DeviceKind::cpu ? copy_to_cpu(x, y) : copy_values(x, y);
  if (call.wants(1)) call.out(1) = Tensor::empty(DType::uint8, {0}, x.device());
}

REGISTER(copy_on_device_like_cuda) { return cuda("CopyOnDeviceLike", copy_like); }

}  // namespace
}  // namespace stepnet::gpu_copy
