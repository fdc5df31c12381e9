// What can be said about launches without being compiled for a device; see gpu/runtime/launch.h. Threads: for all
// threads.
#pragma once

namespace stepnet::gpu {

// Whether every launch is waited for, so that a kernel that fails is told from those behind it. Off at first.
void wait_for_launches(bool on);

}  // namespace stepnet::gpu
