#include "core/matmul.h"

#include <thread>

#include "core/onednn_product.h"
#include "core/parallel.h"
#include "core/row_product.h"
#include "tests/core/heap_counter.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {
namespace {

struct Sizes {
  int64_t m, n, k;
};

// C + op(A) op(B) by plain loops.
Tensor reference(bool trans_a, bool trans_b, const Sizes& s, const Tensor& a, const Tensor& b, const Tensor& c) {
  Tensor sum = c.clone();
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j)
      for (int64_t l = 0; l < s.k; ++l)
        sum.data<float>()[i * s.n + j] += std::as_const(a).data<float>()[trans_a ? l * s.m + i : i * s.k + l] *
                                          std::as_const(b).data<float>()[trans_b ? j * s.k + l : l * s.n + j];
  return sum;
}

TEST(Matmul, EqualsPlainLoops) {
  for (const Sizes& s : {Sizes{1, 1, 1}, {1, 7, 5}, {5, 1, 3}, {4, 6, 1}, {1, 70, 45}, {1, 600, 300}, {130, 33, 70}})
    for (const int form : {0, 1, 2, 3, 4, 5, 6, 7}) {
      const bool trans_a = form & 1, trans_b = form & 2, add = form & 4;
      const Tensor a = normal<float>({s.m * s.k}, 1), b = normal<float>({s.k * s.n}, 2);
      Tensor c = normal<float>({s.m * s.n}, 3);
      const Tensor wanted = reference(trans_a, trans_b, s, a, b, add ? c : Tensor::zeros(DType::float32, c.shape()));
      matmul(trans_a, trans_b, s.m, s.n, s.k, a.data<float>(), b.data<float>(), c.data<float>(), add);
      EXPECT_EQ(compare(c, wanted, 1e-5), "") << fmt::format("{} {} {}, form {}", s.m, s.n, s.k, form);
    }
}

// For every instruction set, and whatever way the outputs are shared out.
TEST(Matmul, RowsOfOneGiveTheSameBitsInPieces) {
  const int64_t n = 83, k = 61;
  const Tensor a = normal<float>({k}, 1), b = normal<float>({k * n}, 2), before = normal<float>({n}, 3);
  for (const RowProductKernels* kernels : {&row_products_plain(), row_products_wide()}) {
    if (!kernels) continue;
    for (const bool transposed : {false, true})
      for (const bool add : {false, true}) {
        Tensor whole = before.clone(), pieces = before.clone();
        const auto kernel = transposed ? kernels->transposed : kernels->plain;
        kernel({n, k, a.data<float>(), b.data<float>(), whole.data<float>(), add}, 0, n);
        for (const int64_t begin : {0, 16, 64})
          kernel({n, k, a.data<float>(), b.data<float>(), pieces.data<float>(), add}, begin,
                 begin == 0    ? 16
                 : begin == 16 ? 64
                               : n);
        EXPECT_EQ(compare(pieces, whole, 0), "") << transposed << add;
        const Tensor from = add ? before : Tensor::zeros(DType::float32, {n});
        EXPECT_EQ(compare(whole, reference(false, transposed, {1, n, k}, a, b, from), 1e-5), "") << transposed << add;
      }
  }
}

TEST(Matmul, PackedWeightsGiveTheSameAndAreReadAgainInEachRun) {
  const Sizes s{6, 40, 24};
  const Tensor a = normal<float>({6 * 24}, 1);
  Tensor b = normal<float>({24 * 40}, 2);
  const float* weights = std::as_const(b).data<float>();
  const Tensor nothing = Tensor::zeros(DType::float32, {6 * 40});
  WeightPacks packs;
  EXPECT_FALSE(packs.holds(weights));
  for (const float factor : {1.0f, 3.0f}) {
    b.data<float>()[5] *= factor;
    packs.start({weights});
    EXPECT_TRUE(packs.holds(weights));
    for (const bool trans_b : {false, true}) {
      Tensor c = nothing.clone();
      matmul(false, trans_b, s.m, s.n, s.k, a.data<float>(), weights, c.data<float>(), false, &packs);
      EXPECT_EQ(compare(c, reference(false, trans_b, s, a, b, nothing), 1e-5), "") << factor << trans_b;
    }
  }
}

int made = 0;  // products that were not there

void multiply(int64_t m) {
  const Tensor a = Tensor::zeros(DType::float32, {m, 3}), b = Tensor::zeros(DType::float32, {3, 2});
  Tensor c = Tensor::zeros(DType::float32, {m, 2});
  const int64_t before = heap_allocations();
  matmul(false, false, m, 2, 3, a.data<float>(), b.data<float>(), c.data<float>());
  made += heap_allocations() > before ? 1 : 0;
}

// However many other sizes come and go, those of a loop are made once. On a thread of its own, which has made none.
TEST(Matmul, SizesInUseAreNotMadeAgain) {
  if (!counts_heap()) GTEST_SKIP() << "a sanitizer has its own operator new";
  std::thread([] {
    const SerialScope serial;
    constexpr int kInUse = 150, kNew = 50;
    for (int round = 0; round < 20; ++round) {
      made = 0;
      for (int m = 2; m < 2 + kInUse; ++m) multiply(m);
      EXPECT_EQ(made, round == 0 ? kInUse : 0) << round;
      for (int m = 0; m < kNew; ++m) multiply(2 + kInUse + round * kNew + m);
    }
  }).join();
}

}  // namespace
}  // namespace stepnet::testing
