// Matrix products on a GPU, against sums by hand.
#include "gpu/loops/matmul.h"

#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::matmul_test {
namespace {

class GpuMatmul : public GpuTest {};

// C with its gaps as it was before; all in double.
std::vector<double> by_hand(const gpu::ProductSizes& given, const Tensor& a, const Tensor& b, const Tensor& c,
                            const Tensor* bias) {
  const gpu::ProductSizes s = gpu::with_strides(given);
  const Tensor x = to_double(a), y = to_double(b), before = to_double(c);
  std::vector<double> result(before.data<double>(), before.data<double>() + before.size());
  for (int64_t at = 0; at < s.batch; ++at)
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < s.n; ++j) {
        double& to = result[static_cast<size_t>(at * s.stride_c + i * s.ldc + j)];
        double sum = (s.accumulate ? to : 0) + (bias ? to_double(*bias).data<double>()[j] : 0);
        for (int64_t p = 0; p < s.k; ++p)
          sum += x.data<double>()[at * s.stride_a + (s.trans_a ? p * s.lda + i : i * s.lda + p)] *
                 y.data<double>()[at * s.stride_b + (s.trans_b ? j * s.ldb + p : p * s.ldb + j)];
        to = sum;
      }
  return result;
}

// Room for `batch` matrices.
int64_t room(int64_t rows, int64_t ld, int64_t batch, int64_t stride) { return rows * ld + (batch - 1) * stride + 1; }

template <class T>
void check_product(const gpu::ProductSizes& given, bool has_bias, double tol) {
  const gpu::ProductSizes s = gpu::with_strides(given);
  const Tensor a = normal<T>({room(s.trans_a ? s.k : s.m, s.lda, s.batch, s.stride_a)}, 1);
  const Tensor b = normal<T>({room(s.trans_b ? s.n : s.k, s.ldb, s.batch, s.stride_b)}, 2);
  const Tensor c = normal<T>({room(s.m, s.ldc, s.batch, s.stride_c)}, 3), bias = normal<T>({s.n}, 4);
  const Tensor there_a = on_gpu(a), there_b = on_gpu(b), there_bias = on_gpu(bias);
  Tensor there = on_gpu(c);
  RunContext run;
  const Call call({}, {}, run);
  gpu::matmul(call, given, reinterpret_cast<const T*>(there_a.raw()), reinterpret_cast<const T*>(there_b.raw()),
              reinterpret_cast<T*>(there.raw()), has_bias ? reinterpret_cast<const T*>(there_bias.raw()) : nullptr);
  const std::vector<double> expected = by_hand(given, a, b, c, has_bias ? &bias : nullptr);
  EXPECT_EQ(compare(to_double(copied_to(there, {})), Tensor::of<double>(c.shape(), expected), tol, ErrorScale::tensor),
            "")
      << "m " << s.m << " n " << s.n << " k " << s.k << " trans " << s.trans_a << s.trans_b << " accumulate "
      << s.accumulate << " bias " << has_bias << " ld " << s.lda << " " << s.ldb << " " << s.ldc << " batch " << s.batch
      << " by " << s.stride_a << " " << s.stride_b << " " << s.stride_c;
}

void check_both(const gpu::ProductSizes& sizes) {
  for (const bool bias : {false, true}) {
    check_product<float>(sizes, bias, 1e-5);
    check_product<double>(sizes, bias, 1e-13);
  }
}

struct MNK {
  int64_t m = 0, n = 0, k = 0;
};
const MNK kSizes[] = {{1, 1, 1}, {3, 5, 7}, {33, 17, 64}, {1, 40, 8}, {16, 1, 9}, {2, 3, 0}, {0, 3, 2}, {3, 0, 2}};

template <class Fn>
void for_all(const Fn& fn) {
  for (const MNK& size : kSizes)
    for (int flags = 0; flags < 8; ++flags) {
      gpu::ProductSizes s{.trans_a = (flags & 1) != 0,
                          .trans_b = (flags & 2) != 0,
                          .m = size.m,
                          .n = size.n,
                          .k = size.k,
                          .accumulate = (flags & 4) != 0};
      fn(s);
    }
}

TEST_F(GpuMatmul, AllTranspositions) {
  for_all([](const gpu::ProductSizes& s) { check_both(s); });
}

TEST_F(GpuMatmul, RowsThatLieApart) {
  for_all([](gpu::ProductSizes s) {
    s.lda = (s.trans_a ? s.m : s.k) + 3;
    s.ldb = (s.trans_b ? s.k : s.n) + 1;
    s.ldc = s.n + 2;
    check_both(s);
  });
}

TEST_F(GpuMatmul, Batches) {
  for (const int64_t batch : {0, 1, 3})
    for_all([&](gpu::ProductSizes s) {
      s.batch = batch;
      s.stride_a = s.m * s.k + 2;
      s.stride_b = s.k * s.n;
      s.stride_c = s.m * s.n + 1;
      if (batch > 0) check_both(s);
      s.stride_a = 0;  // one matrix for all
      if (batch > 0) check_both(s);
    });
}

TEST_F(GpuMatmul, NoProductsAtAll) {
  RunContext run;
  const Call call({}, {}, run);
  const gpu::ProductSizes none{.m = 2, .n = 2, .k = 2, .batch = 0};
  gpu::matmul(call, none, static_cast<const float*>(nullptr), nullptr, nullptr);
  allocator(kGpu).synchronize();
}

}  // namespace
}  // namespace stepnet::testing::matmul_test
