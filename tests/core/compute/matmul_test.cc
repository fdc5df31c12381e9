#include "stepnet/matmul.h"

#include <cmath>
#include <limits>
#include <thread>

#include "core/compute/product.h"
#include "core/compute/product_kernels.h"
#include "core/compute/row_product.h"
#include "core/compute/threads.h"
#include "core/compute/vector_math.h"
#include "stepnet/half.h"
#include "tests/core/heap_counter.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::matmul_test {
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
      EXPECT_EQ(compare(c, wanted, 1e-5, ErrorScale::tensor), "")
          << fmt::format("{} {} {}, form {}", s.m, s.n, s.k, form);
    }
}

// For every instruction set, and whatever way the outputs are shared out.
TEST(Matmul, RowsOfOneGiveTheSameBitsInPieces) {
  const int64_t n = 83;
  for (const RowProductKernels* kernels : {&row_products_plain(), row_products_wide()})
    for (const int64_t k : {1, 16, 32, 48, 61, 64}) {
      if (!kernels) continue;
      const Tensor a = normal<float>({k}, 1), b = normal<float>({k * n}, 2), given = normal<float>({n}, 3);
      for (const bool transposed : {false, true})
        for (const bool add : {false, true})
          for (const bool has_bias : {false, true}) {
            const float* bias = has_bias ? given.data<float>() : nullptr;
            Tensor whole = given.clone(), pieces = given.clone(), from = Tensor::zeros(DType::float32, {n});
            const auto kernel = transposed ? kernels->transposed : kernels->plain;
            const int64_t ldb = transposed ? k : n;
            kernel({n, k, a.data<float>(), b.data<float>(), whole.data<float>(), add, ldb, bias}, 0, n);
            // Other instruction sets' plain products share out whole vectors.
            const std::vector<int64_t> ends =
                transposed ? std::vector<int64_t>{0, 5, 6, 62, n} : std::vector<int64_t>{0, 16, 64, n};
            for (size_t i = 0; i + 1 < ends.size(); ++i)
              kernel({n, k, a.data<float>(), b.data<float>(), pieces.data<float>(), add, ldb, bias}, ends[i],
                     ends[i + 1]);
            for (const bool term : {add, has_bias})
              if (term) vec_axpy(1.0F, given.span<float>(), from.span<float>());
            const std::string which = fmt::format("k {}, {} {} {}", k, transposed, add, has_bias);
            EXPECT_EQ(compare(pieces, whole, 0), "") << which;
            EXPECT_EQ(compare(whole, reference(false, transposed, {1, n, k}, a, b, from), 1e-5, ErrorScale::tensor), "")
                << which;
          }
    }
}

// [n / columns, k, columns] of what is stored as [n, k].
Tensor in_panels(const Tensor& b, int64_t n, int64_t k, int64_t columns) {
  Tensor panels = Tensor::empty(DType::float32, {n * k});
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < k; ++i)
      panels.data<float>()[(j / columns * k + i) * columns + j % columns] = b.data<float>()[j * k + i];
  return panels;
}

TEST(Matmul, RowsTimesPanels) {
  for (const RowProductKernels* kernels : {&row_products_plain(), row_products_wide()}) {
    if (!kernels) continue;
    const int64_t columns = kernels->panel_columns;
    for (const int64_t k : {1, 7, 64})
      for (const bool add : {false, true}) {
        const int64_t n = 3 * columns;
        const Tensor a = normal<float>({k}, 1), b = normal<float>({n * k}, 2), before = normal<float>({n}, 3);
        const Tensor panels = in_panels(b, n, k, columns);
        Tensor c = before.clone();
        const Tensor bias = normal<float>({n}, 4);
        const RowProduct product{n,   k, a.data<float>(),   panels.data<float>(), c.data<float>(),
                                 add, 0, bias.data<float>()};
        kernels->panels(product, columns, n);
        EXPECT_EQ(compare(c.rows(0, columns), before.rows(0, columns), 0), "");
        kernels->panels(product, 0, columns);
        Tensor from = bias.clone();
        if (add) vec_axpy(1.0F, before.span<float>(), from.span<float>());
        EXPECT_EQ(compare(c, reference(false, true, {1, n, k}, a, b, from), 1e-5), "") << k << add;
      }
  }
}

