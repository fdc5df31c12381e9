#include "stepnet/elementwise_chain.h"

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "core/gradcheck/examples.h"
#include "tests/core/compute/fused_reference.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::elementwise_chain_test {
namespace {

template <class T>
void expect_each_code_is_right(const FusedKernels& kernels, double tolerance) {
  constexpr int64_t kRows = 3;
  for (const FusedCode code : all_fused_codes())
    for (const int64_t width : {1, 7, 128, 129, 256, 257, 300, 600}) {
      Tensor a = normal<T>({kRows, width}, 1);
      Tensor b = normal<T>({kRows, width}, 2);
      if (takes_a_zero(code)) b.fill_zero();
      if (takes_positive(code))
        for (T& x : a.span<T>()) x = std::abs(x);
      Tensor made = Tensor::zeros(dtype_of<T>(), {kRows, width}), wanted = made.clone();
      const FusedInstruction i{code, 0, 1, 1.5, 2};
      const FusedOperand<T> tensors[] = {
          {a.template data<T>(), width}, {b.template data<T>(), width}, {made.template data<T>(), width}};
      kernels.run(FusedLoop<T>{&i, 1, tensors, 3, width, 2, kRows}, 0, fused_pieces(kRows, width));
      for (int64_t j = 0; j < kRows * width; ++j)
        wanted.template data<T>()[j] = static_cast<T>(fused_reference(i, a.data<T>()[j], b.data<T>()[j]));
      EXPECT_EQ(compare(made, wanted, tolerance), "") << fused_code(code).name << " " << width;
    }
}

TEST(Fused, EachCodeIsRight) {
  for (const FusedKernels* kernels : {&fused_kernels_plain(), &fused_kernels()}) {
    expect_each_code_is_right<float>(*kernels, 1e-6);
    expect_each_code_is_right<double>(*kernels, 1e-14);
  }
}

// Infinite numbers, zeros and NaN, among them as the second operand.
template <class T>
void expect_extremes(const FusedKernels& kernels) {
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> extremes = {inf, -inf, nan, T(0), T(-0.0), T(1), T(-1), T(1000), T(-1000)};
  const auto count = static_cast<int64_t>(extremes.size());
  Tensor a = Tensor::empty(dtype_of<T>(), {count * count}), b = a.clone(), made = a.clone();
  for (int64_t i = 0; i < a.size(); ++i) {
    a.data<T>()[i] = extremes[static_cast<size_t>(i / count)];
    b.data<T>()[i] = extremes[static_cast<size_t>(i % count)];
  }
  for (const FusedCode code : all_fused_codes()) {
    if (takes_a_zero(code)) continue;
    const FusedInstruction i{code, 0, 1, 0.5, 2};
    const FusedOperand<T> tensors[] = {{a.data<T>()}, {b.data<T>()}, {made.data<T>()}};
    kernels.run(FusedLoop<T>{&i, 1, tensors, 3, a.size(), 2}, 0, fused_pieces(1, a.size()));
    for (int64_t j = 0; j < a.size(); ++j) {
      const T x = a.data<T>()[j], y = b.data<T>()[j], found = made.data<T>()[j];
      const auto wanted = static_cast<T>(fused_reference(i, x, y));
      EXPECT_TRUE(std::isnan(wanted) ? std::isnan(found)
                                     : found == wanted || std::fabs(found - wanted) <= 1e-6 * std::fabs(wanted))
          << fused_code(code).name << " of " << x << " and " << y << " is " << found << ", not " << wanted;
    }
  }
}

TEST(Fused, ExtremesAreRight) {
  for (const FusedKernels* kernels : {&fused_kernels_plain(), &fused_kernels()}) {
    expect_extremes<float>(*kernels);
    expect_extremes<double>(*kernels);
  }
}

// Of halves, what floats give, rounded after each operator: here once before the multiplication, not after tanh.
template <class Half>
void expect_chain_of_halves(const FusedKernels& kernels) {
  constexpr int64_t kRows = 3;
  for (const int64_t width : {1, 7, 128, 300}) {
    Tensor x = Tensor::empty(dtype_of<Half>(), {kRows, width}), y = x.clone(), sum = x.clone(), made = x.clone();
    const Tensor a = normal<float>({kRows, width}, 1), b = normal<float>({kRows, width}, 2);
    for (int64_t j = 0; j < x.size(); ++j) {
      x.data<Half>()[j] = Half(a.data<float>()[j]);
      y.data<Half>()[j] = Half(b.data<float>()[j]);
    }
    const FusedInstruction code[] = {
        {FusedCode::add, 0, 1, 0, 2, true}, {FusedCode::scale, 2, 2, 1.5, 4}, {FusedCode::mul, 4, 0, 0, 3, true}};
    const FusedOperand<Half> tensors[] = {
        {x.data<Half>(), width}, {y.data<Half>(), width}, {sum.data<Half>(), width}, {made.data<Half>(), width}};
    kernels.run(FusedLoop<Half>{code, 3, tensors, 4, width, 2, kRows}, 0, fused_pieces(kRows, width));
    for (int64_t j = 0; j < x.size(); ++j) {
      const Half first(x.data<Half>()[j] + y.data<Half>()[j]), last(float(first) * 1.5F * float(x.data<Half>()[j]));
      EXPECT_EQ(float(sum.data<Half>()[j]), float(first)) << j;
      EXPECT_EQ(float(made.data<Half>()[j]), float(last)) << j;
    }
  }
}

TEST(Fused, OperatorsOutputsOfHalvesAreRounded) {
  for (const FusedKernels* kernels : {&fused_kernels_plain(), &fused_kernels()}) {
    expect_chain_of_halves<float16>(*kernels);
    expect_chain_of_halves<bfloat16>(*kernels);
  }
}

// y = tanh(columns 3 to 5 of x + v) (1 - w), w a vector for all rows; in pieces of the work as threads do them.
TEST(Fused, ChainsReadColumnsAndVectors) {
  constexpr int64_t kRows = 100, kWide = 7, kWidth = 3;
  const Tensor x = normal<double>({kRows, kWide}, 1), v = normal<double>({kRows, kWidth}, 2);
  const Tensor w = normal<double>({kWidth}, 3);
  Tensor y = Tensor::zeros(DType::float64, {kRows, kWidth}), wanted = y.clone();
  const FusedInstruction code[] = {{FusedCode::add, 0, 1, 0, 4},
                                   {FusedCode::tanh, 4, 4, 0, 4},
                                   {FusedCode::one_minus, 2, 2, 0, 5},
                                   {FusedCode::mul, 4, 5, 0, 3}};
  const FusedOperand<double> tensors[] = {{const_cast<double*>(x.data<double>()) + 3, kWide},
                                          {const_cast<double*>(v.data<double>()), kWidth},
                                          {const_cast<double*>(w.data<double>()), 0},
                                          {y.data<double>(), kWidth}};
  const FusedLoop<double> loop{code, 4, tensors, 4, kWidth, 3, kRows};
  fused_kernels().run(loop, 0, 2);
  fused_kernels().run(loop, 2, fused_pieces(kRows, kWidth));
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t j = 0; j < kWidth; ++j)
      wanted.data<double>()[r * kWidth + j] =
          std::tanh(x.data<double>()[r * kWide + 3 + j] + v.data<double>()[r * kWidth + j]) * (1 - w.data<double>()[j]);
  EXPECT_EQ(compare(y, wanted, 1e-14), "");
}

