#include "core/compute/product.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <type_traits>
#include <utility>

#include "core/compute/half_spans.h"
#include "core/compute/onednn_primitives.h"
#include "core/compute/simd.h"
#include "core/tensor/dry_device.h"
#include "stepnet/error.h"
#include "stepnet/matmul.h"

namespace stepnet {

// The latest products of a thread. Of so many sizes none is made anew; a program with ever new ones does not grow for
// ever: when `latest_` is full it becomes `before_`, and what is not asked for until that happens again is dropped.
constexpr size_t kMostProducts = 256;

class ProductCache {
 public:
  Product& get(const ProductKey& key) {
    if (const auto found = latest_.find(key); found != latest_.end()) return *found->second;
    auto node = before_.extract(key);
    // The parts of one product are asked for one after the other, and must all be there at once.
    if (latest_.size() >= kMostProducts && key.part == 0) {
      before_ = std::move(latest_);
      latest_.clear();
    }
    if (node) return *latest_.insert(std::move(node)).position->second;
    return *latest_.emplace(key, std::make_unique<Product>(key, scratch_, false)).first->second;
  }

 private:
  ProductScratch scratch_;
  std::map<ProductKey, std::unique_ptr<Product>> latest_, before_;
};

namespace {

using dnnl::memory;
using onednn::cpu, onednn::execute, onednn::Making, onednn::set_data;

memory::data_type data_type(DType type) {
  return type == DType::bfloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// `ld` elements from one stored row to the next.
memory::desc layout(DType type, int64_t rows, int64_t columns, bool transposed, int64_t ld) {
  const memory::dims strides = transposed ? memory::dims{1, ld} : memory::dims{ld, 1};
  return {{rows, columns}, data_type(type), strides};
}

memory::desc stored_b(const ProductKey& key) { return layout(key.type, key.k, key.n, key.trans_b, key.ldb); }
memory::desc any_b(const ProductKey& key) { return {{key.k, key.n}, data_type(key.type), memory::format_tag::any}; }

dnnl::matmul::primitive_desc describe(const ProductKey& key, const memory::desc& b) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  const memory::desc a = layout(key.type, key.m, key.k, key.trans_a, key.lda),
                     c = layout(key.result, key.m, key.n, false, key.ldc);
  const dnnl::matmul::desc desc =
      key.bias ? dnnl::matmul::desc(a, b, layout(key.type, 1, key.n, false, key.n), c) : dnnl::matmul::desc(a, b, c);
  return {desc, attributes, cpu()};
}

std::atomic<int64_t> kept_bytes{0};

int64_t counted(const Tensor& memory) {
  constexpr int64_t kBlock = 64;
  return (static_cast<int64_t>(memory.bytes()) + kBlock - 1) / kBlock * kBlock;
}

thread_local constinit ProductCache* products_in_use = nullptr;

ProductCache& thread_products() {
  thread_local ProductCache products;
  return products;
}

dnnl::reorder make_packing(const memory& plain, const memory& packed) {
  const Making making;
  return {plain, packed};
}

// Descriptions of the products of dry runs, which ask for the same sizes again and again.
dnnl::matmul::primitive_desc described_before(ProductKey key, bool packed) {
  static std::mutex mutex;
  static std::map<std::pair<ProductKey, bool>, dnnl::matmul::primitive_desc> known;
  key.part = 0;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find({key, packed}); found != known.end()) return found->second;
  const Making making;
  const auto made = describe(key, packed ? any_b(key) : stored_b(key));
  return known.emplace(std::pair(key, packed), made).first->second;
}

template <class T>
FloatProduct<T> sizes_of(const ProductKey& key) {
  FloatProduct<T> product;
  product.m = key.m;
  product.n = key.n;
  product.k = key.k;
  product.lda = key.lda;
  product.trans_a = key.trans_a;
  product.ldc = key.ldc;
  product.accumulate = key.accumulate;
  return product;
}

// Floats of a thread's buffer that begin with a line of the cache.
float* aligned_buffer(int64_t floats) {
  constexpr size_t kLine = 64;
  const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
  void* buffer = thread_buffer<std::byte>(ThreadBuffer::product, bytes + kLine).data();
  size_t space = bytes + kLine;
  return static_cast<float*>(std::align(kLine, bytes, buffer, space));
}

// A row of sums becomes one of C, which is of a half type: added to it or not, and with a bias or not.
template <class Half>
void round_row(float* sums, int64_t n, bool accumulate, const Half* bias, Half* c) {
  if (bias) add_to_floats(bias, n, sums);
  if (accumulate) add_to_floats(c, n, sums);
  convert_elements(sums, n, c);
}

// The product that has a C of floats.
template <class T>
void run_float_product(const FloatProduct<T>& product, const StoredMatrix& stored, const T* b, const float* panels,
                       float* scratch) {
  panels ? run_packed_product(product, panels, scratch) : run_product(product, stored, b, scratch);
}

// C of a half type is a block of rows and columns at a time, summed up in float32 and rounded once. A matrix B that is
// not packed is so for every block of rows.
template <class Half>
void run_half_product(const ProductKey& key, const ProductPart& part, const StoredMatrix& stored, const float* panels) {
  const int64_t block_rows = panels ? 96 : 768, block_columns = panels ? key.n : 512;
  FloatProduct<Half> all = sizes_of<Half>(key);
  all.accumulate = false;
  all.ldc = std::min(key.n, block_columns);
  const auto* const a = static_cast<const Half*>(part.a);
  const auto* const b = static_cast<const Half*>(part.b);
  const auto* const bias = static_cast<const Half*>(part.bias);
  auto* const c = static_cast<Half*>(part.c);
  const int64_t sums_size = std::min(key.m, block_rows) * all.ldc;
  float* const sums = aligned_buffer(sums_size + product_scratch_floats(all, panels != nullptr));
  for (int64_t j = 0; j < key.n; j += block_columns) {
    FloatProduct<Half> block = all;
    StoredMatrix columns = stored;
    block.n = columns.n = std::min(block_columns, key.n - j);
    for (int64_t i = 0; i < key.m; i += block_rows) {
      block.m = std::min(block_rows, key.m - i);
      block.a = a + (key.trans_a ? i : i * key.lda);
      block.c = sums;
      run_float_product(block, columns, b + (key.trans_b ? j * key.ldb : j), panels, sums + sums_size);
      for (int64_t r = 0; r < block.m; ++r)
        round_row(sums + r * block.ldc, block.n, key.accumulate, bias ? bias + j : nullptr, c + (i + r) * key.ldc + j);
    }
  }
}

// Panels of float32, from elements of `type`.
void pack_panels(DType type, const StoredMatrix& stored, const void* b, float* panels) {
  if (type == DType::float32) return pack_matrix(stored, static_cast<const float*>(b), panels);
  with_half(type, [&](auto zero) { pack_matrix(stored, static_cast<const decltype(zero)*>(b), panels); });
}

bool cpu_multiplies_bfloat16() {
#if defined(__x86_64__)
  return cpu_is_x86_64_v4() && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

}  // namespace

ProductMemory::ProductMemory(size_t bytes) : bytes_(Tensor::empty(DType::uint8, {static_cast<int64_t>(bytes)})) {
  if (!bytes_.is_dry()) kept_bytes += counted(bytes_);
}

ProductMemory::~ProductMemory() {
  if (!bytes_.is_dry()) kept_bytes -= counted(bytes_);
}

int64_t product_bytes() { return kept_bytes; }

void forget_products() { thread_products() = {}; }

bool has_product_kernels(DType type) {
#if defined(__x86_64__)
  static const bool floats = !cpu_is_x86_64_v4(), bfloats = !cpu_multiplies_bfloat16();
#else
  constexpr bool floats = false, bfloats = true;
#endif
  return type == DType::float16 || (type == DType::bfloat16 ? bfloats : floats);
}

PackedWeights::PackedWeights(DType type, const StoredMatrix& stored, ProductMemory& memory)
    : type_(type), stored_(stored), data_(memory) {}

bool PackedWeights::serves(const Product& product) const {
  return stored_.n > 0 ? type_ == product.type() && stored_ == product.stored_weights()
                       : plain_layout_ == product.plain_weights() && layout_ == product.packed_weights();
}

PackedWeights::PackedWeights(const memory::desc& plain, const memory::desc& packed, ProductMemory& memory)
    : plain_layout_(plain),
      layout_(packed),
      data_(memory),
      plain_(plain, cpu(), nullptr),
      packed_(packed, cpu(), data_.data()),
      packing_(DryScope::now() ? dnnl::reorder() : make_packing(plain_, packed_)) {}

void PackedWeights::pack(const void* b, uint64_t run) {
  if (run_.load(std::memory_order_acquire) == run || data_.is_dry()) return;
  const std::lock_guard lock(packing_now_);
  if (run_.load(std::memory_order_relaxed) == run) return;
  if (stored_.n > 0) {
    pack_panels(type_, stored_, b, static_cast<float*>(data_.data()));
  } else {
    set_data(plain_, b);
    const std::array<dnnl_exec_arg_t, 2> arguments = {{{DNNL_ARG_FROM, plain_.get()}, {DNNL_ARG_TO, packed_.get()}}};
    execute(packing_, arguments);
  }
  run_.store(run, std::memory_order_release);
}

void ProductScratch::reserve(int part, size_t bytes) {
  std::unique_ptr<ProductMemory>& memory = parts_[part];
  if (memory && memory->size() >= bytes) return;
  memory.reset();
  memory = std::make_unique<ProductMemory>(bytes);
}

Product::Product(const ProductKey& key, ProductScratch& scratch, bool packed)
    : key_(key), scratch_(&scratch), packed_(packed) {
  if (has_product_kernels(key.type)) {
    stored_ = {.n = key.n, .k = key.k, .ld = key.ldb, .transposed = key.trans_b};
    return;
  }
  b_layout_ = stored_b(key);
  if (DryScope::now()) {
    desc_ = described_before(key, packed);
    scratch.reserve(key.part, desc_.scratchpad_desc().get_size());
    return;
  }
  const Making making;
  desc_ = describe(key, packed ? any_b(key) : b_layout_);
  primitive_ = dnnl::matmul(desc_);
  scratch.reserve(key.part, desc_.scratchpad_desc().get_size());
  a_ = memory(desc_.src_desc(), cpu(), nullptr);
  b_ = memory(desc_.weights_desc(), cpu(), nullptr);
  c_ = memory(desc_.dst_desc(), cpu(), nullptr);
  scratch_memory_ = memory(desc_.scratchpad_desc(), cpu(), nullptr);
  arguments_ = {{DNNL_ARG_SRC, a_.get()},
                {DNNL_ARG_WEIGHTS, b_.get()},
                {DNNL_ARG_DST, c_.get()},
                {DNNL_ARG_SCRATCHPAD, scratch_memory_.get()}};
  if (!key.bias) return;
  bias_ = memory(desc_.bias_desc(), cpu(), nullptr);
  arguments_.push_back({DNNL_ARG_BIAS, bias_.get()});
}

size_t Product::packed_bytes() const {
  return stored_.n > 0 ? static_cast<size_t>(packed_floats(stored_)) * sizeof(float) : packed_weights().get_size();
}

void Product::use(const PackedWeights& weights) {
  if (stored_.n > 0) panels_ = static_cast<const float*>(weights.data());
  if (b_) b_.set_data_handle(weights.data());
}

template <class T, class C>
void Product::run_kernels(const ProductPart& part) {
  const float* const panels = packed_ ? panels_ : nullptr;
  if constexpr (std::is_same_v<C, float>) {
    FloatProduct<T> product = sizes_of<T>(key_);
    product.a = static_cast<const T*>(part.a);
    product.c = static_cast<float*>(part.c);
    assert((std::is_same_v<T, float>) || !part.bias);
    if constexpr (std::is_same_v<T, float>) product.bias = static_cast<const float*>(part.bias);
    float* const scratch = aligned_buffer(product_scratch_floats(product, packed_));
    run_float_product(product, stored_, static_cast<const T*>(part.b), panels, scratch);
  } else {
    run_half_product<C>(key_, part, stored_, panels);
  }
}

void Product::run(const ProductPart& part) {
  if (stored_.n > 0) {
    if (key_.type == DType::float32) return run_kernels<float, float>(part);
    with_half(key_.type, [&](auto zero) {
      using Half = decltype(zero);
      key_.result == DType::float32 ? run_kernels<Half, float>(part) : run_kernels<Half, Half>(part);
    });
    return;
  }
  set_data(a_, part.a);
  if (!packed_) set_data(b_, part.b);
  if (part.bias) set_data(bias_, part.bias);
  c_.set_data_handle(part.c);
  scratch_memory_.set_data_handle(scratch_->of(key_.part));
  execute(primitive_, arguments_);
}

void PreparedProduct::run() const {
  if (weights) weights->pack(part.b, run_number);
  product->run(part);
}

Products::Products() : cache_(std::make_unique<ProductCache>()) {}
Products::~Products() = default;
Products::Use::Use(Products& products) : before_(std::exchange(products_in_use, products.cache_.get())) {}
Products::Use::~Use() { products_in_use = before_; }

PreparedProduct cached_product(const ProductPart& part) {
  ProductCache* products = products_in_use;
  if (!products) {
    DryScope* dry = DryScope::now();
    products = dry ? &dry->own<ProductCache>() : &thread_products();
  }
  return {&products->get(part.key), part};
}

std::shared_ptr<ProductMemory> PackMemory::take(size_t bytes, Free& free) {
  if (free.next == 0) std::erase_if(all_, [](const auto& block) { return block.second.expired(); });
  for (auto known = all_.lower_bound(free.next); known != all_.end(); ++known)
    if (const auto block = known->second.lock()) free.by_size.emplace(block->size(), known->second);
  free.next = next_;
  for (auto best = free.by_size.lower_bound(bytes); best != free.by_size.end();) {
    const auto block = best->second.lock();
    best = free.by_size.erase(best);
    if (block) return block;
  }
  const auto made = std::make_shared<ProductMemory>(bytes);
  all_.emplace(next_++, made);
  free.next = next_;
  return made;
}

// The packed matrices of one run. Products of the same layout share them, whatever their number of rows.
class WeightStore {
 public:
  explicit WeightStore(std::shared_ptr<PackMemory> memory)
      : memory_(memory ? std::move(memory) : std::make_shared<PackMemory>()) {}