// One product by the kernels, with B packed before or not. ldc is wider than C.
struct KernelCall {
  Sizes s;
  bool trans_a = false, trans_b = false, accumulate = false;
  int64_t ld() const { return trans_b ? s.k : s.n; }
  Tensor run(const Tensor& a, const Tensor& b, const Tensor& before, const Tensor* bias, bool packed) const {
    Tensor c = before.clone();
    const FloatProduct<float> product{.m = s.m,
                                      .n = s.n,
                                      .k = s.k,
                                      .a = a.data<float>(),
                                      .lda = trans_a ? s.m : s.k,
                                      .trans_a = trans_a,
                                      .c = c.data<float>(),
                                      .ldc = before.shape()[1],
                                      .accumulate = accumulate,
                                      .bias = bias ? bias->data<float>() : nullptr};
    const StoredMatrix stored{.n = s.n, .k = s.k, .ld = ld(), .transposed = trans_b};
    Tensor scratch = Tensor::empty(DType::float32, {product_scratch_floats(product, packed)});
    if (!packed) {
      run_product(product, stored, b.data<float>(), scratch.data<float>());
      return c;
    }
    Tensor panels = Tensor::empty(DType::float32, {packed_floats(stored)});
    pack_matrix(stored, b.data<float>(), panels.data<float>());
    run_packed_product(product, std::as_const(panels).data<float>(), scratch.data<float>());
    return c;
  }
};

// Blocks of every kind: whole and partial tiles, more rows of B than one block has, more columns.
TEST(ProductKernels, EqualPlainLoopsAndOneAnother) {
  for (const Sizes& s :
       {Sizes{1, 1, 1}, {2, 3, 4}, {5, 15, 8}, {6, 16, 256}, {7, 17, 257}, {13, 530, 300}, {100, 31, 520}})
    for (int form = 0; form < 16; ++form) {
      const KernelCall call{s, (form & 1) != 0, (form & 2) != 0, (form & 4) != 0};
      const Tensor a = normal<float>({s.m * s.k}, 1), b = normal<float>({s.k * s.n}, 2), bias = normal<float>({s.n}, 4);
      const Tensor before = normal<float>({s.m, s.n + 3}, 3);
      const Tensor* added = form & 8 ? &bias : nullptr;
      const Tensor c = call.run(a, b, before, added, false);
      EXPECT_EQ(compare(call.run(a, b, before, added, true), c, 0), "") << "packed before";
      Tensor from = Tensor::zeros(DType::float32, {s.m, s.n}), made = from.clone();
      for (int64_t i = 0; i < s.m; ++i)
        for (int64_t j = 0; j < s.n; ++j) {
          from.data<float>()[i * s.n + j] =
              (call.accumulate ? before.data<float>()[i * (s.n + 3) + j] : 0) + (added ? bias.data<float>()[j] : 0);
          made.data<float>()[i * s.n + j] = std::as_const(c).data<float>()[i * (s.n + 3) + j];
        }
      EXPECT_EQ(compare(made, reference(call.trans_a, call.trans_b, s, a, b, from), 1e-5, ErrorScale::tensor), "")
          << fmt::format("{} {} {}, form {}", s.m, s.n, s.k, form);
      for (int64_t i = 0; i < s.m; ++i)
        for (int64_t j = s.n; j < s.n + 3; ++j)
          EXPECT_EQ(std::as_const(c).data<float>()[i * (s.n + 3) + j], before.data<float>()[i * (s.n + 3) + j]);
    }
}

TEST(ProductKernels, BitsDoNotDependOnOtherRowsAndColumns) {
  const Sizes s{23, 45, 300};
  const Tensor a = normal<float>({s.m, s.k}, 1), b = normal<float>({s.n, s.k}, 2);
  const Tensor c = KernelCall{s, false, true}.run(a, b, Tensor::zeros(DType::float32, {s.m, s.n}), nullptr, true);
  for (const int64_t rows : {1, 2, 3, 4, 5, 6, 11})
    for (const int64_t columns : {1, 16, 17, 40}) {
      const KernelCall part{{rows, columns, s.k}, false, true};
      const Tensor some =
          part.run(a.rows(5, rows), b.rows(3, columns), Tensor::zeros(DType::float32, {rows, columns}), nullptr, false);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
          ASSERT_EQ(some.data<float>()[i * columns + j], c.data<float>()[(i + 5) * s.n + j + 3]) << rows << columns;
    }
}

template <class To, class From>
Tensor converted(const Tensor& from) {
  Tensor to = Tensor::empty(dtype_of<To>(), from.shape());
  for (int64_t i = 0; i < from.size(); ++i) to.data<To>()[i] = static_cast<To>(float(from.data<From>()[i]));
  return to;
}

