// Kernels of halves: products, sums and chains against float64 of the same values rounded once, and an LSTM's step nets
// in halves against float32. Whole operators: `stepnet gradcheck --precision`.
#include "stepnet/half.h"

#include <cmath>

#include "core/compute/backend.h"
#include "core/gradcheck/examples.h"
#include "core/operator/nets_inside.h"
#include "core/operator/op_devices.h"
#include "gpu/loops/matmul.h"
#include "gpu/runtime/chain_kernel.h"
#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"
#include "stepnet/text.h"
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::half_test {
namespace {

constexpr DType kHalves[] = {DType::float16, DType::bfloat16};

double epsilon(DType half) { return half == DType::float16 ? 0x1p-10 : 0x1p-7; }
// What one rounding may change, and a little for sums in float32.
double one_rounding(DType half) { return 0.51 * epsilon(half); }

Tensor random(DType dtype, const Shape& shape, uint64_t seed) { return in_type(dtype, normal<float>(shape, seed)); }
Tensor ones(DType dtype, const Shape& shape) {
  Tensor t = Tensor::empty(DType::float32, shape);
  std::ranges::fill(t.span<float>(), 1.0F);
  return in_type(dtype, t);
}

// C = op(A) op(B) + bias, plus C if it accumulates, dense and in float64.
Tensor product(const gpu::ProductSizes& s, const Tensor& a, const Tensor& b, const Tensor& c, const Tensor* bias) {
  const Tensor x = in_type(DType::float64, a), y = in_type(DType::float64, b), before = in_type(DType::float64, c);
  Tensor result = Tensor::zeros(DType::float64, {s.m, s.n});
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = s.accumulate ? before.data<double>()[i * s.n + j] : 0;
      if (bias) sum += in_type(DType::float64, *bias).data<double>()[j];
      for (int64_t p = 0; p < s.k; ++p)
        sum += x.data<double>()[s.trans_a ? p * s.m + i : i * s.k + p] *
               y.data<double>()[s.trans_b ? j * s.k + p : p * s.n + j];
      result.data<double>()[i * s.n + j] = sum;
    }
  return result;
}

// `shift`: elements by which each operand begins behind the start of its block.
template <class T>
Tensor product_on_gpu(const gpu::ProductSizes& s, const Tensor& a, const Tensor& b, const Tensor& c, const Tensor* bias,
                      int64_t shift) {
  std::vector<Tensor> blocks;
  const auto place = [&](const Tensor& t) {
    Tensor block = Tensor::zeros(t.dtype(), {t.size() + shift});
    std::ranges::copy(t.span<T>(), block.data<T>() + shift);
    blocks.push_back(on_gpu(block));
    return reinterpret_cast<T*>(blocks.back().raw()) + shift;
  };
  const T *there_a = place(a), *there_b = place(b), *there_bias = bias ? place(*bias) : nullptr;
  T* there_c = place(c);
  RunContext run;
  gpu::matmul(Call({}, {}, run), s, there_a, there_b, there_c, there_bias);
  return copied_to(blocks.back(), {}).rows(shift, c.size()).reshaped(c.shape());
}

void check_product(DType half, const gpu::ProductSizes& s, bool has_bias, int64_t shift) {
  const Tensor a = random(half, {s.m * s.k}, 1), b = random(half, {s.k * s.n}, 2), c = random(half, {s.m, s.n}, 3),
               bias = random(half, {s.n}, 4);
  const Tensor* added = has_bias ? &bias : nullptr;
  const Tensor expected = product(s, a, b, c, added);
  with_half(half, [&](auto zero) {
    const Tensor found = product_on_gpu<decltype(zero)>(s, a, b, c, added, shift);
    // On top of sums, cuBLASLt rounds what was there and the bias apart: twice more at most.
    const double roundings = 1 + int{s.accumulate} + int{has_bias};
    EXPECT_EQ(compare(in_type(DType::float64, found), expected, roundings * one_rounding(half), ErrorScale::tensor), "")
        << dtype_name(half) << " m " << s.m << " n " << s.n << " k " << s.k << " trans " << s.trans_a << s.trans_b
        << " accumulate " << s.accumulate << " bias " << has_bias << " shift " << shift;
  });
}

TEST_F(GpuTest, ProductsOfHalvesAddUpInFloat) {
  for (const DType half : kHalves)
    for (const auto& [m, n, k] : {std::tuple{1, 1, 1}, {3, 5, 7}, {16, 24, 64}, {1, 40, 8}, {2, 3, 0}, {0, 3, 2}})
      for (int flags = 0; flags < 16; ++flags)
        check_product(half,
                      {.trans_a = (flags & 1) != 0,
                       .trans_b = (flags & 2) != 0,
                       .m = m,
                       .n = n,
                       .k = k,
                       .accumulate = (flags & 4) != 0},
                      (flags & 8) != 0, flags % 3);
}

// In a half type a sum of ones ends at 256 or 2048.
TEST_F(GpuTest, SumsOfHalvesGrowInFloat) {
  constexpr int64_t kCount = 4096;
  for (const DType half : kHalves) {
    SCOPED_TRACE(dtype_name(half));
    const Tensor row = ones(half, {kCount}), column = ones(half, {kCount, 8});
    const Feeds feeds = {{"X", column}, {"dY", column}, {"W", ones(half, {8, 8})}, {"like", ones(half, {8})}};
    const auto all = [&](const std::vector<Tensor>& found) {
      for (const Tensor& t : found) {
        const Tensor values = in_type(DType::float64, t);
        for (const double v : values.span<double>()) EXPECT_EQ(v, double{kCount});
      }
    };
    all(run_op_on_gpu(
        make_op("ReduceSum", {"X"}, {"Y"}, {make_arg("axes", std::vector<int64_t>{0}), make_arg("keepdims", false)}),
        {feeds[0]}));
    all(run_op_on_gpu(make_op("SumReduceLike", {"X", "like"}, {"Y"}, {make_arg("broadcast", 1)}),
                      {feeds[0], feeds[3]}));
    const auto found = run_op_on_gpu(make_op("FCGradient", {"X", "W", "dY"}, {"dW", "db"}), feeds);
    all(found);
  }
}

std::vector<double> chain_on_gpu(DType half, const std::vector<FusedInstruction>& code, const Tensor& a,
                                 const Tensor& b) {
  std::vector<Tensor> there = {on_gpu(a), on_gpu(b), on_gpu(Tensor::zeros(half, a.shape()))};
  const auto chain = backend(DeviceKind::cuda).fuse(kGpu, half, code, 3);
  std::vector<FusedOperand<void>> tensors;
  for (Tensor& t : there) tensors.push_back({t.raw(), a.dim(1)});
  chain->run(tensors, a.dim(1), a.dim(0));
  const Tensor result = in_type(DType::float64, copied_to(there[2], {}));
  return {result.span<double>().begin(), result.span<double>().end()};
}

TEST_F(GpuTest, ChainsOfHalvesRoundWhatTheyWriteAlone) {
  const std::vector<FusedInstruction> code = {
      {FusedCode::add, 0, 1, 0, 3}, {FusedCode::sub, 3, 0, 0, 3}, {FusedCode::tanh, 3, 3, 0, 2}};
  for (const DType half : kHalves) {
    SCOPED_TRACE(dtype_name(half));
    const Tensor a = in_type(half, Tensor::of<float>({1, 2}, {4096, -8192})), b = random(half, {1, 2}, 2);
    const std::vector<double> found = chain_on_gpu(half, code, a, b);
    for (int64_t i = 0; i < 2; ++i)  // a + b alone would lose all of b
      EXPECT_NEAR(found[static_cast<size_t>(i)], std::tanh(in_type(DType::float64, b).data<double>()[i]),
                  2e-3 + one_rounding(half));
  }
}

TEST(GpuFused, SourceOfHalvesConvertsWhereItReadsAndWrites) {
  for (const DType half : kHalves) {
    const std::string source = gpu::fused_source(half, {{FusedCode::mul, 0, 0, 0, 1}}, 2);
    for (const char* part :
         {"typedef float Number;", "Number x0[kLanes];", "read(x0, o.tensors[0]", "to[k] = load(all.values[k]);",
          "write(o.tensors[1], row, column, x1)", "all.values[k] = store(from[k]);"})
      EXPECT_NE(source.find(part), source.npos) << part << "\n" << source;
    EXPECT_EQ(source.find("#include"), source.npos) << "there are no headers\n" << source;
  }
}

// A step of eight units, either with LSTMUnit or from small operators, some of which become a chain.
std::string step_text(bool unit) {
  if (unit)
    return "op { type: 'LSTMUnit' input: 'h_prev' input: 'c_prev' input: 'gates' input: 'timestep' output: 'h' "
           "output: 'c' arg { name: 'sequence_lengths' i: 0 } }";
  return "op { type: 'Split' input: 'gates' output: 'si' output: 'sf' output: 'so' output: 'sg' arg { name: 'axis' i: "
         "2 } } op { type: 'Sigmoid' input: 'si' output: 'i' } op { type: 'Sigmoid' input: 'sf' output: 'f' } "
         "op { type: 'Sigmoid' input: 'so' output: 'o' } op { type: 'Tanh' input: 'sg' output: 'g' } "
         "op { type: 'Mul' input: 'f' input: 'c_prev' output: 'kept' } op { type: 'Mul' input: 'i' input: 'g' output: "
         "'added' } op { type: 'Add' input: 'kept' input: 'added' output: 'c' } op { type: 'Tanh' input: 'c' output: "
         "'t' } op { type: 'Mul' input: 'o' input: 't' output: 'h' }";
}

NetDef lstm_net(bool unit) {
  NetDef net = parse_net_text(
      "external_input: 'x' external_input: 'h0' external_input: 'c0' external_input: 'W_x' external_input: 'b_x' "
      "external_input: 'W_h' external_input: 'b_h' external_output: 'h_all' op { type: 'RecurrentNetwork' input: 'x' "
      "input: 'h0' input: 'c0' input: 'W_x' input: 'b_x' input: 'W_h' input: 'b_h' output: 'h_all' output: 'h_last' "
      "output: 'c_last' [stepnet.recurrent] { sequence { outer: 'x' inner: 'x_t' } "
      "state { input: 'h_prev' output: 'h' initial: 'h0' all: 'h_all' last: 'h_last' } "
      "state { input: 'c_prev' output: 'c' initial: 'c0' last: 'c_last' } step_net { "
      "external_input: 'x_t' external_input: 'h_prev' external_input: 'c_prev' external_input: 'W_x' "
      "external_input: 'b_x' external_input: 'W_h' external_input: 'b_h' " +
          std::string(unit ? "external_input: 'timestep' " : "") +
          "external_output: 'h' external_output: 'c' "
          "op { type: 'FC' arg { name: 'axis' i: 2 } input: 'x_t' input: 'W_x' input: 'b_x' output: 'gx' } "
          "op { type: 'FC' arg { name: 'axis' i: 2 } input: 'h_prev' input: 'W_h' input: 'b_h' output: 'gh' } "
          "op { type: 'Add' input: 'gx' input: 'gh' output: 'gates' } " +
          step_text(unit) + " } } }",
      "an LSTM");
  expand_recurrent(net);
  return net;
}

Feeds lstm_feeds(DType dtype, DType half) {
  const auto value = [&](const Shape& shape, uint64_t seed) { return in_type(dtype, random(half, shape, seed)); };
  const auto small = [&](const Shape& shape, uint64_t seed) {
    return in_type(dtype, in_type(half, uniform<float>(shape, -0.35, 0.35, seed)));
  };
  return {{"x", value({5, 3, 4}, 1)}, {"h0", value({3, 8}, 2)}, {"c0", value({3, 8}, 3)},   {"dh", value({5, 3, 8}, 4)},
          {"W_x", small({32, 4}, 5)}, {"b_x", small({32}, 6)},  {"W_h", small({32, 8}, 7)}, {"b_h", small({32}, 8)}};
}

// h_all and all gradients.
NamedTensors run_lstm(NetDef net, const Feeds& feeds, Device device, DType half) {
  GradientRequest request;
  request.targets = {{"h_all", "dh"}};
  request.wanted.insert(net.external_input().begin(), net.external_input().end());
  net.add_external_input("dh");
  const GradientResult made = add_gradient_operators(net, request);
  if (device.kind == DeviceKind::cuda)
    for_each_net(net, [&](NetDef& inner) {
      inner.mutable_device_option()->set_device_type(CUDA);
      for (const OperatorDef& op : inner.op())
        EXPECT_TRUE(op_spec(op.type()).kernels.empty() || has_kernel(op_spec(op.type()), DeviceKind::cuda, half))
            << op.type() << " runs on casts";
    });
  Workspace blobs;
  for (const auto& [name, value] : feeds) blobs.tensor(name) = copied_to(value, device);
  RunContext run;
  run_net_once(net, blobs, run);
  NamedTensors results = {{"h_all", copied_to(blobs.fetch("h_all"), {})}};
  for (const auto& [name, gradient] : made.gradients)
    if (request.wanted.count(name) > 0) results["d" + name] = copied_to(blobs.fetch(gradient.dense), {});
  return results;
}

TEST_F(GpuTest, AnLstmOfHalvesCastsNothing) {
  for (const bool unit : {true, false})
    for (const DType half : kHalves) {
      SCOPED_TRACE(fmt::format("{}, {}", dtype_name(half), unit ? "LSTMUnit" : "small operators"));
      const NamedTensors expected = run_lstm(lstm_net(unit), lstm_feeds(DType::float32, half), {}, half);
      const NamedTensors found = run_lstm(lstm_net(unit), lstm_feeds(half, half), kGpu, half);
      ASSERT_EQ(found.size(), 8U);
      for (const auto& [name, value] : found) {
        EXPECT_EQ(value.dtype(), half) << name;
        EXPECT_EQ(compare(in_type(DType::float64, value), in_type(DType::float64, expected.at(name)), 8 * epsilon(half),
                          ErrorScale::tensor),
                  "")
            << name;
      }
    }
}

}  // namespace
}  // namespace stepnet::testing::half_test
