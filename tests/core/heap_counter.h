// How often `operator new` was called so far, by any thread of the test program, libstepnet.so included, but not by
// oneDNN, which allocates in every call of a primitive.
#pragma once

#include <cstdint>

namespace stepnet::testing {

int64_t heap_allocations();
bool counts_heap();  // false under sanitizers, which have an operator new of their own

}  // namespace stepnet::testing