// Of halves, what floats give, rounded; with and without packed weights, by one thread and two, C of halves or floats.
template <class Half>
void expect_products_of_halves(double rounding) {
  for (const Sizes& s : {Sizes{1, 1, 1},
                         {1, 70, 45},
                         {1, 300, 600},
                         {2, 3, 4},
                         {7, 17, 257},
                         {5, 1, 3},
                         {13, 530, 300},
                         {100, 31, 520},
                         {1000, 33, 300},
                         {4, 6, 0}})
    for (int form = 0; form < 32; ++form) {
      const bool trans_a = form & 1, trans_b = form & 2, add = form & 4, packed = form & 8, wide = form & 16;
      const Tensor a = converted<Half, float>(normal<float>({s.m * s.k}, 1));
      const Tensor b = converted<Half, float>(normal<float>({s.k * s.n}, 2));
      const Tensor bias = converted<Half, float>(normal<float>({s.n}, 4));
      const Tensor before = converted<float, Half>(converted<Half, float>(normal<float>({s.m * s.n}, 3)));
      Tensor from = add ? before.clone() : Tensor::zeros(DType::float32, before.shape());
      if (!wide)
        for (int64_t i = 0; i < from.size(); ++i) from.data<float>()[i] += float(bias.data<Half>()[i % s.n]);
      const Tensor wanted = reference(trans_a, trans_b, s, converted<float, Half>(a), converted<float, Half>(b), from);
      set_threads(packed ? 2 : 1);
      WeightPacks packs;
      if (packed) packs.start({b.data<Half>()});
      Tensor made = wide ? before.clone() : converted<Half, float>(before);
      const auto run = [&](auto* c, const Half* added) {
        matmul(trans_a, trans_b, s.m, s.n, s.k, a.data<Half>(), b.data<Half>(), c, add, packed ? &packs : nullptr,
               added);
      };
      wide ? run(made.data<float>(), nullptr) : run(made.data<Half>(), bias.data<Half>());
      EXPECT_EQ(compare(wide ? made : converted<float, Half>(made), wanted, wide ? 1e-5 : rounding, ErrorScale::tensor),
                "")
          << fmt::format("{} {} {}, form {}", s.m, s.n, s.k, form);
    }
  set_threads(0);
}

TEST(Matmul, ProductsOfHalves) {
  expect_products_of_halves<bfloat16>(0x1p-8);
  expect_products_of_halves<float16>(0x1p-11);
}

// The kernels by which CPUs multiply halves that have no instruction for it: the sums are those of floats, to the bit.
template <class Half>
void expect_kernels_of_halves() {
  for (const Sizes& s : {Sizes{1, 1, 1}, {7, 17, 257}, {13, 530, 300}, {100, 31, 520}})
    for (int form = 0; form < 8; ++form) {
      const bool trans_a = form & 1, trans_b = form & 2, packed = form & 4;
      const Tensor a = converted<Half, float>(normal<float>({s.m * s.k}, 1));
      const Tensor b = converted<Half, float>(normal<float>({s.k * s.n}, 2));
      const Tensor wanted =
          KernelCall{s, trans_a, trans_b}.run(converted<float, Half>(a), converted<float, Half>(b),
                                              Tensor::zeros(DType::float32, {s.m, s.n}), nullptr, packed);
      Tensor c = Tensor::zeros(DType::float32, {s.m, s.n});
      const FloatProduct<Half> product{.m = s.m,
                                       .n = s.n,
                                       .k = s.k,
                                       .a = a.data<Half>(),
                                       .lda = trans_a ? s.m : s.k,
                                       .trans_a = trans_a,
                                       .c = c.data<float>(),
                                       .ldc = s.n};
      const StoredMatrix stored{.n = s.n, .k = s.k, .ld = trans_b ? s.k : s.n, .transposed = trans_b};
      Tensor scratch = Tensor::empty(DType::float32, {product_scratch_floats(product, packed)});
      Tensor panels = Tensor::empty(DType::float32, {packed_floats(stored)});
      pack_matrix(stored, b.data<Half>(), panels.data<float>());
      packed ? run_packed_product(product, std::as_const(panels).data<float>(), scratch.data<float>())
             : run_product(product, stored, b.data<Half>(), scratch.data<float>());
      EXPECT_EQ(compare(c, wanted, 0), "") << fmt::format("{} {} {}, form {}", s.m, s.n, s.k, form);
    }
}

TEST(ProductKernels, OfHalvesGiveTheBitsOfFloats) {
  expect_kernels_of_halves<bfloat16>();
  expect_kernels_of_halves<float16>();
}

// Their panels are packed after some products of a run, and anew in the next.
TEST(Matmul, RowsTimesWeightsThatChangeBetweenRuns) {
  constexpr int64_t n = 256, k = 40;
  const Tensor a = normal<float>({k}, 1);
  Tensor b = normal<float>({n * k}, 2);
  const float* weights = std::as_const(b).data<float>();
  const Tensor nothing = Tensor::zeros(DType::float32, {n});
  WeightPacks packs;
  for (int run = 0; run < 3; ++run) {
    b.data<float>()[5] += 1;
    packs.start({weights});
    const Tensor expected = reference(false, true, {1, n, k}, a, b, nothing);
    for (int product = 0; product < 40; ++product) {
      Tensor c = nothing.clone();
      matmul(false, true, 1, n, k, a.data<float>(), weights, c.data<float>(), false, &packs);
      ASSERT_EQ(compare(c, expected, 1e-5), "") << run << ", " << product;
    }
  }
}

