#include "core/onednn_product.h"

#include <algorithm>

#include "core/error.h"

namespace stepnet {
namespace {

using dnnl::memory;

const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& stream() {
  thread_local dnnl::stream stream(cpu());
  return stream;
}

// `ld` elements from one stored row to the next.
memory::desc layout(int64_t rows, int64_t columns, bool transposed, int64_t ld) {
  const memory::dims strides = transposed ? memory::dims{1, ld} : memory::dims{ld, 1};
  return {{rows, columns}, memory::data_type::f32, strides};
}

dnnl::matmul::primitive_desc describe(const ProductKey& key, const memory::desc& b) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  const memory::desc a = layout(key.m, key.k, key.trans_a, key.lda), c = layout(key.m, key.n, false, key.ldc);
  const dnnl::matmul::desc desc =
      key.bias ? dnnl::matmul::desc(a, b, layout(1, key.n, false, key.n), c) : dnnl::matmul::desc(a, b, c);
  return {desc, attributes, cpu()};
}

Tensor bytes(size_t count) { return Tensor::empty(DType::uint8, {static_cast<int64_t>(count)}); }

// Beyond so many sizes all are made anew: a program with ever new ones must not grow for ever.
constexpr size_t kMostProducts = 512;

}  // namespace

Product::Product(const ProductKey& key, bool packed)
    : b_layout_(layout(key.k, key.n, key.trans_b, key.ldb)), packed_(packed) {
  const memory::desc any({key.k, key.n}, memory::data_type::f32, memory::format_tag::any);
  desc_ = describe(key, packed ? any : b_layout_);
  primitive_ = dnnl::matmul(desc_);
  scratch_ = bytes(desc_.scratchpad_desc().get_size());
  a_ = memory(desc_.src_desc(), cpu(), nullptr);
  c_ = memory(desc_.dst_desc(), cpu(), nullptr);
  plain_b_ = memory(b_layout_, cpu(), nullptr);
  b_ = memory(desc_.weights_desc(), cpu(), nullptr);
  if (packed) {
    pack_ = bytes(desc_.weights_desc().get_size());
    b_.set_data_handle(pack_.raw());
    packing_ = dnnl::reorder(plain_b_, b_);
  }
  const memory scratch(desc_.scratchpad_desc(), cpu(), scratch_.raw());
  arguments_ = {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}, {DNNL_ARG_SCRATCHPAD, scratch}};
  if (!key.bias) return;
  bias_ = memory(desc_.bias_desc(), cpu(), nullptr);
  arguments_.emplace(DNNL_ARG_BIAS, bias_);
}

// oneDNN's memory takes no pointer to const; it does not write what it only reads.
void Product::pack(const float* b) {
  plain_b_.set_data_handle(const_cast<float*>(b));
  packing_.execute(stream(), plain_b_, b_);
}

void Product::run(const ProductPart& part) {
  a_.set_data_handle(const_cast<float*>(part.a));
  if (!packed_) b_.set_data_handle(const_cast<float*>(part.b));
  if (part.bias) bias_.set_data_handle(const_cast<float*>(part.bias));
  c_.set_data_handle(part.c);
  primitive_.execute(stream(), arguments_);
}

void PreparedProduct::run() const {
  if (pack) product->pack(part.b);
  product->run(part);
}

PreparedProduct cached_product(const ProductPart& part) {
  thread_local std::map<ProductKey, std::unique_ptr<Product>> products;
  auto found = products.find(part.key);
  if (found == products.end()) {
    // The parts of one product are asked for one after the other, and must all be there at once.
    if (products.size() >= kMostProducts && part.key.part == 0) products.clear();
    found = products.emplace(part.key, std::make_unique<Product>(part.key, false)).first;
  }
  return {found->second.get(), part, false};
}

struct WeightPacks::Packed {
  explicit Packed(const ProductKey& key) : product(key, true) {}
  Product product;
  uint64_t run = 0;  // in which B was packed
};

WeightPacks::WeightPacks() = default;
WeightPacks::~WeightPacks() = default;

void WeightPacks::start(const std::vector<const void*>& constant) {
  if (constant != constant_) packed_.clear();
  constant_ = constant;
  ++run_;
}

bool WeightPacks::holds(const float* b) const {
  return std::find(constant_.begin(), constant_.end(), static_cast<const void*>(b)) != constant_.end();
}

PreparedProduct WeightPacks::prepare(const ProductPart& part) {
  std::unique_ptr<Packed>& packed = packed_[{part.b, part.key}];
  if (!packed) packed = std::make_unique<Packed>(part.key);
  const bool pack = packed->run != run_;
  packed->run = run_;
  return {&packed->product, part, pack};
}

}  // namespace stepnet