// The loop's row that an operand has for row r.
template <class T>
int64_t row_of(const FusedOperand<T>& t, int64_t r) {
  return t.cycle > 0 ? r / t.each % t.cycle : r / t.each;
}

template <class T>
Tensor rounded_normal(const Shape& shape, uint64_t seed) {
  const Tensor values = normal<float>(shape, seed);
  Tensor made = Tensor::empty(dtype_of<T>(), values.shape());
  for (int64_t j = 0; j < made.size(); ++j) made.data<T>()[j] = T(values.data<float>()[j]);
  return made;
}

// Columns 2 on of z are x + v - s + u w, as if all were repeated: v has one element for each row, s one for all, u a
// row for three that follow one another, and w four rows by turns.
template <class T>
void expect_repeats(const FusedKernels& kernels) {
  constexpr int64_t kRows = 24;
  for (const int64_t width : {1, 5, 16, 64, 65, 128, 129, 300, 600}) {
    Tensor x = rounded_normal<T>({kRows, width}, 1), v = rounded_normal<T>({kRows}, 2), s = rounded_normal<T>({1}, 3);
    Tensor u = rounded_normal<T>({kRows / 3, width}, 4), w = rounded_normal<T>({4, width}, 5);
    Tensor made = rounded_normal<T>({kRows, width + 3}, 6);
    const Tensor before = made.clone();
    const FusedInstruction code[] = {{FusedCode::add, 0, 1, 0, 6},
                                     {FusedCode::sub, 6, 2, 0, 6},
                                     {FusedCode::mul, 3, 4, 0, 7},
                                     {FusedCode::add, 6, 7, 0, 5}};
    const FusedOperand<T> tensors[] = {{x.data<T>(), width},          {v.data<T>(), 1, 0},
                                       {s.data<T>(), 0, 0},           {u.data<T>(), width, 1, 3},
                                       {w.data<T>(), width, 1, 1, 4}, {made.data<T>() + 2, width + 3}};
    const FusedLoop<T> loop{code, 4, tensors, 6, width, 5, kRows};
    const int64_t pieces = fused_pieces(kRows, width);
    kernels.run(loop, 0, pieces / 2);
    kernels.run(loop, pieces / 2, pieces);
    using Sum = std::conditional_t<sizeof(T) == 2, float, T>;
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t j = 0; j < width + 3; ++j) {
        const auto at = [&](const FusedOperand<T>& t) {
          return Sum(t.first[row_of(t, r) * t.stride + (j - 2) * t.step]);
        };
        const bool is_made = j >= 2 && j < width + 2;
        T wanted = before.data<T>()[r * (width + 3) + j];
        if (is_made) {
          const volatile Sum product = at(tensors[3]) * at(tensors[4]);  // rounded by itself
          wanted = T(at(tensors[0]) + at(tensors[1]) - at(tensors[2]) + product);
        }
        EXPECT_EQ(double(made.data<T>()[r * (width + 3) + j]), double(wanted)) << width << " " << r << " " << j;
      }
  }
}

