// What is left of the machine's memory for this process.
//
// A process may get less than the machine has: a container's limit (a control group of version 1 or 2, or one of those
// around it), the limit of its own address space (`ulimit -v`), and what others have already taken. Beyond the first
// the system ends the process, so all of them are asked before anything large is made.
// Threads: pure functions of files and of the process. Errors: none; what cannot be read is no limit.
#pragma once

#include <cstdint>
#include <string>

namespace stepnet {

// Bytes that are left below each limit; INT64_MAX: there is none.
struct MemoryLeft {
  int64_t machine = INT64_MAX;        // that can be had without swapping
  int64_t group = INT64_MAX;          // of the control groups
  int64_t address_space = INT64_MAX;  // of the process
  int64_t least() const;
};

// `root`: the folder in which `proc` and `sys` stand.
MemoryLeft memory_left(const std::string& root = "/");

// Bytes that this process may ever have, whatever is in use now.
int64_t most_memory(const std::string& root = "/");

}  // namespace stepnet
