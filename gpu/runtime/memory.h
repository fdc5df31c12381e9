// Memory of CUDA devices beyond what stepnet/device.h offers: use on several streams, and host memory for copies.
//
// The allocators are offered to stepnet/device.h when the library is loaded. A block belongs to the stream that was
// current when it was made; another stream gets it again only behind an event of the first. Of a stream that is
// destroyed, blocks become the main stream's. Counted bytes are those of
// blocks, multiples of 512. Threads: all may be called from several threads.
#pragma once

#include <cstddef>

#include "gpu/runtime/device.h"

namespace stepnet::gpu {

// Work queued on this stream so far touches the block that holds these bytes, so when the block has been released
// whoever gets it next waits for that work. Bytes that no allocator handed out are ignored.
void record_use(int device, const void* data, cudaStream_t stream);

// Whether the calling thread, as long as there is memory, takes what others have freed on the same stream alone: it
// waits for nobody then, and streams that are to run at the same time do. Off at first; returns what was.
bool keep_apart(bool on);

// Bytes taken from the driver, live and cached; and a return of what is cached as whole segments.
size_t reserved_bytes(int device);
void drop_cached(int device);

// While one is alive, what the calling thread allocates comes from a pool of this name, and what is freed of it is
// reused in it alone, and on the same stream: for work that is captured and runs again later. It lasts until
// release_pool.
class PoolScope {
 public:
  explicit PoolScope(const void* name);
  ~PoolScope();
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;
};
// Bytes of the present pool that stay as long as it does, for what is captured on this stream to work on: whoever asks
// on the same stream may get the same ones, as its work comes later. Null for 0 bytes.
std::byte* pool_workspace(int device, cudaStream_t stream, size_t bytes);
// Its blocks are free for others, behind what is queued on the device's main stream.
void release_pool(int device, const void* name);

// Host memory that the device copies to and from by itself while the host goes on.
class PinnedBytes {
 public:
  explicit PinnedBytes(size_t bytes);  // throws Error if there is none left
  ~PinnedBytes();
  PinnedBytes(const PinnedBytes&) = delete;
  PinnedBytes& operator=(const PinnedBytes&) = delete;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace stepnet::gpu
