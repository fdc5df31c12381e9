// The journal that the shim (tests/faults/shim) writes and the tests read: a record for each counted call, in the order
// of the calls. After a record stand its path, its other path and its data. Threads: plain data.
#pragma once

#include <cstdint>

namespace stepnet::testing {

enum class CallKind : uint32_t {
  open,
  close,
  read,
  write,
  sync,
  rename,
  remove,
  make_folder,
  truncate,
  look,  // at a file's facts or rights
  list,  // a folder
  lock,
  map,
};

// What the shim does to a call.
enum class Fault : uint32_t {
  none,
  eio,        // fails, undone
  enospc,     // fails, undone
  part,       // writes or reads half of the bytes, and says so
  kill,       // the process is killed before it
  torn,       // half of the bytes are written, then the process is killed
  late_eio,   // is done, and says that it failed
  eio_on,     // fails, and so do all calls after it: a disk that is gone
  enospc_on,  // fails, and so do all calls after it that take room: a disk that is full
};

struct CallRecord {
  uint32_t number = 0;  // in its process, from 1
  CallKind kind = CallKind::open;
  int32_t fd = -1;     // that was opened, or used
  int32_t error = 0;   // what it failed with; 0: it was done
  uint32_t flags = 0;  // of an opening
  int64_t offset = 0;  // of a write; the length to which a file is cut
  uint32_t path_bytes = 0, other_bytes = 0, data_bytes = 0;
};

}  // namespace stepnet::testing
