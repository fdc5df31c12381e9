// Chains of elementwise instructions: generated source, and the kernel against the CPU's.
#include <cmath>

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
      ->run({{there[0].raw(), kWidth}, {there[1].raw(), 1, 0}, {there[2].raw(), kWidth}}, kWidth, kRows);
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

TEST(GpuFused, SourceSaysNumbersThatAreNone) {
  const std::string source = gpu::fused_source(DType::float32, {{FusedCode::at_most, 0, 0, INFINITY, 1}}, 2);
  EXPECT_NE(source.find("__longlong_as_double(9218868437227405312ll)"), source.npos) << source;
}

TEST(GpuFused, SourceReadsOnceAndWritesWhatIsSeen) {
  const std::string source = gpu::fused_source(DType::float32, all_instructions(), 4);
  EXPECT_EQ(source.find("x0 = load(o.tensors[0]"), source.rfind("x0 = load(o.tensors[0]")) << source;
  EXPECT_NE(source.find("o.tensors[3].first[row * o.tensors[3].stride + column * o.tensors[3].step] = store(x3)"),
            source.npos)
      << source;
  EXPECT_EQ(source.find("x2 = load(o.tensors[2]"), source.npos) << "a result is read\n" << source;
}

TEST(GpuFused, AChainMustNotReadWhatIsNotThere) {
  const std::string text = error_of([] { gpu::fused_source(DType::float32, {{FusedCode::copy, 9, 9, 0, 3}}, 4); });
  EXPECT_NE(text.find("reads value 9"), text.npos) << text;
}

}  // namespace
}  // namespace stepnet::testing::chain_kernel_test
