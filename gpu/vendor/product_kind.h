// What tells one product of cuBLASLt's from another, and in which ways the library is asked for it.
// Threads: plain data, pure functions.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/runtime/product_sizes.h"
#include "stepnet/shape.h"

namespace stepnet::gpu {

// What a product does beside it, with a vector: adds it to each row of C, or writes the sums over k to it, for each
// column of A as it is stored, [k, m], or of B, [k, n]. Or it makes what is negative in C zero, after a bias.
enum class Epilogue : uint8_t { none, add_bias, sums_of_a, sums_of_b, relu, bias_and_relu };

bool writes_sums(Epilogue epilogue);
bool applies_relu(Epilogue epilogue);

struct ProductKind {
  ProductSizes sizes;
  DType dtype = DType::float32;
  bool tf32 = false;
  Epilogue epilogue = Epilogue::none;
  // Bytes that the addresses of A, B, C and the vector are multiples of, at most 256; of no vector 0.
  std::array<uint32_t, 4> alignments = {};
  auto operator<=>(const ProductKind&) const = default;
};

// Rows of a step's slab may begin anywhere, but kernels that load 16 bytes at a time are much faster: products are told
// apart by what their addresses allow. More than 256 bytes make no difference.
uint32_t alignment_of(const void* address);  // 0 for null

// In one line, for the file of choices and for messages; two kinds never have the same text.
std::string text_of(const ProductKind& kind);

// One way to ask for a product.
struct Attempt {
  bool epilogue = true;         // if not, a bias is added afterwards
  bool real_alignments = true;  // if not, addresses are said to be aligned to an element alone
  bool any_reduction = false;   // if not, parts of a sum are added up in the type that is computed in
  bool operator==(const Attempt&) const = default;
};

// The best way first. What writes sums or applies Relu has no other way: whoever asks for it has another product to do
// instead. Halves are never added up in halves.
std::vector<Attempt> attempts_for(const ProductKind& kind);

}  // namespace stepnet::gpu
