// WeightPacks: the right-hand matrices of products that stay the same for a while (the weights of a step net during one
// run), in the layout that oneDNN's products read fastest. A matrix is packed when a product first asks for it.
// Threads: one product at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace stepnet {

class Product;

// C = op(A) op(B), or C + op(A) op(B), for fixed sizes; see core/matmul.h.
struct ProductKey {
  bool trans_a = false, trans_b = false, accumulate = false;
  int64_t m = 0, n = 0, k = 0;
  int threads = 1;
  auto operator<=>(const ProductKey&) const = default;
};

class WeightPacks {
 public:
  WeightPacks();
  ~WeightPacks();
  WeightPacks(const WeightPacks&) = delete;
  WeightPacks& operator=(const WeightPacks&) = delete;

  // From now on these matrices, named by the place of their elements, do not change; what was packed is out of date.
  void start(const std::vector<const void*>& constant);
  bool holds(const float* b) const;
  // `b` must be held.
  void multiply(const ProductKey& key, const float* a, const float* b, float* c);

 private:
  struct Packed;
  std::vector<const void*> constant_;
  std::map<std::pair<const void*, ProductKey>, std::unique_ptr<Packed>> packed_;
  uint64_t run_ = 0;
};

}  // namespace stepnet
