// How the imitated device runs kernels of timesteps: by their plans, or by the source that NVRTC would get, compiled
// for the host. That takes a second or two for each source, once in a process, so it is for whoever asks: here, or by
// STEPNET_EMULATED_LOOPS=source in the environment, in which a number of an order may stand behind it (source:3).
//
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "gpu/runtime/loop_plan.h"
#include "tests/gpu/emulated/loop_threads.h"

namespace emulated {

struct LoopRuns {
  bool by_source = false;
  unsigned seed = 0;                              // of the order of threads
  std::function<void(std::string& body)> change;  // what a test breaks in loop_body's text
  int64_t launches = 0;                           // by source, so far
};
LoopRuns& loop_runs();

// Whether the next launch is by source, and in which order.
bool runs_by_source();
unsigned order_of_threads();

// The plan's kernel, compiled for the host. Throws stepnet::Error with the compiler's words.
std::shared_ptr<const LoopKernel> compile_for_host(const stepnet::gpu::LoopPlan& plan);

}  // namespace emulated
