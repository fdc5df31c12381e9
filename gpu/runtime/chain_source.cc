#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <set>
#include <string_view>

#include "gpu/runtime/chain_kernel.h"
#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

// How elements are read and written. There are no headers where this is compiled.
constexpr const char* kWhole = R"(typedef {0} Element;
__device__ {0} load({0} x) {{ return x; }}
__device__ {0} store({0} x) {{ return x; }}
)";
constexpr const char* kFloat16 = R"(typedef unsigned short Element;
__device__ float load(Element x) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x));
  return value;
}
__device__ Element store(float value) {
  Element x;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(x) : "f"(value));
  return x;
}
)";
// The upper half of a float, rounded to even; what is not a number stays so.
constexpr const char* kBfloat16 = R"(typedef unsigned short Element;
__device__ float load(Element x) { return __uint_as_float((unsigned)x << 16); }
__device__ Element store(float value) {
  const unsigned all = __float_as_uint(value);
  if ((all & 0x7fffffffu) > 0x7f800000u) return (Element)((all >> 16) | 0x40);
  return (Element)((all + 0x7fffu + ((all >> 16) & 1)) >> 16);
}
)";

const char* computed_in(DType dtype) { return dtype == DType::float64 ? "double" : "float"; }

constexpr const char* kStart = R"(struct Operand {{ Element* first; long long stride, step; }};
struct Operands {{ Operand tensors[{0}]; }};
extern "C" __global__ void chain(const Operands o, long long width, long long rows) {{
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < width * rows; i += step) {{
    const long long row = i / width, column = i - row * width;
)";

// The operand as a variable.
std::string name(int operand) { return fmt::format("x{}", operand); }

std::string place(int operand) {
  return fmt::format("o.tensors[{0}].first[row * o.tensors[{0}].stride + column * o.tensors[{0}].step]", operand);
}

// A number as it is written there; what is none, or infinite, by its bits.
std::string number(double value, const char* type) {
  if (std::isfinite(value)) return fmt::format("({}){:.17g}", type, value);
  return fmt::format("({})__longlong_as_double({}ll)", type, std::bit_cast<int64_t>(value));
}

std::string value_of(const FusedInstruction& i, const char* type, const std::string& a, const std::string& b) {
  const std::string value = number(i.value, type);
  const std::string e = fmt::format("exp({0} < 0 ? {0} : -{0})", a);  // of a negative number, so that nothing overflows
  const auto of = [&](const char* function) { return fmt::format("{}({})", function, a); };
  switch (i.code) {
    case FusedCode::copy:
      return a;
    case FusedCode::add:
      return a + " + " + b;
    case FusedCode::sub:
      return a + " - " + b;
    case FusedCode::mul:
      return a + " * " + b;
    case FusedCode::div:
      return a + " / " + b;
    case FusedCode::maximum:
      return fmt::format("{1} > {0} || {1} != {1} ? {1} : {0}", a, b);
    case FusedCode::minimum:
      return fmt::format("{1} < {0} || {1} != {1} ? {1} : {0}", a, b);
    case FusedCode::negative:
      return "-" + a;
    case FusedCode::abs:
      return fmt::format("{0} < 0 ? -{0} : {0}", a);
    case FusedCode::one_minus:
      return fmt::format("({})1 - {}", type, a);
    case FusedCode::reciprocal:
      return fmt::format("({})1 / {}", type, a);
    case FusedCode::sqrt:
      return of("sqrt");
    case FusedCode::scale:
      return a + " * " + value;
    case FusedCode::add_value:
      return a + " + " + value;
    case FusedCode::at_least:
      return fmt::format("{0} < {1} ? {1} : {0}", a, value);
    case FusedCode::at_most:
      return fmt::format("{0} > {1} ? {1} : {0}", a, value);
    case FusedCode::relu:
      return fmt::format("{0} < 0 ? ({1})0 : {0}", a, type);
    case FusedCode::if_positive:
      return fmt::format("{} > 0 ? {} : ({})0", a, b, type);
    case FusedCode::unless_positive:
      return fmt::format("{} > 0 ? ({})0 : {}", a, type, b);
    case FusedCode::either:
      if (type == std::string_view("double"))
        return fmt::format("__longlong_as_double(__double_as_longlong({}) | __double_as_longlong({}))", a, b);
      return fmt::format("__int_as_float(__float_as_int({}) | __float_as_int({}))", a, b);
    case FusedCode::exp:
      return of("exp");
    case FusedCode::expm1:
      return of("expm1");
    case FusedCode::log:
      return of("log");
    case FusedCode::log1p:
      return of("log1p");
    case FusedCode::sigmoid:
      return fmt::format("({0} < 0 ? {1} : ({2})1) / (1 + {1})", a, e, type);
    case FusedCode::tanh:
      return of("tanh");
    case FusedCode::erf:
      return of("erf");
    case FusedCode::erfc:
      return of("erfc");
    case FusedCode::sin:
      return of("sin");
    case FusedCode::cos:
      return of("cos");
    case FusedCode::product_sum:  // these are in no chain for a GPU
    case FusedCode::less_product:
    case FusedCode::row_sum:
    case FusedCode::row_product:
    case FusedCode::spread:
      break;
  }
  fail("a chain has instruction {}, which is none", static_cast<int>(i.code));
}

}  // namespace

std::string element_source(DType dtype) {
  if (dtype == DType::float16) return kFloat16;
  if (dtype == DType::bfloat16) return kBfloat16;
  return fmt::format(kWhole, computed_in(dtype));
}

std::string fused_value_source(DType dtype, const FusedInstruction& i, const std::string& a, const std::string& b) {
  return value_of(i, computed_in(dtype), a, b);
}

std::string fused_source(DType dtype, const std::vector<FusedInstruction>& code, int tensors) {
  const char* type = computed_in(dtype);
  std::string text = element_source(dtype) + fmt::format(kStart, kMostFusedTensors);
  std::set<int> there;  // operands whose variable has a value
  const auto read = [&](int operand) {
    if (!there.insert(operand).second) return;
    require(operand < tensors, "a chain reads value {} before it is there", operand);
    text += fmt::format("    {} {} = load({});\n", type, name(operand), place(operand));
  };
  for (const FusedInstruction& i : code) {
    read(i.a);
    if (fused_code(i.code).reads_b) read(i.b);
    const bool is_new = there.insert(i.to).second;
    text += fmt::format("    {}{} = {};\n", is_new ? std::string(type) + " " : "", name(i.to),
                        value_of(i, type, name(i.a), name(i.b)));
    if (i.to < tensors) text += fmt::format("    {} = store({});\n", place(i.to), name(i.to));
  }
  return text + "  }\n}\n";
}

}  // namespace stepnet::gpu
