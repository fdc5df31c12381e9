// The program's operator new, which counts.
#include "tests/core/heap_counter.h"

#include <link.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

namespace stepnet::testing {
int64_t heap_allocations() { return 0; }
void skip_heap_while(bool (*)()) {}
bool counts_heap() { return false; }
}  // namespace stepnet::testing

#else

namespace {

std::atomic<int64_t> count{0};
std::atomic<bool (*)()> is_of_others{nullptr};

// Where oneDNN's code is; nothing as long as nobody has asked.
std::atomic<uintptr_t> skipped_begin{0}, skipped_end{0};

int find_skipped(dl_phdr_info* library, size_t, void*) {
  if (std::strstr(library->dlpi_name, "libdnnl") == nullptr) return 0;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const auto& part = library->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    skipped_begin = library->dlpi_addr + part.p_vaddr;
    skipped_end = skipped_begin + part.p_memsz;
  }
  return 1;
}

void* counted(void* data, const void* caller) {
  const auto place = reinterpret_cast<uintptr_t>(caller);
  bool (*const skips)() = is_of_others;
  if ((place < skipped_begin || place >= skipped_end) && !(skips && skips()))
    count.fetch_add(1, std::memory_order_relaxed);
  if (!data) throw std::bad_alloc();
  return data;
}

size_t whole(size_t size, std::align_val_t alignment) {
  const auto unit = static_cast<size_t>(alignment);
  return (size + unit - 1) / unit * unit;
}

}  // namespace

// The array and nothrow forms of the standard library call these.
void* operator new(size_t size) { return counted(std::malloc(size > 0 ? size : 1), __builtin_return_address(0)); }
void* operator new(size_t size, std::align_val_t alignment) {
  return counted(std::aligned_alloc(static_cast<size_t>(alignment), whole(size > 0 ? size : 1, alignment)),
                 __builtin_return_address(0));
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { std::free(data); }

namespace stepnet::testing {
int64_t heap_allocations() {
  if (skipped_end == 0) dl_iterate_phdr(find_skipped, nullptr);
  return count;
}
void skip_heap_while(bool (*is_of_others_now)()) { is_of_others = is_of_others_now; }
bool counts_heap() { return true; }
}  // namespace stepnet::testing

#endif
