#include "gpu/vendor/product_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "stepnet/half.h"

namespace stepnet::gpu {
namespace {

constexpr int kMostBits = 8;  // of 256 bytes

std::string_view name_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none:
      return "";
    case Epilogue::add_bias:
      return ", bias";
    case Epilogue::sums_of_a:
      return ", sums of A";
    case Epilogue::sums_of_b:
      return ", sums of B";
    case Epilogue::relu:
      return ", Relu";
    case Epilogue::bias_and_relu:
      return ", bias and Relu";
  }
  return "";
}

}  // namespace

bool writes_sums(Epilogue epilogue) { return epilogue == Epilogue::sums_of_a || epilogue == Epilogue::sums_of_b; }
bool applies_relu(Epilogue epilogue) { return epilogue == Epilogue::relu || epilogue == Epilogue::bias_and_relu; }

uint32_t alignment_of(const void* address) {
  return address ? uint32_t{1} << std::min(std::countr_zero(reinterpret_cast<uintptr_t>(address)), kMostBits) : 0;
}

std::string text_of(const ProductKind& kind) {
  const ProductSizes& s = kind.sizes;
  const auto [a, b, c, vector] = kind.alignments;
  return fmt::format(
      "{}{} [{}, {}]{} [{}, {}]{}{}{}, rows apart {} {} {}, batch {} apart {} {} {}, aligned {} {} {} {}",
      dtype_name(kind.dtype), kind.tf32 ? " as TF32" : "", s.m, s.k, s.trans_a ? " stored [k, m]" : "", s.k, s.n,
      s.trans_b ? " stored [n, k]" : "", s.accumulate ? ", accumulated" : "", name_of(kind.epilogue), s.lda, s.ldb,
      s.ldc, s.batch, s.stride_a, s.stride_b, s.stride_c, a, b, c, vector);
}

std::vector<Attempt> attempts_for(const ProductKind& kind) {
  if (writes_sums(kind.epilogue) || applies_relu(kind.epilogue)) return {{}};
  std::vector<Attempt> all;
  if (kind.epilogue == Epilogue::add_bias) all.push_back({});
  all.push_back({.epilogue = false});
  all.push_back({.epilogue = false, .real_alignments = false});
  if (!is_half(kind.dtype)) all.push_back({.epilogue = false, .real_alignments = false, .any_reduction = true});
  return all;
}

}  // namespace stepnet::gpu
