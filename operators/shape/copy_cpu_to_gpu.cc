// CopyCPUToGPU, CopyGPUToCPU, CopyFromCPUInput, EnsureCPUOutput: Y = X, on the device that the name says. On the CPU,
// where both sides are the same, they are copies, so that nets written for a GPU run.
//
// Each one's derivative is the copy in the other direction.

#include "core/operator/operator.h"
#include "operators/loops/copy_elements.h"

namespace stepnet {
namespace {

OpBuilder<> copy_op(const char* type, const char* back, const char* doc) {
  auto spec = op(type);
  spec.doc(doc)
      .input("input", "a tensor of any type")
      .any_type()
      .output("output", "its copy", like("input"))
      .any_type()
      .example({"input=2,3"})
      .cpu(copy_values)
      .derivative("input", [back](Formula& f) { return f.op(back, {f.dy("output")}); });
  return spec;
}

REGISTER(copy_cpu_to_gpu) {
  return copy_op("CopyCPUToGPU", "CopyGPUToCPU", "A copy on the accelerator of a tensor on the CPU.");
}
REGISTER(copy_gpu_to_cpu) {
  return copy_op("CopyGPUToCPU", "CopyCPUToGPU", "A copy on the CPU of a tensor on the accelerator.");
}
REGISTER(copy_from_cpu_input) {
  return copy_op("CopyFromCPUInput", "EnsureCPUOutput", "A copy on the operator's device of a tensor on the CPU.");
}
REGISTER(ensure_cpu_output) {
  return copy_op("EnsureCPUOutput", "CopyFromCPUInput", "A copy on the CPU of a tensor on any device.");
}

}  // namespace
}  // namespace stepnet
