// Blocks of threads of the imitated runtime, of as many threads as on a real device: one after another as long as
// nobody synchronises, else as fibers.
//
// A block runs thread by thread on one stack of its own. A thread that comes to __syncthreads leaves this stack as it
// is, the next one starts on another, and when none is left to start, those that wait go on in turn. Stacks stay for
// the blocks that follow.
#include <cuda_runtime.h>

#include <deque>
#include <memory>

#include "tests/gpu/emulated/fiber.h"

namespace emulated {
namespace {

constexpr size_t kStack = size_t{256} << 10;

struct Fiber {
  Context context;
  std::unique_ptr<char[]> stack;
  unsigned thread = 0;  // the one that waits here
  bool done = false;
  void* fake_stack = nullptr;
};

struct Scheduler {
  Context main;
  std::deque<Fiber> fibers;  // which refer to themselves
  Fiber* now = nullptr;
  unsigned threads = 0, begun = 0;
  const std::function<void()>* body = nullptr;
  const void* main_stack = nullptr;
  size_t main_size = 0;
};

thread_local Scheduler* scheduler = nullptr;

// From the present fiber back to the scheduler, which comes back some time.
void leave_fiber() {
  Scheduler& s = *scheduler;
  Fiber& f = *s.now;
  before_switch(&f.fake_stack, s.main_stack, s.main_size);
  exchange(f.context, s.main);
  behind_switch(f.fake_stack, &s.main_stack, &s.main_size);
}

// Threads of one block after another, for ever.
void fiber_main() {
  Scheduler& s = *scheduler;
  Fiber& f = *s.now;
  behind_switch(nullptr, &s.main_stack, &s.main_size);
  for (;;) {
    while (s.begun < s.threads) {
      threadIdx.x = f.thread = s.begun++;
      (*s.body)();
    }
    f.done = true;
    leave_fiber();
  }
}

void enter_fiber(Scheduler& s, Fiber& f) {
  s.now = &f;
  threadIdx.x = f.thread;
  void* saved = nullptr;
  before_switch(&saved, f.stack.get(), kStack);
  exchange(s.main, f.context);
  behind_switch(saved, nullptr, nullptr);
}

Fiber& fiber_of(Scheduler& s, size_t number) {
  if (number < s.fibers.size()) return s.fibers[number];
  Fiber& f = s.fibers.emplace_back();
  f.stack = std::make_unique_for_overwrite<char[]>(kStack);
  prepare(f.context, f.stack.get(), kStack, fiber_main);
  return f;
}

}  // namespace

void run_block(unsigned block, unsigned blocks, unsigned threads, const std::function<void()>& body) {
  static thread_local Scheduler here;
  scheduler = &here;
  here.body = &body;
  blockIdx.x = block;
  gridDim.x = blocks;
  blockDim.x = threads;
  here.threads = threads;
  here.begun = 0;
  size_t used = 0;
  while (here.begun < threads) {
    Fiber& f = fiber_of(here, used++);
    f.done = false;
    enter_fiber(here, f);
  }
  for (bool any = true; any;) {
    any = false;
    for (size_t i = 0; i < used; ++i) {
      if (here.fibers[i].done) continue;
      enter_fiber(here, here.fibers[i]);
      any |= !here.fibers[i].done;
    }
  }
}

}  // namespace emulated

void __syncthreads() { emulated::leave_fiber(); }
