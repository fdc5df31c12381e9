// One matrix product of fixed sizes as a oneDNN primitive. Making one takes far longer than running a small one, so
// they are kept. Memory that it needs is counted by the allocator.
// Threads: one run at a time, on any thread; as many threads of OpenMP as there were when it was made.
#pragma once

#include <atomic>
#include <dnnl.hpp>
#include <memory>
#include <vector>

#include "core/compute/packed_weights.h"
#include "core/compute/threads.h"
#include "stepnet/tensor.h"

namespace stepnet {

// Bytes of the allocator that product_bytes() counts.
class ProductMemory {
 public:
  explicit ProductMemory(size_t bytes);
  ~ProductMemory();
  ProductMemory(const ProductMemory&) = delete;
  ProductMemory& operator=(const ProductMemory&) = delete;
  void* data() { return bytes_.raw(); }
  size_t size() const { return bytes_.bytes(); }
  bool is_dry() const { return bytes_.is_dry(); }

 private:
  Tensor bytes_;
};

// A matrix in a layout of oneDNN's own. Threads: any; the first to ask in a run packs, others wait for it.
class PackedWeights {
 public:
  // `memory` has room for the layout, and outlives it.
  PackedWeights(const dnnl::memory::desc& plain, const dnnl::memory::desc& packed, ProductMemory& memory);
  const dnnl::memory::desc& plain() const { return plain_layout_; }
  const dnnl::memory::desc& layout() const { return layout_; }
  void* data() const { return data_.data(); }
  void pack(const float* b, uint64_t run);  // unless that has happened in this run

 private:
  dnnl::memory::desc plain_layout_, layout_;
  ProductMemory& data_;
  dnnl::memory plain_, packed_;
  dnnl::reorder packing_;
  SpinLock packing_now_;
  std::atomic<uint64_t> run_{0};
};

class Product {
 public:
  explicit Product(const ProductKey& key, bool packed = false);

  dnnl::memory::desc plain_weights() const { return b_layout_; }
  dnnl::memory::desc packed_weights() const { return desc_.weights_desc(); }
  void use(const PackedWeights& weights);
  void run(const ProductPart& part);  // its b is not read if B is packed

 private:
  dnnl::memory::desc b_layout_;
  dnnl::matmul::primitive_desc desc_;
  dnnl::matmul primitive_;
  dnnl::memory a_, b_, c_, bias_;
  std::unique_ptr<ProductMemory> scratch_;
  dnnl::memory scratch_memory_;
  std::vector<dnnl_exec_arg_t> arguments_;
  bool packed_;
};

// The calling thread's product of these sizes.
PreparedProduct cached_product(const ProductPart& part);

}  // namespace stepnet
