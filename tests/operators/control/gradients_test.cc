#include "tests/core/errors.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::gradients_test {
namespace {

TEST(Gradients, ThatNobodyExpandedDoNotRun) {
  const std::string text = error_text([] {
    run_op_on(make_op("Gradients", {"loss", "x"}, {"dx"}), {{"loss", normal<float>({1})}, {"x", normal<float>({2})}});
  });
  expect_contains(text, "stands for several operators");
  expect_contains(text, "stepnet expand");
}

}  // namespace
}  // namespace stepnet::testing::gradients_test
