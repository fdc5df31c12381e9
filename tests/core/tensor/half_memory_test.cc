// What half types take: kernels on casts of pieces, and plans that know what kernels take for themselves.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/compute/threads.h"
#include "core/gradcheck/examples.h"
#include "core/io/files.h"
#include "core/operator/cast_kernels.h"
#include "core/operator/half_pieces.h"
#include "core/tensor/dry_device.h"
#include "stepnet/device.h"
#include "tests/core/gradient_testing.h"
#include "tests/core/planned_runs.h"

namespace stepnet::testing::half_memory_test {
namespace {

// The most bytes that runs of the net take beyond their input, of [rows, 1024] of that type; by run.
std::vector<int64_t> peaks(const Lines& lines, DType type, int64_t rows, int runs) {
  NetDef net = net_of_lines(lines);
  net.set_name("net");
  net.add_external_input("X");
  net.add_external_output("Y");
  const Tensor values = normal<float>({rows, 1024}, 1);
  const int64_t before = allocator(Device{}).counters().live;
  NetRuns planned(net, {{"X", in_type(type, values)}}, {.plan_memory = true});
  std::vector<int64_t> all;
  for (int i = 0; i < runs; ++i) {
    planned.run();
    all.push_back(planned.peak() - before);
  }
  return all;
}

TEST(HalfMemory, ElementwiseOperatorsTakeHalfOfFloats) {
  const Lines lines = {"a = Tanh(X)",   "b = Sigmoid(X)", "c = Mul(a, b)",
                       "d = Add(c, a)", "e = Div(d, b)",  "Y = Relu(e)"};
  const int64_t floats = std::ranges::max(peaks(lines, DType::float32, 512, 4));
  for (const DType type : {DType::float16, DType::bfloat16})
    EXPECT_EQ(std::ranges::max(peaks(lines, type, 512, 4)), floats / 2) << dtype_name(type);
}

// Most values are alive in front of the product, and most casts, X^T X in float32 among them, in it: a block would be
// there beside these.
TEST(HalfMemory, PlannedRunsTakeNoMoreThanThoseBefore) {
  const Lines lines = {
      "p = MatMul(X, X) trans_a=1", "a = Tanh(X)",     "b = Sigmoid(X)", "c = Relu(X)", "d = Negative(X)",
      "s = Sum(a, b, c, d, X)",     "Y = MatMul(s, p)"};
  for (const DType type : {DType::float32, DType::float16, DType::bfloat16})
    for (const int64_t rows : {1, 100, 400}) {
      const std::vector<int64_t> all = peaks(lines, type, rows, 5);
      EXPECT_LE(*std::max_element(all.begin() + 2, all.end()), std::max(all[0], all[1])) << dtype_name(type) << rows;
    }
}

constexpr int64_t kColumns = 3500;  // several pieces, of which the last is shorter

Tensor many_numbers(DType half) {
  Tensor numbers = Tensor::zeros(DType::float32, {3, kColumns});
  for (int64_t i = 0; i < 3 * kColumns; ++i) numbers.data<float>()[i] = 0.25F + static_cast<float>(i * 7 % 97) / 50;
  return in_type(half, numbers);
}

Tensor many_truths() {
  Tensor truths = Tensor::zeros(DType::boolean, {3, kColumns});
  for (int64_t i = 0; i < 3 * kColumns; ++i) truths.data<bool>()[i] = i * 7 % 97 < 48;
  return truths;
}

// A call of the example's operator with floating inputs of many elements in a half type. Others are as in the example.
struct LargeCall {
  LargeCall(const OpSpec& spec, const OpExample& example, DType half) {
    const TemporaryFolder folder;
    const GradientSubject subject = example_subject(spec, example, 1, folder.path());
    if (subject.net.op_size() != 1) return;
    op = bind_op(subject.net.op(0), "large", 0);
    std::map<std::string, Tensor> values;
    for (const auto& [name, value] : subject.feeds) {
      values[name] = is_floating(value.dtype())        ? many_numbers(half)
                     : value.dtype() == DType::boolean ? many_truths()
                                                       : value.clone();
    }
    for (const std::string& name : op.def.input()) in.push_back(name.empty() ? Tensor() : values.at(name));
    std::vector<TensorType> in_types, out_types(op.def.output_size());
    for (const Tensor& t : in) {
      in_types.push_back(TensorType::of(t.dtype(), t.shape()));
      in_types.back().absent = !t.defined();
    }
    infer_types(op, in_types, out_types);
    for (const TensorType& type : out_types) {
      if (!type.known) return;
      out.push_back(Tensor::zeros(type.dtype, type.shape));
    }
    is_made = true;
  }
  Call call() {
    for (const Tensor& t : in) inputs.push_back(t.defined() ? &t : nullptr);
    for (Tensor& t : out) outputs.push_back(&t);
    return Call(inputs, outputs, run);
  }

