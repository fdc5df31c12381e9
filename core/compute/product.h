// One matrix product of fixed sizes: by kernels of core/compute/product_kernels.h where these are faster, else as a
// oneDNN primitive. Making one of these takes far longer than running a small one, so products are kept. Memory that a
// product needs is counted by the allocator.
// Threads: one run at a time, on any thread; as many threads of OpenMP as there were when it was made.
#pragma once

#include <atomic>
#include <dnnl.hpp>
#include <map>
#include <memory>
#include <vector>

#include "core/compute/packed_weights.h"
#include "core/compute/product_kernels.h"
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

// True if products of this type run by our kernels and not by oneDNN: of float32 on CPUs of x86-64-v3 that are not of
// v4, of bfloat16 on those that cannot multiply them, of float16 on all.
bool has_product_kernels(DType type);

class Product;

// A matrix in another layout: one of oneDNN's, or panels of our kernels. Threads: any; the first to ask in a run packs,
// others wait for it.
class PackedWeights {
 public:
  // `memory` has room for the layout, and outlives it.
  PackedWeights(const dnnl::memory::desc& plain, const dnnl::memory::desc& packed, ProductMemory& memory);
  PackedWeights(DType type, const StoredMatrix& stored, ProductMemory& memory);
  bool serves(const Product& product) const;
  void* data() const { return data_.data(); }
  void pack(const void* b, uint64_t run);  // unless that has happened in this run

 private:
  DType type_ = DType::float32;
  StoredMatrix stored_;  // of panels; else it is empty
  dnnl::memory::desc plain_layout_, layout_;
  ProductMemory& data_;
  dnnl::memory plain_, packed_;
  dnnl::reorder packing_;
  SpinLock packing_now_;
  std::atomic<uint64_t> run_{0};
};

// What oneDNN works on: products that never run at the same time share it, as much as the largest of them takes. Parts
// of one product each have some. Threads: one at a time.
class ProductScratch {
 public:
  void reserve(int part, size_t bytes);
  void* of(int part) const { return parts_.at(part)->data(); }

 private:
  std::map<int, std::unique_ptr<ProductMemory>> parts_;
};

class Product {
 public:
  // `scratch` outlives it.
  Product(const ProductKey& key, ProductScratch& scratch, bool packed);

  DType type() const { return key_.type; }
  const StoredMatrix& stored_weights() const { return stored_; }  // empty if it is oneDNN's
  dnnl::memory::desc plain_weights() const { return b_layout_; }
  dnnl::memory::desc packed_weights() const { return desc_.weights_desc(); }
  size_t packed_bytes() const;
  void use(const PackedWeights& weights);
  void run(const ProductPart& part);  // its b is not read if B is packed

 private:
  template <class T, class C>
  void run_kernels(const ProductPart& part);
  ProductKey key_;
  StoredMatrix stored_;
  const float* panels_ = nullptr;  // B, if it is packed
  dnnl::memory::desc b_layout_;
  dnnl::matmul::primitive_desc desc_;
  dnnl::matmul primitive_;
  dnnl::memory a_, b_, c_, bias_;
  ProductScratch* scratch_ = nullptr;
  dnnl::memory scratch_memory_;
  std::vector<dnnl_exec_arg_t> arguments_;
  bool packed_;
};

// The calling thread's product of these sizes.
PreparedProduct cached_product(const ProductPart& part);

// Calls run(), which does so many floating-point operations, and counts it in matmul_counters() if that is on.
void count_product(double flops, FunctionRef<> run);

}  // namespace stepnet
