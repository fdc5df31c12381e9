// Refuses, when the library is loaded, a CPU that lacks the instructions that the library is built for; without this
// such a machine would die of an illegal instruction. This file is itself built for any x86-64.
#if defined(__x86_64__)
#include <cstdio>
#include <cstdlib>

namespace {

// Before all other initialisers of the library, which may already use the instructions.
[[gnu::constructor(101)]] void refuse_old_cpu() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return;
  std::fputs("Stepnet needs a CPU with AVX2, FMA and BMI2 (x86-64-v3), and this one has not all of them.\n", stderr);
  std::_Exit(1);
}

}  // namespace
#endif
