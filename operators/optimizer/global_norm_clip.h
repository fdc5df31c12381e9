// The arguments of GlobalNormClip and ClipTensorByScaling, and the first's way to gradients on a GPU; see
// global_norm_clip.cc. Threads: pure functions; what gpu/ puts here is put when the library is loaded.
#pragma once

#include "stepnet/operator.h"

namespace stepnet {

struct NormClipArgs {
  float max_norm = 0;
};

struct ScalingClipArgs {
  float threshold = 0;
};

// Clips gradients that have been checked, all on one GPU; gpu/optimizer/global_norm_clip.cu puts it here.
using NormClipOnDevice = void (*)(const NormClipArgs&, BlobCall&);
NormClipOnDevice& norm_clip_on_device();

}  // namespace stepnet
