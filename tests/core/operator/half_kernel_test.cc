// Every operator on half types: what its float32 kernel makes of the same values, rounded once.
#include "core/operator/cast_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <sstream>

#include "core/gradcheck/examples.h"
#include "core/io/files.h"
#include "core/tensor/dry_device.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "tests/core/estimate_testing.h"

namespace stepnet::half_kernel_test {
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

std::unique_ptr<NetSession> session_of(const NetDef& net, const std::map<std::string, Tensor>& feeds) {
  auto session = std::make_unique<NetSession>();
  for (const auto& [name, value] : feeds) {
    Tensor& blob = session->blobs.create_local(name).tensor();
    blob = Tensor::empty(DType::bfloat16, value.shape());
    if (!blob.is_dry()) blob.fill_zero();
  }
  session->net = std::make_unique<Net>(net, session->blobs, NetOptions{.release_intermediates = true});
  return session;
}

TEST(HalfKernel, AnEstimateCountsTemporariesToTheByte) {
  const char* nets[] = {
      R"(op { type: "FC" input: "X" input: "W" input: "b" output: "y" } op { type: "Tanh" input: "y" output: "y" })",
      R"(op { type: "Add" input: "X" input: "X" output: "y" } op { type: "Softmax" input: "y" output: "p" })",
      R"(op { type: "LayerNorm" input: "X" output: "y" output: "m" output: "s" })",
      R"(op { type: "BatchMatMul" input: "X" input: "X" output: "y" arg { name: "trans_b" i: 1 } })"};
  for (const char* text : nets) {
    const std::map<std::string, Tensor> feeds = {{"X", Tensor::zeros(DType::float64, {37, 64})},
                                                 {"W", Tensor::zeros(DType::float64, {50, 64})},
                                                 {"b", Tensor::zeros(DType::float64, {50})}};
    const NetDef net = parse_net_text(text, "net");
    EXPECT_EQ(testing::compare_with_real([&] { return session_of(net, feeds); }), "") << text;
  }
  DryScope scope;
  const auto session = session_of(parse_net_text(nets[0], "net"), {{"X", Tensor::zeros(DType::float64, {37, 64})},
                                                                   {"W", Tensor::zeros(DType::float64, {50, 64})},
                                                                   {"b", Tensor::zeros(DType::float64, {50})}});
  EXPECT_NE(estimate_session(*session, scope).ops[1].kernel.find("bfloat16: float kernel on casts"), std::string::npos);
}

Tensor bfloats(const Shape& shape, std::initializer_list<float> values) {
  Tensor t = Tensor::empty(DType::bfloat16, shape);
  std::ranges::copy(values, t.data<bfloat16>());
  return t;
}

// What a kernel adds to keeps its value, also where it is float32 beside inputs of a half type.
TEST(HalfKernel, KernelsThatAddDoSoInFloat) {
  const OpSpec& spec = op_spec("Scale");
  const Tensor x = bfloats({2}, {1.5, -2});
  for (const DType type : {DType::bfloat16, DType::float32}) {
    Tensor y = Tensor::zeros(type, {2});
    RunContext run;
    cast_elements(bfloats({2}, {256, 8}), y, run);
    const Tensor* in[] = {&x};
    Tensor* out[] = {&y};
    Call call(in, out, run);
    call.accumulate_mask = 1;
    FloatCall floats(spec, call);
    ASSERT_EQ(floats.call().out(0).dtype(), DType::float32);
    EXPECT_EQ(floats.call().out(0).data<float>()[0], 256);
    floats.call().out(0).data<float>()[0] += floats.call().in(0).data<float>()[0];
    floats.cast_results();
    // 257.5 is between two bfloat16s, 256 and 258.
    EXPECT_EQ(y.row(0).item<float>(), type == DType::bfloat16 ? 258 : 257.5F);
  }
}

TEST(HalfKernel, InPlaceIsInPlaceInTheTemporariesToo) {
  Tensor x = bfloats({2}, {1.5, -2});
  const Tensor other = bfloats({2}, {3, 4});
  const Tensor* in[] = {&x, &other, &other};
  Tensor* out[] = {&x};
  RunContext run;
  const Call call(in, out, run);
  FloatCall floats(op_spec("Sum"), call);
  EXPECT_EQ(floats.call().out(0).raw(), floats.call().in(0).raw());
  EXPECT_EQ(floats.call().in(1).raw(), floats.call().in(2).raw());  // cast once
  EXPECT_NE(floats.call().in(0).raw(), x.raw());
}

}  // namespace
}  // namespace stepnet::half_kernel_test
