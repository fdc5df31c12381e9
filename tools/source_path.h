// Where programs of the build find files that they were not given: at absolute paths which CMake defines
// (STEPNET_SOURCE_DIR and others), unless environment variables of the same names say otherwise, as they do where the
// programs were moved (tools/bundle). Threads: pure functions of the environment.
#pragma once

#include <cstdlib>
#include <string>

namespace stepnet {

inline std::string place(const char* variable, const char* built) {
  const char* moved = std::getenv(variable);
  return moved && *moved ? moved : built;
}

// A file of the source tree, by its path from the root.
inline std::string source_path(const std::string& path) {
  return place("STEPNET_SOURCE_DIR", STEPNET_SOURCE_DIR) + "/" + path;
}

}  // namespace stepnet
