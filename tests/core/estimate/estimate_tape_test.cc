// The tape on the dry device: forward and backward take what they take for real.
#include <gtest/gtest.h>

#include "stepnet/engine.h"
#include "stepnet/matmul.h"
#include "stepnet/ops.h"
#include "tests/core/estimate_testing.h"

namespace stepnet::testing::estimate_tape_test {
namespace {

using autograd::Variable;

struct Taken {
  int64_t forward = 0, peak = 0, behind = 0;
  bool operator==(const Taken&) const = default;
};

template <class Live>
Taken step(Live live) {
  const auto parameter = [](const Shape& shape) { return Variable(Tensor::zeros(DType::float32, shape), true); };
  const int64_t base = live().live;
  const Variable x(Tensor::zeros(DType::float32, {50, 40}));
  const Variable w1 = parameter({30, 40}), b1 = parameter({30}), w2 = parameter({7, 30}), b2 = parameter({7});
  Taken taken;
  {
    const Variable y = ops::fc(ops::tanh(ops::fc(x, w1, b1)), w2, b2);
    taken.forward = live().live - base;
    autograd::backward({y}, {Variable(Tensor::zeros(DType::float32, {50, 7}))});
    taken.peak = live().peak - base;
  }
  taken.behind = live().live - base;
  return taken;
}

TEST(EstimateTape, EqualsARealRun) {
  Taken dry;
  {
    DryScope scope;
    dry = step([&] { return scope.counters(); });
  }
  forget_products();
  allocator(Device{}).reset_peak();
  const Taken real = step([] { return allocator(Device{}).counters(); });
  EXPECT_EQ(dry.forward, real.forward);
  EXPECT_EQ(dry.peak, real.peak);
  EXPECT_EQ(dry.behind, real.behind);
  EXPECT_GT(dry.forward, 50 * 40 * 4);
}

}  // namespace
}  // namespace stepnet::testing::estimate_tape_test
