// WeightPacks: the right-hand matrices of products that stay the same for a while (the weights of a step net during one
// run), in the layout that oneDNN's products read fastest. A matrix is packed when a product first asks for it.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "stepnet/shape.h"

namespace stepnet {

class Product;

// C = op(A) op(B), or C + op(A) op(B), plus `bias`, for fixed sizes; see stepnet/matmul.h. It may be a part of a
// larger product, `ld` elements from one stored row to the next; `part` tells those apart that have the same sizes.
// A, B and the bias are of one type, float32 or a half type; `result` is C's.
struct ProductKey {
  DType type = DType::float32, result = DType::float32;
  bool trans_a = false, trans_b = false, accumulate = false, bias = false;
  int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
  int part = 0;
  auto operator<=>(const ProductKey&) const = default;
};

struct ProductPart {
  ProductKey key;
  const void *a = nullptr, *b = nullptr, *bias = nullptr;
  void* c = nullptr;
};

class PackedWeights;
class ProductCache;
class ProductMemory;
class ProductScratch;
class WeightStore;

// A product that is ready to run, which may happen on another thread.
struct PreparedProduct {
  Product* product = nullptr;
  ProductPart part;
  PackedWeights* weights = nullptr;  // B, packed when the first product of the run needs it
  uint64_t run_number = 0;
  void run() const;
};

// Products of some work that any thread may do: while a Use is alive, its thread takes these instead of its own, so
// that what they keep does not depend on who does the work. Threads: one Use at a time.
class Products {
 public:
  Products();
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
  class Use {
   public:
    explicit Use(Products& products);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    ProductCache* before_;
  };

 private:
  std::unique_ptr<ProductCache> cache_;
};

// Memory for the packed matrices of several WeightPacks that take turns: what one has packed the next may overwrite.
// Threads: one at a time.
class PackMemory {
 public:
  // What one of them has not taken since it began with an empty one.
  struct Free {
    std::multimap<size_t, std::weak_ptr<ProductMemory>> by_size;
    uint64_t next = 0;  // blocks from there on are not in it yet
  };
  // At least so many bytes that are free, and are not any more: the best that is there, or new ones.
  std::shared_ptr<ProductMemory> take(size_t bytes, Free& free);

  const void* owner = nullptr;  // whose matrices are in it

 private:
  std::map<uint64_t, std::weak_ptr<ProductMemory>> all_;  // in the order in which they were made, by who owns them
  uint64_t next_ = 0;
};

class WeightPacks {
 public:
  explicit WeightPacks(std::shared_ptr<PackMemory> memory = nullptr);  // null: memory of its own
  // With products of its own and the other's packed matrices; both may be used at once, each by one thread.
  explicit WeightPacks(WeightPacks& other);
  ~WeightPacks();
  WeightPacks& operator=(const WeightPacks&) = delete;

  // From now on these matrices, of which products may take some columns, named by the place of their elements, do not
  // change; what was packed is out of date.
  void start(const std::vector<const void*>& constant);
  // Whether nobody has had a turn with the memory since the last start.
  bool is_its_turn() const;
  bool holds(const void* b) const;
  // A part of a product with a matrix that is held, or with columns of it.
  PreparedProduct prepare(const ProductPart& part);
  // The held matrix, or columns of it, stored as [n, k] with rows `ld` elements apart, in panels of so many columns of
  // its transpose, [n / columns, k, columns], for products of one row. Null as long as packing it costs more than it
  // has been worth in this run, where the panels do not fill it, and if it is so large that reading it is what takes
  // time.
  const float* panels_of(const float* b, int64_t n, int64_t k, int64_t ld, int64_t columns);

 private:
  struct Entry;
  struct Panels;
  void forget_others();
  std::shared_ptr<WeightStore> store_;
  std::unique_ptr<ProductScratch> scratch_;  // of products_
  std::map<std::pair<const void*, ProductKey>, std::unique_ptr<Entry>> products_;
  std::map<std::tuple<const float*, int64_t, int64_t, int64_t>, std::unique_ptr<Panels>> panels_;  // by b, n, k, ld
  uint64_t filled_ = 0;  // when the store's matrices were last others
};

}  // namespace stepnet
