// Chains of elementwise instructions as one kernel: compiled from generated source where NVRTC is there, else read
// instruction by instruction.
//
// Chains of halves compute in float: a tensor's element becomes float where it is read and is rounded where it is
// written, and what only the chain reads is never rounded. So results differ from those of the operators one by one by
// the roundings that are left out.
//
// Threads: chains may be used from several threads.
#pragma once

#include <memory>
#include <string>

#include "core/compute/backend.h"
#include "gpu/runtime/device.h"

namespace stepnet::gpu {

std::shared_ptr<const FusedChain> make_fused_chain(int device, DType dtype, const std::vector<FusedInstruction>& code,
                                                   int tensors);

// A kernel's parameters, of which a generated one has a declaration of its own (chain_source.cc): here no operand has
// fewer rows than the chain.
struct FusedOperands {
  struct Operand {
    void* first;
    int64_t stride, step;
  };
  Operand tensors[kMostFusedTensors];
};

// CUDA C++ of a kernel
//   extern "C" __global__ void chain(const Operands, long long width, long long rows)
// that does these instructions for every element; every thread does some elements from first to last.
std::string fused_source(DType dtype, const std::vector<FusedInstruction>& code, int tensors);

// Parts of it: the type `Element` of what is stored, with load and store; and what an instruction makes of two
// variables.
std::string element_source(DType dtype);
std::string fused_value_source(DType dtype, const FusedInstruction& i, const std::string& a, const std::string& b);

// A kernel that was compiled at run time.
class CompiledChain {
 public:
  virtual ~CompiledChain() = default;
  virtual void launch(cudaStream_t stream, const FusedOperands& operands, int64_t width, int64_t rows) const = 0;
};
// Null where there is no compiler at run time.
std::unique_ptr<CompiledChain> compile_chain(int device, const std::string& source);

}  // namespace stepnet::gpu
