// Kernels compiled at run time by NVRTC, which needs no GPU for it.
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

namespace stepnet::gpu {

// Machine code for a compute capability such as 90. Throws Error with the compiler's words, or if there is no NVRTC.
// `assembler`: null, or what the assembler says of registers and memory.
std::vector<char> compile_kernel(const std::string& source, int capability, std::string* assembler = nullptr);

// Whether there is an NVRTC, and it knows that capability.
bool can_compile_for(int capability);

}  // namespace stepnet::gpu
