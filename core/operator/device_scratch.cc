#include "core/operator/device_scratch.h"

#include <map>

namespace stepnet {
namespace {

std::map<std::string, DeviceScratchOf>& offers() {
  static std::map<std::string, DeviceScratchOf> all;
  return all;
}

}  // namespace

bool offer_scratch(const std::string& type, DeviceScratchOf scratch) {
  offers()[type] = std::move(scratch);
  return true;
}

const DeviceScratchOf* device_scratch(const std::string& type) {
  const auto found = offers().find(type);
  return found == offers().end() ? nullptr : &found->second;
}

}  // namespace stepnet
