// Chains of elementwise instructions: generated source, and the kernel against the CPU's.
#include <cmath>
#include <limits>

#include "core/compute/backend.h"
#include "gpu/runtime/chain_kernel.h"
#include "stepnet/tensor.h"
#include "tests/core/compute/fused_reference.h"
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::chain_kernel_test {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};

// Every instruction, over four tensors (the last two are written) and values in between, from 4 on.
std::vector<FusedInstruction> all_instructions() {
  return {{FusedCode::add, 0, 1, 0, 4},      {FusedCode::sub, 4, 1, 0, 5},         {FusedCode::mul, 4, 5, 0, 4},
          {FusedCode::negative, 5, 5, 0, 5}, {FusedCode::one_minus, 5, 5, 0, 6},   {FusedCode::scale, 6, 6, 0.125, 6},
          {FusedCode::relu, 5, 5, 0, 5},     {FusedCode::if_positive, 4, 6, 0, 7}, {FusedCode::sigmoid, 7, 7, 0, 2},
          {FusedCode::tanh, 4, 4, 0, 4},     {FusedCode::add, 4, 5, 0, 4},         {FusedCode::copy, 4, 4, 0, 3}};
}

template <class T>
std::vector<T> expected(T a, T b) {
  const T sum = a + b, minus = -(sum - b), product = sum * (sum - b);
  const T rest = (1 - minus) * T(0.125), gate = product > 0 ? rest : T(0);
  return {1 / (1 + std::exp(-gate)), std::tanh(product) + (minus < 0 ? T(0) : minus)};
}

template <class T>
void check_chain(int64_t rows, int64_t width, int64_t stride, double tol) {
  const Tensor a = normal<T>({rows, stride}, 1), b = normal<T>({stride}, 2);  // b is one row for all
  std::vector<Tensor> there;
  for (const Tensor& t : {a, b, Tensor::zeros(a.dtype(), a.shape()), Tensor::zeros(a.dtype(), a.shape())})
    there.push_back(copied_to(t, kGpu));
  const auto chain = backend(DeviceKind::cuda).fuse(kGpu, a.dtype(), all_instructions(), 4);
  std::vector<FusedOperand<void>> tensors;
  for (Tensor& t : there) tensors.push_back({t.raw(), t.rank() == 1 ? 0 : stride});
  chain->run(tensors, width, rows);
  for (int which = 0; which < 2; ++which) {
    const Tensor result = copied_to(there[2 + static_cast<size_t>(which)], {});
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < stride; ++i) {
        const T right =
            i < width ? expected(a.data<T>()[r * stride + i], b.data<T>()[i])[static_cast<size_t>(which)] : 0;
        ASSERT_NEAR(result.data<T>()[r * stride + i], right, tol) << which << " at " << r << ", " << i;
      }
  }
}

TEST_F(GpuTest, ChainsDoWhatTheirInstructionsSay) {
  for (const auto& [rows, width, stride] : {std::tuple{1, 1, 1}, {3, 5, 8}, {2, 300, 300}, {0, 4, 4}}) {
    SCOPED_TRACE(fmt::format("{} rows of {}", rows, width));
    check_chain<float>(rows, width, stride, 1e-6);
    check_chain<double>(rows, width, stride, 1e-14);
  }
}

// A chain of one instruction, whose second operand has one element for each row.
template <class T>
void check_code(FusedCode code, double tol) {
  constexpr int64_t kRows = 3, kWidth = 40;
  Tensor a = normal<T>({kRows, kWidth}, 1);
  Tensor b = normal<T>({kRows, 1}, 2);
  if (takes_a_zero(code)) b.fill_zero();
  if (takes_positive(code))
    for (T& x : a.span<T>()) x = std::abs(x);
  std::vector<Tensor> there;
  for (const Tensor& t : {a, b, Tensor::zeros(a.dtype(), a.shape())}) there.push_back(copied_to(t, kGpu));
  const FusedInstruction i{code, 0, 1, 0.5, 2};
  backend(DeviceKind::cuda)
      .fuse(kGpu, a.dtype(), {i}, 3)
      ->run(std::vector<FusedOperand<void>>{{there[0].raw(), kWidth}, {there[1].raw(), 1, 0}, {there[2].raw(), kWidth}},
            kWidth, kRows);
  const Tensor result = copied_to(there[2], {});
  for (int64_t j = 0; j < a.size(); ++j) {
    const double wanted = fused_reference(i, a.data<T>()[j], b.data<T>()[j / kWidth]);
    ASSERT_NEAR(result.data<T>()[j], wanted, tol * std::max(1.0, std::fabs(wanted))) << fused_code(code).name;
  }
}

TEST_F(GpuTest, ChainsOfEachCodeAreRight) {
  for (const FusedCode code : all_fused_codes()) {
    check_code<float>(code, 2e-6);
    check_code<double>(code, 1e-14);
  }
}

// What the source says of a number in a chain of this type.
std::string number_in(DType dtype, double value) {
  const std::string text = gpu::fused_value_source(dtype, {FusedCode::add_value, 0, 0, value, 1}, "x", "");
  EXPECT_EQ(text.substr(0, 4), "x + ");
  return text.substr(4);
}

