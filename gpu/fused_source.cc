#include <fmt/format.h>

#include <set>

#include "core/error.h"
#include "gpu/fused.h"

namespace stepnet::gpu {
namespace {

constexpr const char* kStart = R"(struct Operand {{ {0}* first; long long stride; }};
struct Operands {{ Operand tensors[{1}]; }};
extern "C" __global__ void chain(const Operands o, long long width, long long rows) {{
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < width * rows; i += step) {{
    const long long row = i / width, column = i - row * width;
)";

// The operand as a variable.
std::string name(int operand) { return fmt::format("x{}", operand); }

std::string place(int operand) {
  return fmt::format("o.tensors[{0}].first[row * o.tensors[{0}].stride + column]", operand);
}

std::string value_of(const FusedInstruction& i, const char* type) {
  const std::string a = name(i.a), b = name(i.b);
  const std::string e = fmt::format("exp({0} < 0 ? {0} : -{0})", a);  // of a negative number, so that nothing overflows
  switch (i.code) {
    case FusedCode::copy:
      return a;
    case FusedCode::add:
      return a + " + " + b;
    case FusedCode::sub:
      return a + " - " + b;
    case FusedCode::mul:
      return a + " * " + b;
    case FusedCode::negative:
      return "-" + a;
    case FusedCode::one_minus:
      return fmt::format("({})1 - {}", type, a);
    case FusedCode::scale:
      return fmt::format("{} * ({}){:.17g}", a, type, i.value);
    case FusedCode::relu:
      return fmt::format("{0} < 0 ? ({1})0 : {0}", a, type);
    case FusedCode::if_positive:
      return fmt::format("{} > 0 ? {} : ({})0", a, b, type);
    case FusedCode::sigmoid:
      return fmt::format("({0} < 0 ? {1} : ({2})1) / (1 + {1})", a, e, type);
    case FusedCode::tanh:
      return "tanh(" + a + ")";
  }
  fail("a chain has instruction {}, which is none", static_cast<int>(i.code));
}

bool reads_second(FusedCode code) {
  return code == FusedCode::add || code == FusedCode::sub || code == FusedCode::mul || code == FusedCode::if_positive;
}

}  // namespace

std::string fused_source(DType dtype, const std::vector<FusedInstruction>& code, int tensors) {
  const char* type = dtype == DType::float32 ? "float" : "double";
  std::string text = fmt::format(kStart, type, kMostFusedTensors);
  std::set<int> there;  // operands whose variable has a value
  const auto read = [&](int operand) {
    if (!there.insert(operand).second) return;
    require(operand < tensors, "a chain reads value {} before it is there", operand);
    text += fmt::format("    {} {} = {};\n", type, name(operand), place(operand));
  };
  for (const FusedInstruction& i : code) {
    read(i.a);
    if (reads_second(i.code)) read(i.b);
    const bool is_new = there.insert(i.to).second;
    text += fmt::format("    {}{} = {};\n", is_new ? std::string(type) + " " : "", name(i.to), value_of(i, type));
    if (i.to < tensors) text += fmt::format("    {} = {};\n", place(i.to), name(i.to));
  }
  return text + "  }\n}\n";
}

}  // namespace stepnet::gpu
