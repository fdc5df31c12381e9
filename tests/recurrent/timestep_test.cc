// What a step net makes of the timestep, for any number of them: without timesteps it has the same shape.
#include <gtest/gtest.h>

#include "tests/recurrent/unrolled.h"

namespace stepnet::testing::timestep_test {
namespace {

TEST(Timestep, IsReadForAnyNumberOfTimesteps) {
  for (const bool reverse : {false, true}) {
    const Cell cell = {.step = {"n = Cast(timestep) to=13", "y = Mul(x, n) broadcast=1", "h = Sum(y, h_prev)"},
                       .states = {{"h_prev", "h", "h0", "h_all", "h_last"}},
                       .outputs = {{"y", "Y"}},
                       .reverse = reverse};
    for (const auto& [steps, batch] : {std::pair{5, 2}, {1, 2}, {0, 2}, {0, 0}}) {
      SCOPED_TRACE(fmt::format("T {}, B {}{}", steps, batch, reverse ? ", in reverse" : ""));
      const Feeds feeds = {{"X", normal<double>({steps, batch, 3})}, {"h0", normal<double>({batch, 3}, 2)}};
      EXPECT_EQ(check_against_unrolled(cell, feeds), "");
      const CellResults results = run_recurrent(cell, feeds, outside_gradients(cell, feeds));
      EXPECT_EQ(results.outputs.at("Y").shape(), (Shape{steps, batch, 3}));
    }
  }
}

}  // namespace
}  // namespace stepnet::testing::timestep_test
