// Blocks of threads of the imitated runtime: one after another as long as nobody synchronises, else as fibers.
//
// A block runs thread by thread on one stack of its own. A thread that comes to __syncthreads leaves this stack as it
// is, the next one starts on another, and when none is left to start, those that wait go on in turn.
#include <cuda_runtime.h>
#include <ucontext.h>

#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulated {
namespace {

constexpr size_t kStack = size_t{256} << 10;
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kLastFrames = size_t{16} << 10;  // more than fiber_main and what it calls last take of a stack
#endif

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<char[]> stack;
  unsigned thread = 0;  // the one that waits here
  bool done = false;
  void* fake_stack = nullptr;
};

struct Scheduler {
  ucontext_t main{};
  std::vector<Fiber> fibers;
  size_t now = 0;
  unsigned threads = 0, begun = 0;
  const std::function<void()>* body = nullptr;
  const void* main_stack = nullptr;
  size_t main_size = 0;
};

thread_local Scheduler* scheduler = nullptr;

void before_switch([[maybe_unused]] void** save, [[maybe_unused]] const void* bottom, [[maybe_unused]] size_t size) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(save, bottom, size);
#endif
}
void behind_switch([[maybe_unused]] void* saved, [[maybe_unused]] const void** bottom, [[maybe_unused]] size_t* size) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(saved, bottom, size);
#endif
}

void fiber_main() {
  Scheduler& s = *scheduler;
  Fiber& f = s.fibers[s.now];
  behind_switch(nullptr, &s.main_stack, &s.main_size);
  while (s.begun < s.threads) {
    threadIdx.x = f.thread = s.begun++;
    (*s.body)();
  }
  f.done = true;
  before_switch(nullptr, s.main_stack, s.main_size);
  swapcontext(&f.context, &s.main);
}

void prepare(Fiber& f) {
  if (!f.stack) f.stack = std::make_unique<char[]>(kStack);
  f.done = false;
#if defined(__SANITIZE_ADDRESS__)
  // The frames that never returned when the stack was used before: they are where it begins.
  __asan_unpoison_memory_region(f.stack.get() + kStack - kLastFrames, kLastFrames);
#endif
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack.get();
  f.context.uc_stack.ss_size = kStack;
  f.context.uc_link = nullptr;
  makecontext(&f.context, fiber_main, 0);
  f.context.uc_stack.ss_size = 0;  // else the address sanitizer forgets all that it knows of the stack at each switch
}

void switch_to(Scheduler& s, size_t fiber) {
  s.now = fiber;
  Fiber& f = s.fibers[fiber];
  threadIdx.x = f.thread;
  void* saved = nullptr;
  before_switch(&saved, f.stack.get(), kStack);
  swapcontext(&s.main, &f.context);
  behind_switch(saved, nullptr, nullptr);
}

}  // namespace

void run_block(unsigned block, unsigned blocks, unsigned threads, const std::function<void()>& body) {
  static thread_local Scheduler here;
  scheduler = &here;
  here.body = &body;
  if (here.fibers.size() < threads) here.fibers.resize(threads);
  blockIdx.x = block;
  gridDim.x = blocks;
  blockDim.x = threads;
  if (threads == 1) {
    threadIdx.x = 0;
    return body();
  }
  here.threads = threads;
  here.begun = 0;
  size_t used = 0;
  while (here.begun < threads) {
    prepare(here.fibers[used]);
    switch_to(here, used++);
  }
  for (bool any = true; any;) {
    any = false;
    for (size_t i = 0; i < used; ++i) {
      if (here.fibers[i].done) continue;
      switch_to(here, i);
      any |= !here.fibers[i].done;
    }
  }
}

}  // namespace emulated

void __syncthreads() {
  emulated::Scheduler& s = *emulated::scheduler;
  emulated::Fiber& f = s.fibers[s.now];
  emulated::before_switch(&f.fake_stack, s.main_stack, s.main_size);
  swapcontext(&f.context, &s.main);
  emulated::behind_switch(f.fake_stack, &s.main_stack, &s.main_size);
}