  void start(const std::vector<const void*>& constant) {
    if (constant != constant_) {
      packed_.clear();
      free_ = {};
      ++filled;
      constant_ = sorted_ = constant;
      std::ranges::sort(sorted_, std::less<>());
    }
    memory_->owner = this;
    ++run;
  }
  bool is_its_turn() const { return run > 0 && memory_->owner == this; }
  bool holds(const void* b) const { return std::ranges::binary_search(sorted_, b, std::less<>()); }
  PackedWeights& get(const void* b, const Product& product) {
    const std::lock_guard lock(lookup_);
    auto& layouts = packed_[b];
    for (const auto& known : layouts)
      if (known->serves(product)) return *known;
    layouts.push_back(
        product.stored_weights().n > 0
            ? std::make_unique<PackedWeights>(product.type(), product.stored_weights(), take(product.packed_bytes()))
            : make(product.plain_weights(), product.packed_weights()));
    return *layouts.back();
  }
  std::unique_ptr<PackedWeights> make(const memory::desc& plain, const memory::desc& packed) {
    return std::make_unique<PackedWeights>(plain, packed, take(packed.get_size()));
  }

  uint64_t run = 0, filled = 0;

 private:
  ProductMemory& take(size_t bytes) {
    const std::lock_guard lock(taking_);
    return **held_.insert(memory_->take(bytes, free_)).first;
  }

