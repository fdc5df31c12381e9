// Offload: saved values wait for the backward pass on disk, or in host memory, instead of where they were computed.
//
// Inside an OffloadScope every saved value of at least so many bytes is packed (stepnet/saved_value.h): one
// thread in the background writes it, and reads it again one node ahead of the backward pass, in reverse order of
// saving. A value that is kept anyway is not packed: the bytes of a leaf that requires a gradient (a parameter), or of
// anything that shares its storage. A value that is saved several times is written once. Files go when the last node
// that saved the value lets go of it, so that nothing is left when the graph is gone.
//
// Memory: `pack` returns when at most `most_pending` bytes, or this one value, wait to be written, and a value is let
// go of as soon as it is. Reading ahead stops at `most_read` bytes. So saved values take the bytes of the two largest,
// or of what one node reads if that is more, and the rest of the peak is what the pass itself works with.
//
// Writing in place to a value that waits to be written waits until it is; what was saved is what it was when it was
// saved, so a value on disk is never stale.
//
// Errors: a file that cannot be written is an Error of the next value that is packed, and of the one that was lost when
// it is unpacked; one that cannot be read, or is not what was written, of the value's node. They name the file and the
// node. Files lose their names when they are
// opened, so that none stays behind a process that is killed (but for those beyond half of the files that the process
// may have open, whose names begin with "stepnet-saved-" and the process's number).
// Threads: a scope belongs to its thread; the values may be unpacked on any.
#pragma once

#include <memory>
#include <string>

#include "stepnet/saved_value.h"

namespace stepnet::autograd {

struct OffloadOptions {
  std::string folder = {};   // for the files, made if missing; empty: host memory, for values on other devices
  int64_t at_least = 4096;   // bytes; smaller values stay where they are
  int64_t most_pending = 0;  // bytes; one value may wait in any case
  int64_t most_read = 0;     // bytes; 0: twice the largest value
};

struct OffloadCounters {
  int64_t kept = 0;     // values that were not packed: small, or kept by their owner
  int64_t shared = 0;   // values that were there already
  int64_t written = 0;  // files, or copies on the host
  int64_t written_bytes = 0;
  int64_t read = 0;
  int64_t read_ahead = 0;  // of these, before they were asked for
};

class OffloadStore;

class OffloadScope {
 public:
  // Throws Error if there can be no files in that folder.
  explicit OffloadScope(const OffloadOptions& options);
  OffloadCounters counters() const;
  void wait() const;  // until nothing waits to be written

 private:
  std::shared_ptr<OffloadStore> store_;
  SavedValueHooksScope scope_;
};

}  // namespace stepnet::autograd
