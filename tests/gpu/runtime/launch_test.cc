// The loops of gpu/runtime/launch.h, against sums by hand.

#include "tests/gpu/gpu_test.h"
#include "tests/gpu/loops.h"

namespace stepnet::testing::launch_test {
namespace {

class GpuLoops : public GpuTest {
 protected:
  RunContext run_;
  Call call_{{}, {}, run_};
};

struct Expected {
  Tensor sums, largest;
};

Expected by_hand(const Tensor& x) {
  const int64_t outer = x.dim(0), count = x.dim(1), inner = x.dim(2);
  Expected e{Tensor::zeros(DType::float64, {outer, inner}), Tensor::zeros(DType::float64, {outer, inner})};
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      double sum = 0, most = -1;
      for (int64_t c = 0; c < count; ++c) {
        const double value = x.data<double>()[(o * count + c) * inner + i];
        sum += value;
        most = std::max(most, value);
      }
      e.sums.data<double>()[o * inner + i] = sum;
      e.largest.data<double>()[o * inner + i] = most;
    }
  return e;
}

TEST_F(GpuLoops, ReduceAlongAnAxisOfAnySize) {
  for (const int64_t outer : {0, 1, 3, 19})
    for (const int64_t count : {0, 1, 2, 32, 33, 65, 257, 600, 3000})
      for (const int64_t inner : {0, 1, 2, 31, 32, 33, 100}) {
        if (outer * count * inner > 100'000) continue;
        const Tensor x = normal<double>({outer, count, inner});
        const Expected expected = by_hand(x);
        Tensor sums = Tensor::empty(DType::float64, {outer, inner}, kGpu), largest = on_gpu(expected.sums);
        reduce_on_gpu(call_, on_gpu(x), sums, largest);
        EXPECT_EQ(compare(copied_to(sums, {}), expected.sums, 1e-12, ErrorScale::tensor), "")
            << outer << " " << count << " " << inner;
        EXPECT_EQ(compare(copied_to(largest, {}), expected.largest, 0), "") << outer << " " << count << " " << inner;
      }
}

TEST_F(GpuLoops, ReduceToTheSameBitsInEveryRun) {
  const Tensor x = on_gpu(normal<double>({2, 1000, 33}));
  Tensor first, largest = Tensor::empty(DType::float64, {2, 33}, kGpu);
  for (int i = 0; i < 5; ++i) {
    Tensor sums = Tensor::empty(DType::float64, {2, 33}, kGpu);
    reduce_on_gpu(call_, x, sums, largest);
    const Tensor now = copied_to(sums, {});
    if (i == 0) first = now;
    EXPECT_EQ(compare(now, first, 0), "");
  }
}

// More elements than one launch has threads, on a real device as on the imitated one.
TEST_F(GpuLoops, ReachEveryElement) {
  for (const int64_t count : {0, 1, 255, 256, 257, 20'000'000}) {
    Tensor y = Tensor::empty(DType::int64, {count}, kGpu);
    count_on_gpu(call_, y);
    const Tensor back = copied_to(y, {});
    const auto values = back.span<int64_t>();
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; ++i) wrong += values[static_cast<size_t>(i)] != i ? 1 : 0;
    EXPECT_EQ(wrong, 0) << count;
  }
}

// Some elements of x, which is on the GPU, from `at` on.
Tensor part(const Tensor& x, int64_t at, int64_t count) {
  return Tensor::view(x.storage(), static_cast<size_t>(at) * dtype_size(x.dtype()), x.dtype(), {count});
}

// As many threads as fill a device have 16 bytes each, where both tensors begin at a multiple of so many; whatever the
// number of elements is, none beside them is touched.
TEST_F(GpuLoops, MapsAtAnyAddressAndOfAnySize) {
  constexpr int64_t kAll = 600'100, kEnough = int64_t{4} << 16;
  const Tensor x = normal<float>({kAll});
  const Tensor there = on_gpu(x);
  for (const int64_t size : {int64_t{0}, int64_t{5}, kEnough - 1, kEnough, kEnough + 3, int64_t{2} * kEnough + 1})
    for (const auto& [from, to] : {std::pair{0, 0}, {4, 8}, {0, 1}, {3, 0}, {2, 2}}) {
      Tensor y = on_gpu(Tensor::zeros(DType::float32, {kAll}));
      Tensor target = part(y, to, size);
      double_on_gpu(call_, part(there, from, size), target);
      const Tensor back = copied_to(y, {});
      const auto given = x.span<float>(), found = back.span<float>();
      int64_t wrong = 0;
      for (int64_t i = 0; i < kAll; ++i) {
        const bool inside = i >= to && i < to + size;
        const float right = inside ? 2 * given[static_cast<size_t>(i - to + from)] : 0.0F;
        wrong += found[static_cast<size_t>(i)] != right ? 1 : 0;
      }
      EXPECT_EQ(wrong, 0) << size << " from " << from << " to " << to;
    }
}

TEST_F(GpuLoops, TeamsAddUpOnAllThreads) {
  const int64_t size = team_size();
  for (const int64_t teams : {0, 1, 3}) {
    Tensor y = Tensor::empty(DType::int64, {teams, size}, kGpu);
    add_up_teams(call_, y);
    const Tensor back = copied_to(y, {});
    for (int64_t i = 0; i < teams * size; ++i)
      ASSERT_EQ(back.data<int64_t>()[i], i / size * size + size * (size - 1) / 2) << i;
  }
}

TEST_F(GpuLoops, ATensorThatIsElsewhereIsAnError) {
  Tensor here = Tensor::zeros(DType::int64, {2});
  const std::string text = error_of([&] { count_on_gpu(call_, here); });
  EXPECT_NE(text.find("int64[2] is on cpu, where a GPU cannot read it"), text.npos) << text;
  Tensor other = Tensor::zeros(DType::float32, {2}, kGpu);
  const std::string type = error_of([&] { count_on_gpu(call_, other); });
  EXPECT_NE(type.find("a tensor of int64 is needed here, not float[2]"), type.npos) << type;
}

}  // namespace
}  // namespace stepnet::testing::launch_test