TEST(Fused, OperandsRepeat) {
  for (const FusedKernels* kernels : {&fused_kernels_plain(), &fused_kernels()}) {
    expect_repeats<float>(*kernels);
    expect_repeats<double>(*kernels);
    expect_repeats<float16>(*kernels);
    expect_repeats<bfloat16>(*kernels);
  }
}

// s = the sums of the rows of x y, and z = x y: of whole rows, in pieces of the work as threads do them.
template <class T>
void expect_row_sums(const FusedKernels& kernels, double tolerance) {
  constexpr int64_t kRows = 24;
  for (const int64_t width : {5, 8, 16, 24, 64, 65, 128, 250, 300, 600}) {
    Tensor x = rounded_normal<T>({kRows, width}, 1), y = rounded_normal<T>({width}, 2), z = x.clone();
    Tensor sums = rounded_normal<T>({kRows}, 3);
    const FusedInstruction code[] = {
        {FusedCode::mul, 0, 1, 0, 4, true}, {FusedCode::copy, 4, 4, 0, 2}, {FusedCode::copy, 4, 4, 0, 3}};
    const FusedOperand<T> tensors[] = {
        {x.data<T>(), width}, {y.data<T>(), 0}, {z.data<T>(), width}, {sums.data<T>(), 1, 0, 1, 0, true}};
    const FusedLoop<T> loop{code, 3, tensors, 4, width, 2, kRows};
    const int64_t together = fused_rows_at_once(width) == 1 ? fused_pieces_of_row(width) : 1;
    const int64_t parts = fused_pieces(kRows, width) / together;
    kernels.run(loop, 0, parts / 2 * together);
    kernels.run(loop, parts / 2 * together, parts * together);
    for (int64_t r = 0; r < kRows; ++r) {
      double wanted = 0;
      for (int64_t j = 0; j < width; ++j) {
        const T product = T(x.data<T>()[r * width + j] * y.data<T>()[j]);
        EXPECT_EQ(double(z.data<T>()[r * width + j]), double(product));
        wanted += double(product);
      }
      EXPECT_NEAR(double(sums.data<T>()[r]), wanted, tolerance * std::max(1.0, std::sqrt(double(width)))) << width;
    }
  }
}

