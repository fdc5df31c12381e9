#include "tools/source_path.h"

#include <cstdlib>

#ifndef STEPNET_COMMAND
#define STEPNET_COMMAND ""
#define STEPNET_PLUGIN ""
#define STEPNET_FAULTS_SHIM ""
#endif

namespace stepnet {

static std::string place(const char* variable, const char* built) {
  const char* moved = std::getenv(variable);
  return moved && *moved ? moved : built;
}

std::string source_path(const std::string& path) {
  return place("STEPNET_SOURCE_DIR", STEPNET_SOURCE_DIR) + "/" + path;
}

std::string command_path() { return place("STEPNET_COMMAND", STEPNET_COMMAND); }

std::string plugin_path() { return place("STEPNET_PLUGIN", STEPNET_PLUGIN); }

std::string faults_shim_path() { return place("STEPNET_FAULTS_SHIM", STEPNET_FAULTS_SHIM); }

}  // namespace stepnet
