// A library to be preloaded (LD_PRELOAD) that stands between a program and the file calls of libc, to count the calls
// that touch a folder, to let one of them fail or end the process, and to write down what was done. It is told by the
// environment:
//
//   STEPNET_FAULTS_ROOT     the folder, without links in its path; without it nothing is counted
//   STEPNET_FAULTS_AT       "N F": the call number N gets the fault F, a number of the enumeration Fault
//   STEPNET_FAULTS_JOURNAL  a file to which records are added (tests/faults/journal.h)
//
// Calls that libc makes inside itself, such as those of fwrite, are not seen, so what is tested must not use them for
// files of the folder. Syncs are counted and written down, but not done: a kill does not need them, and a loss of power
// is made from the journal. Uses libc alone. Threads: calls may come from several.
#pragma once

#include <limits.h>
#include <sys/types.h>

#include <cerrno>
#include <cstddef>

#include "tests/faults/journal.h"

namespace stepnet::testing {

struct Call {
  CallKind kind;
  int fd = -1;
  int flags = 0;
  off_t offset = 0;
  const void* data = nullptr;  // to write
  size_t bytes = 0;            // to write or to read
  long failure = -1;           // what it returns when it fails
  bool takes_room = false;
  bool counted = false;
  unsigned number = 0;
  char path[PATH_MAX] = "", other[PATH_MAX] = "";
};

// Say which file a call is about, and whether it counts. Keep errno.
void name_file(Call& call, int folder, const char* path);
void name_open_file(Call& call, int fd);

// The next number, and what is to be done to the call; does not return where the process is to be killed before it.
Fault next_fault(Call& call);
void write_record(const Call& call, long result, int error);
[[noreturn]] void end_process();

// The next library's function of that name.
void* next_function(const char* name);
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(next_function(name));
}

// Carries a call out, with its fault; perform(bytes) does it.
template <class Perform>
long carry_out(Call& call, Perform perform) {
  if (!call.counted) return perform(call.bytes);
  const Fault fault = next_fault(call);
  if (fault == Fault::eio || fault == Fault::enospc) {
    if (call.kind == CallKind::close) perform(call.bytes);  // Linux closes whatever it says
    errno = fault == Fault::eio ? EIO : ENOSPC;
    write_record(call, call.failure, errno);
    return call.failure;
  }
  size_t bytes = call.bytes;
  if (fault == Fault::torn) bytes /= 2;
  if (fault == Fault::part) bytes -= bytes / 2;  // of one byte there is no part: none read would be the file's end
  const long result = perform(bytes);
  const int error = result == call.failure ? errno : 0;
  write_record(call, result, error);
  if (fault == Fault::torn) end_process();
  errno = fault == Fault::late_eio ? EIO : error != 0 ? error : errno;
  return fault == Fault::late_eio ? call.failure : result;
}

}  // namespace stepnet::testing
