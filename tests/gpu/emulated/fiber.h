// Fibers of the imitated runtime: stacks between which a thread of the host changes.
//
// A switch is exchange between before_switch, on the stack that is left, and behind_switch, on the one that goes on,
// which tell the address sanitizer of it.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulated {

// Where a fiber goes on. There are some thousand switches for each block, so they are not left to ucontext, which asks
// the kernel each time, where another way is at hand.
#if defined(__x86_64__)
struct Context {
  void* stack = nullptr;  // on which the registers are that a function has to keep
};
#else
struct Context {
  ucontext_t context{};
};
#endif

// Leaves the present context, and goes on with the other.
void exchange(Context& leave, Context& enter);
// The context begins with `main`, which never returns.
void prepare(Context& context, char* stack, size_t bytes, void (*main)());

// `save`: of the fiber that is left; then the stack that is entered.
void before_switch(void** save, const void* bottom, size_t size);
// `saved`: of the fiber that goes on; then where to put the stack that was left.
void behind_switch(void* saved, const void** bottom, size_t* size);

}  // namespace emulated
