// What an operator's kernels on a GPU take beside its outputs, for dry runs (core/tensor/dry_device.h): also in builds
// without them.
//
//   const bool offered = offer_device_scratch<NormalizeArgs>("Normalize", [](const NormalizeArgs& a, const Call& c) {
//     return DeviceScratch{16 * lines(a, c)};
//   });
//
// Threads: offers are made when the library is loaded; then all is read only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/operator/op_spec.h"

namespace stepnet {

using DeviceScratch = std::vector<int64_t>;  // bytes of blocks that are there at the same time
using DeviceScratchOf = std::function<DeviceScratch(const void* args, const Call& call)>;

bool offer_scratch(const std::string& type, DeviceScratchOf scratch);  // true, to start something with
const DeviceScratchOf* device_scratch(const std::string& type);        // null: they take nothing

// `scratch` is called with the operator's arguments; outputs have their types.
template <class Args, class Fn>
bool offer_device_scratch(const std::string& type, Fn scratch) {
  return offer_scratch(
      type, [scratch](const void* args, const Call& call) { return scratch(*static_cast<const Args*>(args), call); });
}

}  // namespace stepnet
