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
#include "gpu/runtime/divider.h"

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

// How a chain is launched: each of `count` threads has `lanes` neighbouring elements of a row, which are so many groups
// as `groups` divides by.
struct ChainLaunch {
  int lanes = 1;
  Divider groups;
  size_t count = 0;
};
// Of operands whose elements have so many bytes: rows that follow each other without a gap count as one, and there are
// several lanes, `most`, where all operands begin and go on at addresses that allow it, and there is enough to do.
ChainLaunch chain_launch(const FusedOperands& operands, int tensors, size_t bytes, int most, int64_t width,
                         int64_t rows);

// CUDA C++ of two kernels
//   extern "C" __global__ void chain(const Operands, const Divider groups, unsigned long long count)
// and chain_lanes, that do these instructions for every element; every thread does its elements from the first
// instruction to the last. There is no chain_lanes if there is one lane only.
std::string fused_source(DType dtype, const std::vector<FusedInstruction>& code, int tensors);
// How many elements a thread of chain_lanes has: 16 bytes, or fewer where their values would not stay in registers.
int fused_lanes(DType dtype, const std::vector<FusedInstruction>& code);

// Parts of it: the type `Element` of what is stored, with load and store; and what an instruction makes of two
// variables.
std::string element_source(DType dtype);
std::string fused_value_source(DType dtype, const FusedInstruction& i, const std::string& a, const std::string& b);

// A kernel that was compiled at run time.
class CompiledChain {
 public:
  virtual ~CompiledChain() = default;
  virtual void launch(cudaStream_t stream, const FusedOperands& operands, const ChainLaunch& launch) const = 0;
};
// Null where there is no compiler at run time. `lanes`: fused_lanes of the chain.
std::unique_ptr<CompiledChain> compile_chain(int device, const std::string& source, int lanes);

}  // namespace stepnet::gpu
