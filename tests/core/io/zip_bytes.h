// Zip archives for tests, put together by hand. Threads: pure functions.
#pragma once

#include <string>
#include <vector>

namespace stepnet::testing {

struct ZipMember {
  std::string name, content;
  bool deflated = false;  // in blocks that are stored, so that the content is seen in the archive
};
// `wide`: with all sizes and places in 64 bits.
std::string zip_of(const std::vector<ZipMember>& members, const std::string& comment = "", bool wide = false);

// What numpy.savez_compressed(file, x=..., y=...) writes of x = [[0, 1], [2, 3], [4, 5]], float32, and y = [7, 8, 9],
// int64.
std::string numpy_archive();

}  // namespace stepnet::testing
