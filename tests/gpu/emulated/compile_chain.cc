// The imitated device has no compiler: chains are read instruction by instruction.
#include "gpu/runtime/chain_kernel.h"

namespace stepnet::gpu {

std::unique_ptr<CompiledChain> compile_chain(int, const std::string&, int) { return nullptr; }

}  // namespace stepnet::gpu
