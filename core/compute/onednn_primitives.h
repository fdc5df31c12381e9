// What all primitives of oneDNN share: the CPU, and the rules by which threads make and run them.
// Threads: any. Errors: oneDNN's own, dnnl::error.
#pragma once

#include <dnnl.hpp>
#include <mutex>
#include <span>

namespace stepnet::onednn {

const dnnl::engine& cpu();

// oneDNN takes the number of threads from OpenMP, some primitives when they are made; the team of
// core/compute/threads.h shares work out instead, and OpenMP's threads, which wait for more of it awake, would be in
// its way.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// Alive while a primitive or its description is made. One thread at a time does so: oneDNN shares them in a cache of
// its own, behind locks that the thread sanitizer does not see.
class Making {
 public:
  Making();

 private:
  std::lock_guard<std::mutex> lock_;
  OneThread limit_;
};

// Runs a primitive, by the calling thread alone. The C++ interface's own way, with a map of the arguments, allocates in
// every call.
void execute(const dnnl::primitive& primitive, std::span<const dnnl_exec_arg_t> arguments);

// oneDNN's memory takes no pointer to const; it does not write what it only reads.
inline void set_data(dnnl::memory& m, const void* data) { m.set_data_handle(const_cast<void*>(data)); }

}  // namespace stepnet::onednn
