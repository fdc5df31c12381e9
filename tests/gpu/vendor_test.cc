// What only a build with CUDA has: chains compiled at run time. Compiling needs no GPU.
#include "gpu/runtime/chain_kernel.h"
#include "gpu/vendor/nvrtc.h"
#include "tests/core/compute/fused_reference.h"
#include "tests/gpu/gpu_test.h"
#include "tests/gpu/runtime/lstm_loop.h"

namespace stepnet::testing::vendor_test {
namespace {

std::vector<FusedInstruction> lstm_like() {
  return {{FusedCode::sigmoid, 0, 0, 0, 3},   {FusedCode::tanh, 1, 1, 0, 4}, {FusedCode::mul, 3, 4, 0, 3},
          {FusedCode::one_minus, 3, 3, 0, 4}, {FusedCode::relu, 4, 4, 0, 4}, {FusedCode::scale, 4, 4, 1e-30, 2}};
}

TEST(GpuCompiler, CompilesChains) {
  for (const DType dtype : {DType::float32, DType::float64})
    for (const int capability : {75, 90})
      EXPECT_GT(gpu::compile_kernel(gpu::fused_source(dtype, lstm_like(), 3), capability).size(), 500U);
}

TEST(GpuCompiler, CompilesEachCode) {
  std::vector<FusedInstruction> code;
  for (const FusedCode each : all_fused_codes()) code.push_back({each, 0, 1, INFINITY, 2});
  for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64})
    EXPECT_GT(gpu::compile_kernel(gpu::fused_source(dtype, code, 3), 80).size(), 500U);
}

// float32 for GPUs without tensor cores for bfloat16, too.
TEST(GpuCompiler, CompilesTimesteps) {
  for (const auto& [dtype, capability] : {std::pair{DType::float32, 75},
                                          {DType::float32, 90},
                                          {DType::float16, 80},
                                          {DType::bfloat16, 80},
                                          {DType::bfloat16, 90}})
    for (const int64_t rows : {1, 16, 64})
      for (const int64_t units : {7, 100, 768}) {
        const LstmLoop loop{.dtype = dtype, .rows = rows, .units = units};
        const gpu::LoopLimits limits{.blocks = 132, .shared_bytes = 227 << 10, .tensor_cores = capability >= 80};
        const gpu::LoopPlan plan = gpu::plan_loop(loop.timesteps(), limits);
        ASSERT_EQ(plan.refusal, "");
        EXPECT_GT(gpu::compile_kernel(gpu::loop_source(plan), capability).size(), 500U);
      }
}

TEST(GpuCompiler, KnowsForWhatItCompiles) {
  for (const int capability : {75, 80, 90}) EXPECT_TRUE(gpu::can_compile_for(capability)) << capability;
  EXPECT_FALSE(gpu::can_compile_for(13));
}

TEST(GpuCompiler, SaysWhatIsWrong) {
  const std::string text = error_of([] { gpu::compile_kernel("this is no source", 90); });
  EXPECT_NE(text.find("NVRTC cannot compile a chain"), text.npos) << text;
  EXPECT_NE(text.find("error"), text.npos) << text;
}

}  // namespace
}  // namespace stepnet::testing::vendor_test
