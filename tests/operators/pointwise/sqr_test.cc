// Sqr: values and gradient.
#include "tests/operators/op_test.h"

namespace stepnet::testing::sqr_test {
namespace {

TEST(Sqr, ValuesAndGradient) {
  const OperatorDef def = make_op("Sqr", {"X"}, {"Y"});
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 4}}) {
    const Tensor x = normal<double>(shape);
    Tensor y = x.clone();
    for (double& v : y.span<double>()) v = v * v;
    EXPECT_EQ(compare(run_op_on(def, {{"X", x}})[0], y, 0), "");
    EXPECT_EQ(check_gradient(def, {{"X", x}}, {"X"}), "");
  }
}

TEST(Sqr, InPlaceLosesWhatTheGradientReads) {
  const OperatorDef def = make_op("Sqr", {"X"}, {"X"});
  EXPECT_NE(error_of([&] {
              check_gradient(def, {{"X", normal<double>({2})}}, {"X"});
            }).find("\"X\" is overwritten in place, but the gradient of \"X\" is computed from it"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::sqr_test
