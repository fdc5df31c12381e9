// What only a build with CUDA has: chains compiled at run time. Compiling needs no GPU.
#include <algorithm>
#include <cstring>
#include <regex>

#include "gpu/runtime/chain_kernel.h"
#include "gpu/vendor/nvrtc.h"
#include "tests/core/compute/fused_reference.h"
#include "tests/gpu/gpu_test.h"
#include "tests/gpu/runtime/lstm_loop.h"
#include "tests/gpu/runtime/norm_lstm_loop.h"

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
        const gpu::LoopPlan plan = gpu::plan_loop(loop.recording().timesteps(), limits);
        ASSERT_EQ(plan.refusal, "");
        EXPECT_GT(gpu::compile_kernel(gpu::loop_source(plan), capability).size(), 500U);
      }
}

// Devices as they are sold, by what a kernel of theirs may have.
struct Sold {
  int capability;
  gpu::LoopLimits limits;
};
const std::vector<Sold>& sold() {
  static const std::vector<Sold> all = {{75, {.blocks = 40, .shared_bytes = 64 << 10}},
                                        {80, {.blocks = 108, .shared_bytes = 163 << 10, .tensor_cores = true}},
                                        {90, {.blocks = 132, .shared_bytes = 227 << 10, .tensor_cores = true}}};
  return all;
}

// What the assembler says of a kernel.
struct Usage {
  int64_t registers = 0, shared_bytes = 0, stack_bytes = 0, spilled_bytes = 0;
};
Usage usage_of(const std::string& log) {
  const auto number = [&](const char* pattern, bool must = true) -> int64_t {
    std::smatch found;
    if (std::regex_search(log, found, std::regex(pattern))) return std::stoll(found[1]);
    if (must) ADD_FAILURE() << pattern << " is not in " << log;
    return 0;
  };
  return {.registers = number("Used ([0-9]+) registers"),
          .shared_bytes = number("([0-9]+) bytes smem", false),
          .stack_bytes = number("([0-9]+) bytes stack frame"),
          .spilled_bytes = number("([0-9]+) bytes spill stores") + number("([0-9]+) bytes spill loads")};
}

// The instructions of a kernel, of 16 bytes each, from its section of the ELF file: the first 12 bits are which one.
std::vector<unsigned> instructions_of(const std::vector<char>& code, const std::string& kernel) {
  const auto at = [&](size_t place, auto value) {
    std::memcpy(&value, code.data() + place, sizeof(value));
    return value;
  };
  const size_t sections = at(0x28, uint64_t{}), size = at(0x3a, uint16_t{}), count = at(0x3c, uint16_t{});
  const size_t names = at(sections + at(0x3e, uint16_t{}) * size + 0x18, uint64_t{});
  std::vector<unsigned> all;
  for (size_t s = 0; s < count; ++s) {
    const size_t header = sections + s * size;
    if (code.data() + names + at(header, uint32_t{}) != ".text." + kernel) continue;
    const size_t begin = at(header + 0x18, uint64_t{}), end = begin + at(header + 0x20, uint64_t{});
    for (size_t i = begin; i < end; i += 16) all.push_back(at(i, uint32_t{}) & 0xfff);
  }
  return all;
}

// Products by tensor cores in the kernel's code: all rounds of a product's tiles are written out, or as many as are a
// turn of its loop and those that are left over.
int64_t tile_products(const gpu::LoopPlan& plan) {
  int64_t all = 0;
  for (const gpu::LoopOp& op : plan.ops) {
    const auto* p = std::get_if<gpu::LoopProduct>(&op.what);
    if (!p || !p->by_tensor_cores) continue;
    const gpu::LoopTiles tiles = gpu::tiles_of(plan, *p);
    const int64_t rounds = tiles.rounds <= tiles.unroll ? tiles.rounds : tiles.unroll + tiles.rounds % tiles.unroll;
    all += rounds * tiles.across * tiles.height * 2;
  }
  return all;
}

// What the planner counts on, of cells that fit: the threads' registers are there, so nothing is spilled; all shared
// memory is what the plan says; the code is short; and of products by tensor cores there are as many as planned.
using Sizes = std::vector<std::pair<int64_t, int64_t>>;  // rows and units
template <class Loop>
void check_needs(const Loop& cell, const Sizes& sizes) {
  constexpr unsigned kTileProduct = 0x23c;  // HMMA
  for (const auto& [capability, limits] : sold())
    for (const DType dtype : {DType::float32, DType::bfloat16})
      for (const auto& [rows, units] : sizes) {
        Loop loop = cell;
        loop.dtype = dtype, loop.rows = rows, loop.units = units;
        const gpu::LoopPlan plan = gpu::plan_loop(loop.recording().timesteps(), limits);
        SCOPED_TRACE(fmt::format("sm_{} {} {} heads, {} rows {} units, {}: {}", capability, dtype_name(dtype),
                                 plan.heads, rows, units, loop.backward ? "backward" : "forward", plan.refusal));
        if (!plan.refusal.empty()) {  // no other than for want of room
          EXPECT_NE(plan.refusal.find("bytes of shared memory"), plan.refusal.npos);
          continue;
        }
        std::string log;
        const std::vector<char> code = gpu::compile_kernel(gpu::loop_source(plan), capability, &log);
        const Usage usage = usage_of(log);
        EXPECT_LE(usage.registers * gpu::kLoopThreads, 65536);
        EXPECT_EQ(usage.stack_bytes, 0);
        EXPECT_EQ(usage.spilled_bytes, 0);
        EXPECT_EQ(usage.shared_bytes, 0);  // beside the plan's, which a launch gives
        EXPECT_LE(plan.shared_bytes, limits.shared_bytes);
        const std::vector<unsigned> instructions = instructions_of(code, "timesteps");
        EXPECT_GT(instructions.size(), 100U);
        EXPECT_LT(instructions.size(), 4096U);  // 64 KiB, which the caches for instructions hold
        EXPECT_EQ(std::ranges::count(instructions, kTileProduct), tile_products(plan));
      }
}

TEST(GpuCompiler, TimestepsNeedWhatThePlanSays) {
  for (const LstmLoop& cell : {LstmLoop{}, LstmLoop{.has_lengths = true}, LstmLoop{.backward = true}}) {
    SCOPED_TRACE(cell.has_lengths ? "with lengths" : "");
    check_needs(cell, {{1, 100}, {16, 768}, {64, 512}, {200, 128}, {256, 512}});
  }
}

TEST(GpuCompiler, TimestepsOfHeadsNeedWhatThePlanSays) {
  for (const bool backward : {false, true})
    for (const auto& [heads, heads_first] : {std::pair{12, true}, {3, false}})
      check_needs(LstmLoop{.backward = backward, .heads = heads, .heads_first = heads_first},
                  {{1, 100}, {16, 64}, {64, 512}, {200, 128}, {256, 512}});
}

TEST(GpuCompiler, TimestepsWithRowsNeedWhatThePlanSays) {
  for (const bool backward : {false, true})
    check_needs(NormLstmLoop{.backward = backward}, {{1, 100}, {16, 768}, {64, 512}});
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
