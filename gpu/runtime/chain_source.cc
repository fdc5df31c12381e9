#include <fmt/format.h>

#include <algorithm>
#include <bit>
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

// A thread has kLanes neighbouring elements of a row, which it reads and writes at once. Rows are found as gpu::Divider
// finds them (gpu/runtime/divider.h).
constexpr const char* kStart = R"(typedef {1} Number;
struct Operand {{ Element* first; long long stride, step; }};
struct Operands {{ Operand tensors[{0}]; }};
struct Divider {{
  unsigned long long divisor;
  unsigned multiplier;
  unsigned char first, rest;
}};
__device__ unsigned long long quotient(const Divider& d, unsigned long long n) {{
  if (n >> 32 != 0) return n / d.divisor;
  const unsigned t = __umulhi(d.multiplier, (unsigned)n);
  return (t + (((unsigned)n - t) >> d.first)) >> d.rest;
}}

template <int kLanes>
struct alignas(kLanes * sizeof(Element)) Lanes {{ Element values[kLanes]; }};
template <int kLanes>
__device__ void read(Number (&to)[kLanes], const Operand& t, long long row, long long column) {{
  const Element* const from = t.first + row * t.stride + column * t.step;
  if (kLanes > 1 && t.step == 0) {{
    const Number value = load(*from);
    #pragma unroll
    for (int k = 0; k < kLanes; ++k) to[k] = value;
    return;
  }}
  const Lanes<kLanes> all = *(const Lanes<kLanes>*)from;
  #pragma unroll
  for (int k = 0; k < kLanes; ++k) to[k] = load(all.values[k]);
}}
template <int kLanes>
__device__ void write(const Operand& t, long long row, long long column, const Number (&from)[kLanes]) {{
  Lanes<kLanes> all;
  #pragma unroll
  for (int k = 0; k < kLanes; ++k) all.values[k] = store(from[k]);
  *(Lanes<kLanes>*)(t.first + row * t.stride + column * t.step) = all;
}}

// `count`: of all threads' groups of lanes, of which a row has so many as `groups` divides by.
template <int kLanes>
__device__ void run(const Operands& o, const Divider& groups, unsigned long long count) {{
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {{
    const long long row = quotient(groups, i), column = (i - row * groups.divisor) * kLanes;
)";
constexpr const char* kKernel =
    R"(extern "C" __global__ void {0}(const Operands o, const Divider groups, unsigned long long count) {{
  run<{1}>(o, groups, count);
}}
)";

// The operand as a variable, and one lane of it.
std::string name(int operand) { return fmt::format("x{}", operand); }
std::string lane(int operand) { return name(operand) + "[k]"; }

// A number by its bits, so that it is the same there: decimals would lose the sign of a zero, and are none for what is
// infinite or no number.
std::string number(double value, const char* type) {
  if (type == std::string_view("double"))
    return fmt::format("__longlong_as_double((long long)0x{:016x}ull)", std::bit_cast<uint64_t>(value));
  return fmt::format("__uint_as_float(0x{:08x}u)", std::bit_cast<uint32_t>(static_cast<float>(value)));
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

int fused_lanes(DType dtype, const std::vector<FusedInstruction>& code) {
  constexpr size_t kMostLive = 64;  // registers that lanes may take
  std::set<int> live;
  size_t most = 1;
  for (auto it = code.rbegin(); it != code.rend(); ++it) {
    live.erase(it->to);
    live.insert(it->a);
    if (fused_code(it->code).reads_b) live.insert(it->b);
    most = std::max(most, live.size() + 1);
  }
  const size_t registers = dtype == DType::float64 ? 2 * most : most;
  size_t lanes = 16 / dtype_size(dtype);
  while (lanes > 1 && lanes * registers > kMostLive) lanes /= 2;
  return static_cast<int>(lanes);
}

std::string fused_source(DType dtype, const std::vector<FusedInstruction>& code, int tensors) {
  const char* type = computed_in(dtype);
  std::string text = element_source(dtype) + fmt::format(kStart, kMostFusedTensors, type);
  std::set<int> there;  // operands whose variable has a value
  const auto read = [&](int operand) {
    if (!there.insert(operand).second) return;
    require(operand < tensors, "a chain reads value {} before it is there", operand);
    text +=
        fmt::format("    Number {0}[kLanes];\n    read(x{1}, o.tensors[{1}], row, column);\n", name(operand), operand);
  };
  for (const FusedInstruction& i : code) {
    read(i.a);
    if (fused_code(i.code).reads_b) read(i.b);
    if (there.insert(i.to).second) text += fmt::format("    Number {}[kLanes];\n", name(i.to));
    text += fmt::format("    #pragma unroll\n    for (int k = 0; k < kLanes; ++k) {} = {};\n", lane(i.to),
                        value_of(i, type, lane(i.a), lane(i.b)));
    if (i.to < tensors) text += fmt::format("    write(o.tensors[{}], row, column, {});\n", i.to, name(i.to));
  }
  text += "  }\n}\n" + fmt::format(kKernel, "chain", 1);
  const int lanes = fused_lanes(dtype, code);
  return lanes > 1 ? text + fmt::format(kKernel, "chain_lanes", lanes) : text;
}

}  // namespace stepnet::gpu
