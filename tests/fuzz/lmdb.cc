// The data file of LMDB databases.
#include <filesystem>

#include "tests/fuzz/database.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/support.h"

namespace stepnet::testing {

int fuzz_lmdb(const uint8_t* data, size_t size) {
  std::filesystem::create_directory(fuzz_folder() + "/input.lmdb");
  fuzz_file("input.lmdb/data.mdb", text_of(data, size));
  use_database("lmdb", "input.lmdb");
  return 0;
}

}  // namespace stepnet::testing
