// Operators whose rules allow an output in place write the same bits when another tensor shows the input's bytes to
// them, as where memory is planned: for every call in the examples of all operators and in their gradients.
#include "core/operator/in_place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/core/temp_folder.h"
#include "tests/operators/malformed_cases.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::in_place_test {
namespace {

struct OneRun {
  explicit OneRun(const OpCall& call) : op(bind_op(call.def, "", 0)), out(call.def.output_size()) {
    for (const std::string& name : call.def.input()) {
      const auto fed = call.feeds.find(name);
      in.push_back(fed == call.feeds.end() ? Tensor() : fed->second.clone());
    }
  }
  void run() {
    std::vector<const Tensor*> inputs;
    std::vector<Tensor*> outputs;
    for (const Tensor& t : in) inputs.push_back(t.defined() ? &t : nullptr);
    for (int o = 0; o < op.def.output_size(); ++o) outputs.push_back(op.def.output(o).empty() ? nullptr : &out[o]);
    RunContext context;
    run_op(op, inputs, outputs, context);
  }

  BoundOp op;
  std::vector<Tensor> in, out;
};

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  return a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

// Output o over input i. False if the two are not of one type.
bool check_over(const OpCall& call, OneRun& apart, int i, int o) {
  const Tensor& output = apart.out[o];
  OneRun over(call);
  Tensor& input = over.in[i];
  if (!output.defined() || !input.defined() || input.dtype() != output.dtype() || input.size() != output.size())
    return false;
  if (input.dtype() == DType::string) return false;
  over.out[o] = Tensor::view(input.storage(), 0, output.dtype(), output.shape());
  const auto storage = input.storage();
  over.run();
  EXPECT_EQ(over.out[o].storage(), storage);
  for (size_t k = 0; k < apart.out.size(); ++k)
    if (apart.out[k].defined() && apart.out[k].dtype() != DType::string) {
      EXPECT_TRUE(same_bits(apart.out[k], over.out[k]))
          << "output " << k << " of " << call.def.ShortDebugString() << " with output " << o << " over input " << i;
    }
  return true;
}

TEST(InPlace, WritesTheSameBitsOverABlobOfAnotherName) {
  const TempFolder folder;
  int checked = 0;
  for (const auto& [type, calls] : calls_of_all_operators(folder.file("calls"))) {
    const OpSpec& spec = op_spec(type);
    const bool must = std::ranges::any_of(spec.in_place, [](const InPlaceRule& rule) { return rule.enforced; });
    if (spec.blob_kernel || must) continue;
    for (const OpCall& call : calls) {
      if (call.before.op_size() > 0) continue;
      OneRun apart(call);
      apart.run();
      for (int i = 0; i < call.def.input_size(); ++i)
        for (int o = 0; o < call.def.output_size(); ++o)
          if (!call.def.output(o).empty() && may_write_over(spec, i, o)) checked += check_over(call, apart, i, o);
    }
  }
  EXPECT_GT(checked, 150);
}

}  // namespace
}  // namespace stepnet::testing::in_place_test
