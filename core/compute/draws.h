// Many random draws, as stepnet/random.h makes one, built for several instruction sets. Threads: pure functions.
#pragma once

#include <cstdint>

namespace stepnet {

struct DrawKernels {
  // to[i] = random_uniform(key, first + i)
  void (*uniform)(uint64_t key, uint64_t first, int64_t count, double* to);
};

const DrawKernels& draw_kernels_plain();  // for every CPU that the library runs on
const DrawKernels* draw_kernels_wide();   // for x86-64-v4; null if this CPU is none
const DrawKernels& draw_kernels();        // the best of them

inline void random_uniforms(uint64_t key, uint64_t first, int64_t count, double* to) {
  draw_kernels().uniform(key, first, count, to);
}

}  // namespace stepnet
