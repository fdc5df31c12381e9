// Where programs of the build find files that they were not given: at absolute paths which CMake defines for
// source_path.cc alone (so that other files compile to the same bytes in every folder), unless environment variables
// say otherwise, as they do where the programs were moved (tools/bundle). Threads: pure functions of the environment.
#pragma once

#include <string>

namespace stepnet {

// A file of the source tree, by its path from the root (STEPNET_SOURCE_DIR).
std::string source_path(const std::string& path);

// The program `stepnet` (STEPNET_COMMAND), the library of tools/examples/plugin (STEPNET_PLUGIN) and that of
// tests/faults/shim (STEPNET_FAULTS_SHIM); empty in programs that are built without them.
std::string command_path();
std::string plugin_path();
std::string faults_shim_path();

}  // namespace stepnet
