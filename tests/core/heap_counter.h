// How often `operator new` was called so far, by any thread of the test program, libstepnet.so included, but not by
// oneDNN, which allocates in every call of a primitive, and not where a test says that it is somebody else's doing.
#pragma once

#include <cstdint>

namespace stepnet::testing {

int64_t heap_allocations();
void skip_heap_while(bool (*is_of_others)());  // asked in every call; null: nobody
bool counts_heap();                            // false under sanitizers, which have an operator new of their own

}  // namespace stepnet::testing
