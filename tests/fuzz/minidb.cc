// MiniDB files.
#include "tests/fuzz/database.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/support.h"

namespace stepnet::testing {

int fuzz_minidb(const uint8_t* data, size_t size) {
  fuzz_file("input.minidb", text_of(data, size));
  use_database("minidb", "input.minidb");
  return 0;
}

}  // namespace stepnet::testing
