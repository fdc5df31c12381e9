#include "core/compute/backend.h"

#include <array>

#include "stepnet/error.h"

namespace stepnet {
namespace {

std::array<DeviceWork, 2>& offers() {
  static std::array<DeviceWork, 2> all;
  return all;
}

}  // namespace

void offer_device_work(DeviceKind kind, const DeviceWork& work) { offers().at(static_cast<size_t>(kind)) = work; }

const DeviceWork& device_work(DeviceKind kind) {
  const DeviceWork& work = offers().at(static_cast<size_t>(kind));
  require(work.capture != nullptr, "this build has no executors for {}", Device{kind, 0});
  return work;
}

}  // namespace stepnet