// Rows of the matrix are shared out among threads.
TEST(Matmul, OneRowInSeveralParts) {
  constexpr int64_t n = 700, k = 901;
  const Tensor a = normal<float>({k}, 1), b = normal<float>({n * k}, 2), before = normal<float>({n}, 3);
  for (const int count : {1, 2, 3}) {
    set_threads(count);
    for (const bool trans_b : {false, true})
      for (const bool add : {false, true}) {
        Tensor c = before.clone();
        matmul(false, trans_b, 1, n, k, a.data<float>(), b.data<float>(), c.data<float>(), add);
        const Tensor from = add ? before : Tensor::zeros(DType::float32, {n});
        EXPECT_EQ(compare(c, reference(false, trans_b, {1, n, k}, a, b, from), 1e-5, ErrorScale::tensor), "")
            << count << trans_b << add;
      }
  }
  set_threads(0);
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

// `rows` rows of a matrix, `first` columns from the left of a wider one, of which the others are NaN.
Tensor widened(const Tensor& m, int64_t rows, const ColumnsIn& in) {
  Tensor wide = Tensor::zeros(DType::float32, {rows * in.ld});
  for (int64_t i = 0; i < wide.size(); ++i) wide.data<float>()[i] = std::numeric_limits<float>::quiet_NaN();
  const int64_t columns = m.size() / rows;
  for (int64_t i = 0; i < m.size(); ++i)
    wide.data<float>()[i / columns * in.ld + in.first + i % columns] = m.data<float>()[i];
  return wide;
}

// As they are and packed, one row and more, alone and in parts, and again, when a row has panels.
TEST(Matmul, ColumnsOfWiderMatrices) {
  for (const Sizes& s : {Sizes{1, 256, 24}, {1, 5, 7}, {6, 40, 24}, {3, 5, 7}, {150, 130, 160}, {1, 700, 901}})
    for (const int form : {0, 1, 2, 3, 4, 5, 6, 7}) {
      const bool trans_b = form & 1, add = form & 2, packed = form & 4;
      const Tensor a = normal<float>({s.m * s.k}, 1), b = normal<float>({s.k * s.n}, 2);
      const Tensor before = normal<float>({s.m * s.n}, 3), nothing = Tensor::zeros(DType::float32, before.shape());
      const ColumnsIn b_in = {3, (trans_b ? s.k : s.n) + 5}, c_in = {2, s.n + (s.m > 1 ? 4 : 2)};
      const Tensor wide = widened(b, trans_b ? s.n : s.k, b_in);
      const Tensor wanted = widened(reference(false, trans_b, s, a, b, add ? before : nothing), s.m, c_in);
      set_threads(packed ? 1 : 2);
      WeightPacks packs;
      packs.start({wide.data<float>()});
      for (int run = 0; run < 20; ++run) {
        Tensor c = widened(before, s.m, c_in);
        matmul(false, trans_b, s.m, s.n, s.k, a.data<float>(), wide.data<float>(), c.data<float>(), add,
               packed ? &packs : nullptr, nullptr, b_in, c_in);
        for (int64_t i = 0; i < c.size(); ++i) {
          const float is = c.data<float>()[i], should = wanted.data<float>()[i];
          ASSERT_EQ(std::isnan(is), std::isnan(should)) << i;
          ASSERT_FALSE(std::abs(is - should) > 1e-3) << fmt::format("{} of {} {} {}", i, s.m, s.n, s.k);
        }
      }
    }
  set_threads(0);
}

// The matrix and its first columns begin at the same place.
TEST(Matmul, ColumnsAreNotTakenForTheWholeMatrix) {
  constexpr int64_t n = 256, k = 40, part = 24;
  const Tensor a = normal<float>({k}, 1), b = normal<float>({n * k}, 2);
  Tensor columns = Tensor::zeros(DType::float32, {n * part}), nothing = Tensor::zeros(DType::float32, {n});
  for (int64_t i = 0; i < n * part; ++i) columns.data<float>()[i] = b.data<float>()[i / part * k + i % part];
  WeightPacks packs;
  packs.start({b.data<float>()});
  for (int product = 0; product < 40; ++product)
    for (const int64_t width : {part, k}) {
      Tensor c = nothing.clone();
      matmul(false, true, 1, n, width, a.data<float>(), b.data<float>(), c.data<float>(), false, &packs, nullptr,
             {0, k});
      const Tensor wanted = reference(false, true, {1, n, width}, a, width == k ? b : columns, nothing);
      ASSERT_EQ(compare(c, wanted, 1e-5), "") << product << ", " << width;
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
}  // namespace stepnet::testing::matmul_test
