// What a test may ask of the imitated runtime: which calls have been made, and whether what happens now is of the
// imitation's own doing, such as the memory that it needs for what is queued.
//
// Threads: calls are counted for all threads together.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace emulated {

void count_call(const char* name);
// How often each function of the runtime was called so far; kernels count as "launch".
std::map<std::string, int64_t, std::less<>> calls();

// While one is alive, what the calling thread does is the imitation's own.
class Inside {
 public:
  Inside();
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};
bool inside();

}  // namespace emulated
