#include "tests/gpu/emulated/fiber.h"

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulated {

#if defined(__x86_64__)
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
void prepare(Context& context, char* stack, size_t bytes, void (*main)()) {
  auto* top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(stack + bytes) / 16 * 16);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(main);
  for (int kept = 0; kept < 6; ++kept) *--top = nullptr;
  context.stack = top;
}
#else
void exchange(Context& leave, Context& enter) { swapcontext(&leave.context, &enter.context); }
void prepare(Context& context, char* stack, size_t bytes, void (*main)()) {
  getcontext(&context.context);
  context.context.uc_stack.ss_sp = stack;
  context.context.uc_stack.ss_size = bytes;
  context.context.uc_link = nullptr;
  makecontext(&context.context, main, 0);
  context.context.uc_stack.ss_size = 0;  // else the address sanitizer forgets what it knows of the stack at each switch
}
#endif

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

}  // namespace emulated
