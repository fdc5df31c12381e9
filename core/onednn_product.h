// One matrix product of fixed sizes as a oneDNN primitive. Making one takes far longer than running a small one, so
// they are kept. Memory that it needs is counted by the allocator.
// Threads: one run at a time, on any thread; as many threads of OpenMP as there were when it was made.
#pragma once

#include <dnnl.hpp>
#include <unordered_map>

#include "core/tensor.h"
#include "core/weight_packs.h"

namespace stepnet {

class Product {
 public:
  // `packed`: B comes in the primitive's own layout, which pack() makes.
  Product(const ProductKey& key, bool packed);

  void pack(const float* b);
  void run(const ProductPart& part);  // its b is not read if B is packed

 private:
  dnnl::memory::desc b_layout_;
  dnnl::matmul::primitive_desc desc_;
  dnnl::matmul primitive_;
  dnnl::reorder packing_;
  dnnl::memory a_, b_, c_, bias_, plain_b_;
  Tensor scratch_, pack_;
  std::unordered_map<int, dnnl::memory> arguments_;
  bool packed_;
};

// The calling thread's product of these sizes.
PreparedProduct cached_product(const ProductPart& part);

}  // namespace stepnet
