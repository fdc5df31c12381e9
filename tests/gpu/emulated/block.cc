// Blocks of threads of the imitated runtime, of as many threads as on a real device: one after another as long as
// nobody synchronises, else as fibers.
//
// A block runs thread by thread on one stack of its own. A thread that comes to __syncthreads leaves this stack as it
// is, the next one starts on another, and when none is left to start, those that wait go on in turn. Stacks stay for
// the blocks that follow.
#include <cuda_runtime.h>

#include <deque>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulated {
namespace {

constexpr size_t kStack = size_t{256} << 10;

// Where a fiber goes on. There are some thousand switches for each block, so they are not left to ucontext, which asks
// the kernel each time, where another way is at hand.
#if defined(__x86_64__)
struct Context {
  void* stack = nullptr;  // on which the registers are that a function has to keep
};

// Leaves the present context, and goes on with the other.
extern "C" void emulated_switch(void** leave, void* enter);
asm(R"(
  .text
  .type emulated_switch, @function
emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size emulated_switch, .-emulated_switch
)");

void exchange(Context& leave, Context& enter) { emulated_switch(&leave.stack, enter.stack); }
// As if `main` had been called by nobody, and had been left before its first instruction.
void prepare(Context& context, char* stack, void (*main)()) {
  auto* top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(stack + kStack) / 16 * 16);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(main);
  for (int kept = 0; kept < 6; ++kept) *--top = nullptr;
  context.stack = top;
}
#else
struct Context {
  ucontext_t context{};
};

void exchange(Context& leave, Context& enter) { swapcontext(&leave.context, &enter.context); }
void prepare(Context& context, char* stack, void (*main)()) {
  getcontext(&context.context);
  context.context.uc_stack.ss_sp = stack;
  context.context.uc_stack.ss_size = kStack;
  context.context.uc_link = nullptr;
  makecontext(&context.context, main, 0);
  context.context.uc_stack.ss_size = 0;  // else the address sanitizer forgets what it knows of the stack at each switch
}
#endif

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
  prepare(f.context, f.stack.get(), fiber_main);
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