TEST(Fused, RowsAreSummed) {
  for (const FusedKernels* kernels : {&fused_kernels_plain(), &fused_kernels()}) {
    expect_row_sums<float>(*kernels, 1e-6);
    expect_row_sums<double>(*kernels, 1e-15);
    expect_row_sums<float16>(*kernels, 2e-3);
    expect_row_sums<bfloat16>(*kernels, 2e-2);
  }
}

FusedInstruction narrow(FusedInstruction i) {
  i.narrow = true;
  return i;
}

// A product with a sum, and sums of rows, which narrow instructions and the last one read again.
template <class T>
void expect_chain_codes(const FusedKernels& kernels, double tolerance) {
  constexpr int64_t kRows = 25;
  using Sum = std::conditional_t<sizeof(T) == 2, float, T>;
  for (const int64_t width : {1, 2, 8, 15, 16, 32, 40, 100, 128, 256}) {
    Tensor x = rounded_normal<T>({kRows, width}, 1), y = rounded_normal<T>({kRows, width}, 2);
    Tensor z = rounded_normal<T>({kRows, width}, 3), sums = rounded_normal<T>({kRows}, 4), products = sums.clone();
    Tensor made = x.clone(), less = x.clone();
    FusedInstruction code[] = {{FusedCode::product_sum, 0, 1, 0, 3}, {FusedCode::less_product, 0, 1, 0, 4},
                               {FusedCode::row_sum, 0, 0, 0, 5},     {FusedCode::row_product, 0, 1, 0, 7},
                               {FusedCode::spread, 5, 5, 0, 8},      {FusedCode::add, 8, 3, 0, 3},
                               narrow({FusedCode::copy, 7, 7, 0, 6})};
    code[0].c = code[1].c = 2;
    FusedOperand<T> tensors[] = {{x.data<T>(), width},    {y.data<T>(), width},    {z.data<T>(), width},
                                 {made.data<T>(), width}, {less.data<T>(), width}, {sums.data<T>(), 1, 0},
                                 {products.data<T>(), 1}};
    tensors[5].narrow = tensors[6].narrow = true;
    kernels.run(FusedLoop<T>{code, 7, tensors, 7, width, 3, kRows}, 0, fused_pieces(kRows, width));
    for (int64_t r = 0; r < kRows; ++r) {
      double sum = 0, product = 0;
      for (int64_t j = 0; j < width; ++j) {
        const int64_t at = r * width + j;
        const volatile Sum xy = Sum(x.data<T>()[at]) * Sum(y.data<T>()[at]);  // rounded by itself
        sum += double(x.data<T>()[at]);
        product += double(xy);
        EXPECT_EQ(double(less.data<T>()[at]), double(T(Sum(z.data<T>()[at]) - xy)));
      }
      const double most = tolerance * std::max(1.0, std::sqrt(double(width)));
      EXPECT_NEAR(double(sums.data<T>()[r]), sum, most) << width << " " << r;
      EXPECT_NEAR(double(products.data<T>()[r]), product, most) << width << " " << r;
      for (int64_t j = 0; j < width; ++j) {
        const int64_t at = r * width + j;
        const double xyz = double(x.data<T>()[at]) * double(y.data<T>()[at]) + double(z.data<T>()[at]);
        EXPECT_NEAR(double(made.data<T>()[at]), sum + xyz, 2 * most) << width << " " << r;
      }
    }
  }
}

