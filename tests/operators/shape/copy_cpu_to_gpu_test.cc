#include "tests/operators/op_test.h"

namespace stepnet::testing::copy_cpu_to_gpu_test {
namespace {

TEST(CopyCPUToGPU, AllFormsCopyOnTheCpu) {
  const Tensor x = normal<float>({2, 3});
  for (const char* type : {"CopyCPUToGPU", "CopyGPUToCPU", "CopyFromCPUInput", "EnsureCPUOutput"}) {
    const OperatorDef def = make_op(type, {"X"}, {"Y"});
    EXPECT_EQ(compare(run_op_on(def, {{"X", x}})[0], x, 0), "") << type;
    EXPECT_EQ(run_op_on(def, {{"X", normal<float>({0})}})[0].str(), "float[0]");
    EXPECT_EQ(check_gradient(def, {{"X", normal<double>({2, 3})}}, {"X"}), "") << type;
  }
}

}  // namespace
}  // namespace stepnet::testing::copy_cpu_to_gpu_test
