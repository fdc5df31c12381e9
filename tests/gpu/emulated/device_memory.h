// What the imitated runtime has given by cudaMalloc. Threads: one.
#pragma once

namespace emulated {

// Whether it is within that, and not given back yet.
bool is_device_memory(const void* data);

}  // namespace emulated