  SpinLock lookup_, taking_;
  std::shared_ptr<PackMemory> memory_;  // shared with others that take turns
  PackMemory::Free free_;               // the blocks of it that are not in use
  // These stay for when the matrices are others, so that a run takes the same wherever they lie.
  std::set<std::shared_ptr<ProductMemory>> held_;
  std::vector<const void*> constant_, sorted_;
  std::map<const void*, std::vector<std::unique_ptr<PackedWeights>>> packed_;
};

struct WeightPacks::Entry {
  Entry(const ProductKey& key, ProductScratch& scratch) : product(key, scratch, true) {}
  Product product;
  PackedWeights* weights = nullptr;
};

struct WeightPacks::Panels {
  std::unique_ptr<PackedWeights> weights;
  uint64_t run = 0;
  int64_t products = 0;  // in this run
};

WeightPacks::WeightPacks(std::shared_ptr<PackMemory> memory)
    : store_(std::make_shared<WeightStore>(std::move(memory))), scratch_(std::make_unique<ProductScratch>()) {}
WeightPacks::WeightPacks(WeightPacks& other) : store_(other.store_), scratch_(std::make_unique<ProductScratch>()) {}
WeightPacks::~WeightPacks() = default;

void WeightPacks::start(const std::vector<const void*>& constant) { store_->start(constant); }

bool WeightPacks::is_its_turn() const { return store_->is_its_turn(); }

bool WeightPacks::holds(const void* b) const { return store_->holds(b); }

void WeightPacks::forget_others() {
  if (filled_ == store_->filled) return;
  products_.clear();
  *scratch_ = {};
  panels_.clear();
  filled_ = store_->filled;
}

PreparedProduct WeightPacks::prepare(const ProductPart& part) {
  forget_others();
  std::unique_ptr<Entry>& entry = products_[{part.b, part.key}];
  if (!entry) {
    entry = std::make_unique<Entry>(part.key, *scratch_);
    entry->weights = &store_->get(part.b, entry->product);
    entry->product.use(*entry->weights);
  }
  return {&entry->product, part, entry->weights, store_->run};
}

const float* WeightPacks::panels_of(const float* b, int64_t n, int64_t k, int64_t ld, int64_t columns) {
  constexpr int64_t kMostElements = 128 << 10, kProductsToPay = 16;
  if (n * k > kMostElements || n % columns != 0) return nullptr;
  forget_others();
  std::unique_ptr<Panels>& known = panels_[{b, n, k, ld}];
  if (!known) {
    const memory::dims sizes = {n / columns, columns, k};
    const memory::desc plain(sizes, memory::data_type::f32, memory::dims{columns * ld, ld, 1});
    const memory::desc packed(sizes, memory::data_type::f32, memory::dims{columns * k, 1, columns});
    known = std::make_unique<Panels>();
    known->weights = store_->make(plain, packed);
  }
  Panels& panels = *known;
  if (panels.run != store_->run) panels.products = 0;
  panels.run = store_->run;
  if (++panels.products <= kProductsToPay) return nullptr;
  panels.weights->pack(b, panels.run);
  return static_cast<const float*>(panels.weights->data());
}

}  // namespace stepnet