  BoundOp op;
  std::vector<Tensor> in, out;
  std::vector<const Tensor*> inputs;
  std::vector<Tensor*> outputs;
  RunContext run;
  bool is_made = false;
};

// Whether it ran in pieces; then outputs have the bits of a run on whole tensors.
bool compare_pieces(const OpSpec& spec, const OpExample& example, const Kernel& floats, DType half) {
  LargeCall pieces(spec, example, half), whole(spec, example, half);
  if (!pieces.is_made) return false;
  Call in_pieces = pieces.call(), at_once = whole.call();
  const void* args = pieces.op.args.get();
  if (!runs_in_pieces(spec, args, in_pieces)) return false;
  run_in_pieces(spec, floats, args, in_pieces);
  FloatCall cast(spec, at_once);
  floats.run(args, cast.call());
  cast.cast_results();
  for (size_t o = 0; o < pieces.out.size(); ++o)
    EXPECT_TRUE(std::equal(pieces.out[o].raw(), pieces.out[o].raw() + pieces.out[o].bytes(), whole.out[o].raw()))
        << spec.type << " " << dtype_name(half);
  return true;
}

TEST(HalfMemory, PiecesHaveTheBitsOfWholeTensors) {
  std::set<std::string> in_pieces;
  for (const std::string& type : op_types()) {
    const OpSpec& spec = op_spec(type);
    const auto kernel = std::ranges::find_if(
        spec.kernels, [](const Kernel& k) { return k.device == DeviceKind::cpu && k.dtype == DType::float32; });
    if (spec.blob_kernel || kernel == spec.kernels.end()) continue;
    for (const OpExample& example : spec.examples)
      for (const DType half : {DType::float16, DType::bfloat16}) {
        if (!example.net.empty()) continue;
        try {
          if (compare_pieces(spec, example, *kernel, half)) in_pieces.insert(type);
        } catch (const Error&) {
          continue;  // shapes that do not fit the example's arguments
        }
      }
  }
  for (const char* type : {"Tanh", "Mul", "Div", "Sum", "Where", "AddCMul"})
    EXPECT_TRUE(in_pieces.contains(type)) << type;
  for (const char* type : {"Softmax", "Transpose", "FC", "Dropout", "Cumsum", "Scan", "LinearAttention"})
    EXPECT_FALSE(in_pieces.contains(type)) << type;
}

TEST(LivePeak, IsOfItsTimeAndLeavesTheAllocatorsAlone) {
  Allocator& memory = allocator(Device{});
  const int64_t before = memory.counters().live;
  memory.reset_peak();
  LivePeak all;
  { const Tensor first = Tensor::empty(DType::uint8, {4096}); }
  LivePeak later;
  { const Tensor second = Tensor::empty(DType::uint8, {1024}); }
  EXPECT_EQ(all.peak() - before, 4096);
  EXPECT_EQ(later.peak() - before, 1024);
  all.restart();
  EXPECT_EQ(all.peak(), before);
  EXPECT_EQ(memory.counters().peak - before, 4096);
}

TEST(DryAtOnce, CountsWhatPartsTakeTogether) {
  DryScope scope;
  const Tensor standing = Tensor::empty(DType::uint8, {64});
  std::vector<Tensor> kept;
  {
    DryAtOnce at_once;
    for (int part = 0; part < 3; ++part) {
      at_once.next();
      const Tensor temporary = Tensor::empty(DType::uint8, {1024});
      kept.push_back(Tensor::empty(DType::uint8, {128}));
    }
  }
  EXPECT_EQ(scope.counters().live, 64 + 3 * 128);
  EXPECT_EQ(scope.counters().peak, 64 + 3 * (1024 + 128));
}

}  // namespace
}  // namespace stepnet::testing::half_memory_test
