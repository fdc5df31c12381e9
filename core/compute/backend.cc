#include "core/compute/backend.h"

#include <array>

#include "stepnet/error.h"

namespace stepnet {
namespace {

std::array<Backend*, 2>& backends() {
  static std::array<Backend*, 2> all{};
  return all;
}

}  // namespace

void add_backend(DeviceKind kind, Backend& backend) { backends().at(static_cast<size_t>(kind)) = &backend; }

Backend& backend(DeviceKind kind) {
  Backend* found = backends().at(static_cast<size_t>(kind));
  require(found != nullptr, "this build has no executors for {}", Device{kind, 0});
  return *found;
}

}  // namespace stepnet
