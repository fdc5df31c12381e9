// The mutex that a blob may hold. Threads: it is what makes them safe.
#pragma once

#include <mutex>

namespace stepnet {

using BlobMutex = std::mutex;

}  // namespace stepnet
