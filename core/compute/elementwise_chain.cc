#include "stepnet/elementwise_chain.h"

#include <iterator>

#include "stepnet/error.h"

namespace stepnet {
namespace {

constexpr double kArithmetic = 0.05, kDivision = 0.1, kExponential = 0.3, kLibrary = 6;

// In the order of the codes.
constexpr FusedCodeInfo kCodes[] = {
    {"copy", false, kArithmetic},
    {"add", true, kArithmetic},
    {"sub", true, kArithmetic},
    {"mul", true, kArithmetic},
    {"div", true, kDivision},
    {"maximum", true, kArithmetic},
    {"minimum", true, kArithmetic},
    {"negative", false, kArithmetic},
    {"abs", false, kArithmetic},
    {"one_minus", false, kArithmetic},
    {"reciprocal", false, kDivision},
    {"sqrt", false, kDivision},
    {"scale", false, kArithmetic},
    {"add_value", false, kArithmetic},
    {"at_least", false, kArithmetic},
    {"at_most", false, kArithmetic},
    {"relu", false, kArithmetic},
    {"if_positive", true, kArithmetic},
    {"unless_positive", true, kArithmetic},
    {"either", true, kArithmetic},
    {"exp", false, kExponential},
    {"expm1", false, kExponential},
    {"log", false, kExponential},
    {"log1p", false, kExponential},
    {"sigmoid", false, kExponential},
    {"tanh", false, kExponential},
    {"erf", false, kLibrary},
    {"erfc", false, kLibrary},
    {"sin", false, kLibrary},
    {"cos", false, kLibrary},
    {"product_sum", true, kArithmetic},
    {"less_product", true, kArithmetic},
    {"row_sum", false, kArithmetic},
    {"row_product", true, kArithmetic},
    {"spread", false, kArithmetic},
};
static_assert(std::size(kCodes) == static_cast<size_t>(FusedCode::spread) + 1);

}  // namespace

void FusedBody::push_back(const FusedInstruction& instruction) {
  require(size_ < kMostFusedValues, "an operator has more than {} instructions", kMostFusedValues);
  all_[size_++] = instruction;
}

const FusedCodeInfo& fused_code(FusedCode code) { return kCodes[static_cast<int>(code)]; }

double fused_nanoseconds(std::span<const FusedInstruction> code) {
  double sum = 0;
  for (const FusedInstruction& i : code) sum += i.narrow ? 0 : fused_code(i.code).nanoseconds;
  return sum;
}

}  // namespace stepnet
