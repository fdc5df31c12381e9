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
  for (const int64_t outer : {0, 1, 3})
    for (const int64_t count : {0, 1, 2, 65, 1000})
      for (const int64_t inner : {0, 1, 2, 31, 32, 33, 100}) {
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
    if (count > 1'000'000 && team_size() < 128) continue;  // imitated threads are slow
    Tensor y = Tensor::empty(DType::int64, {count}, kGpu);
    count_on_gpu(call_, y);
    const Tensor back = copied_to(y, {});
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(back.data<int64_t>()[i], i);
  }
  Tensor more = Tensor::empty(DType::int64, {70'000}, kGpu);  // than blocks, of which the imitation's have one thread
  count_on_gpu(call_, more);
  EXPECT_EQ(copied_to(more, {}).data<int64_t>()[69'999], 69'999);
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
