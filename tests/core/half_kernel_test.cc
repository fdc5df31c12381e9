// Every operator on half types: what its float32 kernel makes of the same values, rounded once.
#include "core/half_kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <sstream>

#include "core/io/temporary_folder.h"
#include "core/net.h"
#include "core/op_example.h"
#include "core/placement.h"

namespace stepnet {
namespace {

using Values = std::map<std::string, Tensor>;

template <class To, class From>
Tensor converted(const Tensor& from) {
  Tensor to = Tensor::empty(dtype_of<To>(), from.shape());
  for (int64_t i = 0; i < from.size(); ++i)
    to.data<To>()[i] = static_cast<To>(static_cast<float>(from.data<From>()[i]));
  return to;
}

// A floating tensor as values of the half type, in that type or in float.
template <class Half>
Tensor fed(const Tensor& given, bool as_half) {
  if (given.dtype() != DType::float64) return given.clone();
  const Tensor half = converted<Half, double>(given);
  return as_half ? half : converted<float, Half>(half);
}

template <class Half>
Values run_example(const GradientSubject& subject, bool as_half) {
  Workspace workspace;
  for (const auto& [name, value] : subject.feeds) workspace.tensor(name) = fed<Half>(value, as_half);
  std::ostringstream printed;
  RunContext run;
  run.out = &printed;
  Net net(subject.net, workspace);
  net.run(run);
  Values values;
  for (const OperatorDef& op : subject.net.op())
    for (const std::string& name : op.output()) {
      const Blob* blob = workspace.find(name);
      if (!name.empty() && blob && blob->is_tensor() && !blob->empty()) values[name] = blob->tensor().clone();
    }
  return values;
}

template <class Half>
std::string difference(const Tensor& half, const Tensor& expected) {
  if (half.shape() != expected.shape()) return half.str() + " instead of " + expected.str();
  if (half.dtype() == expected.dtype())
    return half.dtype() == DType::string || std::equal(half.raw(), half.raw() + half.bytes(), expected.raw())
               ? ""
               : "another " + half.str();
  if (half.dtype() != dtype_of<Half>() || expected.dtype() != DType::float32)
    return half.str() + " instead of " + expected.str();
  for (int64_t i = 0; i < half.size(); ++i) {
    const float got = half.data<Half>()[i], want = Half(expected.data<float>()[i]);
    if (got != want && !(std::isnan(got) && std::isnan(want))) return fmt::format("{} instead of {}", got, want);
  }
  return "";
}

bool is_one_on_tensors(const GradientSubject& subject) {
  return subject.net.op_size() == 1 && !op_spec(subject.net.op(0).type()).blob_kernel;
}

// "" or what is wrong with an example's outputs.
template <class Half>
std::string check(const OpSpec& spec, const OpExample& example) {
  const TemporaryFolder folder, other;
  const GradientSubject subject = example_subject(spec, example, 1, folder.path());
  if (!is_one_on_tensors(subject)) return "";
  Values expected;
  try {
    expected = run_example<Half>(subject, false);
  } catch (const Error&) {
    return "";  // it is an example of doubles only
  }
  try {
    for (const auto& [name, value] : run_example<Half>(subject, true))
      if (const std::string differs = difference<Half>(value, expected.at(name)); !differs.empty())
        return name + " is " + differs;
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

template <class Half>
void check_all() {
  int checked = 0;
  for (const std::string& type : op_types()) {
    const OpSpec& spec = op_spec(type);
    for (const OpExample& example : spec.examples) {
      const std::string wrong = check<Half>(spec, example);
      if (wrong.find("\"pad_minf\" is set") != std::string::npos) continue;  // for float and double alone
      EXPECT_EQ(wrong, "") << type;
      ++checked;
    }
  }
  EXPECT_GT(checked, 300);
}

TEST(HalfKernel, EveryOperatorRunsInBfloat16AsInFloatRoundedOnce) { check_all<bfloat16>(); }
TEST(HalfKernel, EveryOperatorRunsInFloat16AsInFloatRoundedOnce) { check_all<float16>(); }

}  // namespace
}  // namespace stepnet