// Narrow operands that are dense, have gaps, have a row for several, start again, or are one element for all; the last
// one gets the result, and what stands beside it stays.
template <class T>
void expect_narrow(const FusedKernels& kernels) {
  constexpr int64_t kRows = 60;
  using Sum = std::conditional_t<sizeof(T) == 2, float, T>;
  for (const int64_t width : {1, 8, 15, 32, 100, 130, 256}) {
    Tensor x = rounded_normal<T>({kRows, width}, 1), all = rounded_normal<T>({kRows, 2}, 2), made = all.clone();
    const Tensor before = made.clone();
    Tensor spread = rounded_normal<T>({kRows, width}, 3);
    T* const v = all.data<T>();
    FusedOperand<T> tensors[] = {
        {x.data<T>(), width}, {v, 1}, {v + 1, 2}, {v, 1, 1, 3}, {v, 1, 1, 1, 4}, {v, 0}, {spread.data<T>(), width},
        {made.data<T>(), 2}};
    for (const int t : {1, 2, 3, 4, 5, 7}) tensors[t].narrow = true;
    const FusedInstruction code[] = {narrow({FusedCode::add, 1, 2, 0, 8}), narrow({FusedCode::sub, 8, 3, 0, 8}),
                                     narrow({FusedCode::add, 8, 4, 0, 9}), narrow({FusedCode::add, 9, 5, 0, 7}),
                                     {FusedCode::spread, 7, 7, 0, 10},     {FusedCode::add, 10, 0, 0, 6}};
    const FusedLoop<T> loop{code, 6, tensors, 8, width, 6, kRows};
    const int64_t pieces = fused_pieces(kRows, width);
    kernels.run(loop, 0, pieces / 2);
    kernels.run(loop, pieces / 2, pieces);
    for (int64_t r = 0; r < kRows; ++r) {
      const Sum sum = Sum(v[r]) + Sum(v[2 * r + 1]) - Sum(v[r / 3]) + Sum(v[r % 4]) + Sum(v[0]);
      EXPECT_EQ(double(made.data<T>()[2 * r]), double(T(sum))) << width << " " << r;
      EXPECT_EQ(double(made.data<T>()[2 * r + 1]), double(before.data<T>()[2 * r + 1])) << width << " " << r;
      for (int64_t at = r * width; at < (r + 1) * width; ++at)
        EXPECT_EQ(double(spread.data<T>()[at]), double(T(sum + Sum(x.data<T>()[at])))) << width << " " << r;
    }
  }
}

// Codes whose first operand may be a column.
template <class T>
void expect_columns(const FusedKernels& kernels) {
  constexpr int64_t kRows = 21;
  using Sum = std::conditional_t<sizeof(T) == 2, float, T>;
  for (const int64_t width : {1, 8, 15, 16, 32, 40, 130, 256}) {
    Tensor v = rounded_normal<T>({kRows}, 1), x = rounded_normal<T>({kRows, width}, 2),
           y = rounded_normal<T>({kRows, width}, 3), made = rounded_normal<T>({4, kRows, width}, 4);
    const FusedCode codes[] = {FusedCode::add, FusedCode::mul, FusedCode::product_sum, FusedCode::less_product};
    FusedInstruction code[4];
    FusedOperand<T> tensors[7] = {{v.data<T>(), 1}, {x.data<T>(), width}, {y.data<T>(), width}};
    tensors[0].narrow = true;
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(takes_column(codes[i]));
      code[i] = {.code = codes[i], .a = 0, .b = 1, .to = 3 + i, .c = 2, .column = true};
      tensors[3 + i] = {made.data<T>() + i * kRows * width, width};
    }
    kernels.run(FusedLoop<T>{code, 4, tensors, 7, width, 3, kRows}, 0, fused_pieces(kRows, width));
    for (int64_t at = 0; at < kRows * width; ++at) {
      const Sum a = Sum(v.data<T>()[at / width]), b = Sum(x.data<T>()[at]), c = Sum(y.data<T>()[at]);
      const volatile Sum product = a * b;  // rounded by itself
      const Sum wanted[] = {a + b, product, product + c, c - product};
      for (int i = 0; i < 4; ++i)
        EXPECT_EQ(double(made.data<T>()[i * kRows * width + at]), double(T(wanted[i]))) << width << " " << i;
    }
  }
}

TEST(Fused, ColumnsAreTakenAsTheyAre) {
  for (const FusedKernels* kernels : {&fused_kernels_plain(), &fused_kernels()}) {
    expect_columns<float>(*kernels);
    expect_columns<double>(*kernels);
    expect_columns<float16>(*kernels);
    expect_columns<bfloat16>(*kernels);
  }
}

