// CUDA kernels for CopyCPUToGPU and the like. Meaning and derivative: see operators/shape/copy_cpu_to_gpu.cc.
#include "core/operator/operator.h"
#include "operators/loops/copy_elements.h"

namespace stepnet::gpu_copy_cpu_to_gpu {
namespace {

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

}  // namespace
}  // namespace stepnet::gpu_copy_cpu_to_gpu