TEST(GpuFused, SourceSaysNumbersByTheirBits) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32}) {
    EXPECT_EQ(number_in(dtype, INFINITY), "__uint_as_float(0x7f800000u)");
    EXPECT_EQ(number_in(dtype, -INFINITY), "__uint_as_float(0xff800000u)");
    EXPECT_EQ(number_in(dtype, nan), "__uint_as_float(0x7fc00000u)");
    EXPECT_EQ(number_in(dtype, -0.0), "__uint_as_float(0x80000000u)");
    EXPECT_EQ(number_in(dtype, 0.1), "__uint_as_float(0x3dcccccdu)");
    EXPECT_EQ(number_in(dtype, 1e-45), "__uint_as_float(0x00000001u)");
  }
  EXPECT_EQ(number_in(DType::float64, INFINITY), "__longlong_as_double((long long)0x7ff0000000000000ull)");
  EXPECT_EQ(number_in(DType::float64, nan), "__longlong_as_double((long long)0x7ff8000000000000ull)");
  EXPECT_EQ(number_in(DType::float64, -0.0), "__longlong_as_double((long long)0x8000000000000000ull)");
  EXPECT_EQ(number_in(DType::float64, 5e-324), "__longlong_as_double((long long)0x0000000000000001ull)");
}

TEST(GpuFused, SourceReadsOnceAndWritesWhatIsSeen) {
  const std::string source = gpu::fused_source(DType::float32, all_instructions(), 4);
  EXPECT_NE(source.find("read(x0, o.tensors[0], row, column)"), source.npos) << source;
  EXPECT_EQ(source.find("read(x0, o.tensors[0]"), source.rfind("read(x0, o.tensors[0]")) << source;
  EXPECT_NE(source.find("write(o.tensors[3], row, column, x3)"), source.npos) << source;
  EXPECT_EQ(source.find("read(x2"), source.npos) << "a result is read\n" << source;
}

// 16 bytes for a thread, unless the values in between take too many registers.
TEST(GpuFused, LanesFillSixteenBytes) {
  const std::vector<FusedInstruction> few = {{FusedCode::add, 0, 1, 0, 2}};
  EXPECT_EQ(gpu::fused_lanes(DType::float16, few), 8);
  EXPECT_EQ(gpu::fused_lanes(DType::float32, few), 4);
  EXPECT_EQ(gpu::fused_lanes(DType::float64, few), 2);
  EXPECT_NE(gpu::fused_source(DType::float32, few, 3).find("run<4>"), std::string::npos);
  std::vector<FusedInstruction> many;  // reads 20 tensors, and then adds them up
  for (int i = 0; i < 20; ++i) many.push_back({FusedCode::negative, i, i, 0, 21 + i});
  for (int i = 0; i < 19; ++i) many.push_back({FusedCode::add, 21 + i, 22 + i, 0, 22 + i});
  many.push_back({FusedCode::copy, 40, 40, 0, 20});
  EXPECT_EQ(gpu::fused_lanes(DType::float32, many), 2);
  EXPECT_EQ(gpu::fused_lanes(DType::float64, many), 1);
  EXPECT_EQ(gpu::fused_source(DType::float64, many, 21).find("chain_lanes"), std::string::npos);
}

// Operands of a launch: the first at a multiple of 16 bytes, the second a row for all, or one element for each row.
gpu::ChainLaunch launch_of(int64_t width, int64_t rows, int64_t stride, int64_t second_stride, int64_t second_step,
                           size_t off = 0) {
  alignas(16) static std::byte memory[64];
  gpu::FusedOperands operands{};
  operands.tensors[0] = {memory, stride, 1};
  operands.tensors[1] = {memory + off, second_stride, second_step};
  return gpu::chain_launch(operands, 2, sizeof(float), 4, width, rows);
}

TEST(GpuFused, LanesAreTakenWhereAddressesAllowIt) {
  constexpr int64_t kWidth = 1024, kRows = 512;
  const auto expect = [&](const gpu::ChainLaunch& launch, int lanes, int64_t groups, int64_t count) {
    EXPECT_EQ(launch.lanes, lanes);
    EXPECT_EQ(launch.groups.divisor(), static_cast<size_t>(groups));
    EXPECT_EQ(launch.count, static_cast<size_t>(count));
  };
  const int64_t all = kWidth * kRows;
  expect(launch_of(kWidth, kRows, kWidth, kWidth, 1), 4, all / 4, all / 4);            // rows without gaps are one
  expect(launch_of(kWidth, kRows, kWidth, 0, 1), 4, kWidth / 4, all / 4);              // a row for all
  expect(launch_of(kWidth, kRows, kWidth, 1, 0), 4, kWidth / 4, all / 4);              // an element for each row
  expect(launch_of(kWidth, kRows, 2 * kWidth, 1, 0, 4), 4, kWidth / 4, all / 4);       // wherever that is
  expect(launch_of(kWidth, kRows, kWidth, 0, 1, 4), 1, kWidth, all);                   // not at 16 bytes
  expect(launch_of(kWidth, kRows, kWidth + 2, 0, 1), 1, kWidth, all);                  // the second row is not
  expect(launch_of(kWidth - 2, kRows, kWidth, 0, 1), 1, kWidth - 2, all - 2 * kRows);  // part of a group is left
  expect(launch_of(all, 1, 3, 3, 1), 4, all / 4, all / 4);                             // there is no second row
  expect(launch_of(kWidth, 8, kWidth, kWidth, 1), 1, 8 * kWidth, 8 * kWidth);          // too few for a device
}

TEST(GpuFused, AChainMustNotReadWhatIsNotThere) {
  const std::string text = error_of([] { gpu::fused_source(DType::float32, {{FusedCode::copy, 9, 9, 0, 3}}, 4); });
  EXPECT_NE(text.find("reads value 9"), text.npos) << text;
}

}  // namespace
}  // namespace stepnet::testing::chain_kernel_test