// Rows that are added up, with and without weights, and narrow elements, in parts of the work that end with a sum.
template <class T>
void expect_totals(const FusedKernels& kernels, double tolerance) {
  for (const int64_t each : {2, 3, 12, 40}) {
    for (const int64_t width : {1, 5, 8, 16, 32, 65, 100, 130, 256, 300, 600}) {
      const int64_t groups = 6, rows = groups * each;
      Tensor x = rounded_normal<T>({rows, width}, 1), v = rounded_normal<T>({rows}, 2);
      Tensor plain = rounded_normal<T>({groups, width}, 3), weighted = plain.clone(),
             narrow = rounded_normal<T>({groups}, 4);
      FusedOperand<T> tensors[] = {{x.data<T>(), width},
                                   {v.data<T>(), 1},
                                   {plain.data<T>(), width, 1, each},
                                   {weighted.data<T>(), width, 1, each},
                                   {narrow.data<T>(), 1, 0, each}};
      tensors[1].narrow = tensors[4].narrow = true;
      const FusedInstruction code[] = {{FusedCode::add, 0, 0, 0, 5}};
      tensors[2].value = tensors[3].value = 5;
      tensors[3].weight = tensors[4].value = 1;
      const bool in_one_piece = width <= kFusedPiece;  // else nothing is narrow
      const FusedLoop<T> loop{code, 1, tensors, in_one_piece ? 5 : 4, width, 2, rows};
      const int64_t at_once = fused_rows_at_once(width), pieces = fused_pieces(rows, width);
      const int64_t half = std::lcm(at_once, each) / at_once * fused_pieces_of_row(width);
      kernels.run(loop, 0, std::min(half, pieces));
      if (half < pieces) kernels.run(loop, half, pieces);
      const double most = tolerance * std::sqrt(double(each));
      for (int64_t g = 0; g < groups; ++g) {
        double elements = 0;
        for (int64_t r = g * each; r < (g + 1) * each; ++r) elements += double(v.data<T>()[r]);
        if (in_one_piece) {
          EXPECT_NEAR(double(narrow.data<T>()[g]), elements, most) << each << " " << width;
        }
        for (int64_t j = 0; j < width; ++j) {
          double sum = 0, products = 0;
          for (int64_t r = g * each; r < (g + 1) * each; ++r) {
            sum += 2 * double(x.data<T>()[r * width + j]);
            products += 2 * double(x.data<T>()[r * width + j]) * double(v.data<T>()[r]);
          }
          EXPECT_NEAR(double(plain.data<T>()[g * width + j]), sum, most) << each << " " << width;
          EXPECT_NEAR(double(weighted.data<T>()[g * width + j]), products, most) << each << " " << width;
        }
      }
    }
  }
}

TEST(Fused, RowsAreAddedUp) {
  for (const FusedKernels* kernels : {&fused_kernels_plain(), &fused_kernels()}) {
    expect_totals<float>(*kernels, 3e-6);
    expect_totals<double>(*kernels, 3e-15);
  }
}

TEST(Fused, NarrowOperandsAreNotSpread) {
  for (const FusedKernels* kernels : {&fused_kernels_plain(), &fused_kernels()}) {
    expect_narrow<float>(*kernels);
    expect_narrow<double>(*kernels);
    expect_narrow<float16>(*kernels);
    expect_narrow<bfloat16>(*kernels);
  }
}

TEST(Fused, CodesOfChainsAreRight) {
  for (const FusedKernels* kernels : {&fused_kernels_plain(), &fused_kernels()}) {
    expect_chain_codes<float>(*kernels, 2e-6);
    expect_chain_codes<double>(*kernels, 2e-15);
    expect_chain_codes<float16>(*kernels, 1e-2);
    expect_chain_codes<bfloat16>(*kernels, 1e-1);
  }
}

