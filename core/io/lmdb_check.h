// check_lmdb_file: whether an LMDB data file can be opened without harm.
//
// LMDB maps the file and believes it: a truncated file ends in SIGBUS, damaged page headers in reads and writes out of
// bounds. So before LMDB sees a file it is walked here with bounded reads: the two meta pages, then every page that the
// trees of records and of free pages reach. Checked are page numbers, page types, the bounds and offsets inside a page,
// key sizes and their order, the range of overflow pages, the depth of the trees, and that no page is used twice.
// The walk reads every page with keys once; of overflow pages (large values) it reads the header alone.
//
// The layout is that of LMDB 0.9 on 64-bit little-endian machines, of a database without named sub-databases and
// without several values per key, which is what the public format writes.
// Threads: a pure function.
#pragma once

#include <cstdint>

#include "core/io/files.h"

namespace stepnet {

struct LmdbSummary {
  uint64_t file_bytes = 0;
  uint64_t records = 0;
  int depth = 0;  // pages from the root to a leaf; 0 if there are no records
};

// Throws Error that names the file and what is wrong.
LmdbSummary check_lmdb_file(const FileReader& data_file);
LmdbSummary check_lmdb_file(const FilePlace& data_file);

}  // namespace stepnet