// Bit for bit on every instruction set.
void expect_same_bits(FusedCode code, int64_t rows, int64_t width, const Shape& shape, const FusedOperand<float>& to) {
  Tensor x = normal<float>({rows, width}, 1), a = Tensor::zeros(DType::float32, shape), b = a.clone();
  const FusedInstruction instruction{code, 0, 0, 0, 1};
  for (Tensor* made : {&a, &b}) {
    FusedOperand<float> tensors[] = {{x.data<float>(), width}, to};
    tensors[1].first = made->data<float>();
    const FusedKernels& kernels = made == &a ? fused_kernels_plain() : *fused_kernels_wide();
    kernels.run(FusedLoop<float>{&instruction, 1, tensors, 2, width, 1, rows}, 0, fused_pieces(rows, width));
  }
  EXPECT_EQ(compare(a, b, 0), "") << fused_code(code).name << " " << width;
}

TEST(Fused, SumsHaveTheSameBitsEverywhere) {
  if (!fused_kernels_wide()) GTEST_SKIP() << "this CPU is no x86-64-v4";
  for (const int64_t width : {8, 16, 40, 64, 200, 300})
    expect_same_bits(FusedCode::copy, 6, width, {6}, {nullptr, 1, 0, 1, 0, true});
  for (const int64_t width : {1, 8, 16, 40, 64, 200})
    expect_same_bits(FusedCode::row_product, 7, width, {7}, {nullptr, 1, 0, 1, 0, false, true});
}

// What an operator says of itself, on these inputs; "" if that says nothing of one element alone.
std::string check_body(const OperatorDef& def, const Feeds& feeds, int& bodies) {
  const OpSpec& spec = op_spec(def.type());
  const FusedBody body = spec.fused(parse_args(spec, def).get(), def.input_size());
  for (const auto& [name, value] : feeds)
    if (value.shape() != feeds.front().second.shape()) return "";
  if (body.empty()) return "";
  Tensor wanted = run_op_on(def, feeds)[0], made = wanted.clone();
  for (int64_t j = 0; j < made.size(); ++j) {
    std::vector<double> values;
    for (const auto& [name, value] : feeds) values.push_back(value.data<double>()[j]);
    for (const FusedInstruction& i : body) values.push_back(fused_reference(i, values.at(i.a), values.at(i.b)));
    made.data<double>()[j] = values.back();
  }
  ++bodies;
  return compare(made, wanted, 1e-12);
}

// The operator on an example of its own.
std::string check_example(const OpSpec& spec, const OpExample& example, int& bodies) {
  const GradientSubject subject = example_subject(spec, example, 1);
  if (subject.net.op_size() != 1 || subject.net.op(0).type() != spec.type) return "";
  Feeds feeds;
  for (const std::string& name : subject.net.op(0).input()) feeds.emplace_back(name, subject.feeds.at(name));
  return check_body(subject.net.op(0), feeds, bodies);
}

// The gradient of an operator, with the arguments of an example of that.
std::string check_gradient_of(const OpSpec& gradient, const OpSpec& spec, const OpExample& example, int& bodies) {
  const GradientSubject subject = example_subject(spec, example, 1);
  OperatorDef def = subject.net.op(0);
  def.set_type(gradient.type);
  def.clear_input();
  def.set_output(0, "gradient");
  Feeds feeds;
  for (const auto& input : gradient.inputs) {
    def.add_input(input.name);
    feeds.emplace_back(input.name, normal<double>({4, 5}, 10 + feeds.size()));
  }
  return check_body(def, feeds, bodies);
}

// What operators say of themselves gives what their kernels do.
TEST(Fused, OperatorsBodiesAreTheirKernels) {
  int bodies = 0;
  for (const std::string& type : op_types()) {
    const OpSpec& spec = op_spec(type);
    if (!spec.fused) continue;
    const int before = bodies;
    for (const OpExample& example : spec.examples) EXPECT_EQ(check_example(spec, example, bodies), "") << type;
    const std::string_view ending = "Gradient";
    if (type.ends_with(ending) && spec.examples.empty()) {
      const OpSpec& forward = op_spec(type.substr(0, type.size() - ending.size()));
      for (const OpExample& example : forward.examples)
        EXPECT_EQ(check_gradient_of(spec, forward, example, bodies), "") << type;
    }
    EXPECT_GT(bodies, before) << type << " has no example of what it says of itself";
  }
  EXPECT_GE(bodies, 60);
}

}  // namespace
}  // namespace stepnet::testing::elementwise_chain_test
