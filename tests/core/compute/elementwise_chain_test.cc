#include "stepnet/elementwise_chain.h"

#include <cmath>
#include <functional>

#include "tests/operators/op_test.h"

namespace stepnet::testing::elementwise_chain_test {
namespace {

double plain(const FusedInstruction& i, double a, double b) {
  switch (i.code) {
    case FusedCode::copy:
      return a;
    case FusedCode::add:
      return a + b;
    case FusedCode::sub:
      return a - b;
    case FusedCode::mul:
      return a * b;
    case FusedCode::negative:
      return -a;
    case FusedCode::one_minus:
      return 1 - a;
    case FusedCode::scale:
      return a * i.value;
    case FusedCode::relu:
      return a < 0 ? 0 : a;
    case FusedCode::if_positive:
      return a > 0 ? b : 0;
    case FusedCode::sigmoid:
      return 1 / (1 + std::exp(-a));
    case FusedCode::tanh:
      return std::tanh(a);
  }
  return NAN;
}

constexpr FusedCode kCodes[] = {FusedCode::copy,      FusedCode::add,   FusedCode::sub,    FusedCode::mul,
                                FusedCode::negative,  FusedCode::scale, FusedCode::relu,   FusedCode::if_positive,
                                FusedCode::one_minus, FusedCode::tanh,  FusedCode::sigmoid};

template <class T>
void expect_each_code_is_right(const FusedKernels& kernels, double tolerance) {
  constexpr int64_t kRows = 3;
  for (const FusedCode code : kCodes)
    for (const int64_t width : {1, 7, 128, 129, 300}) {
      const Tensor a = normal<T>({kRows, width}, 1), b = normal<T>({kRows, width}, 2);
      Tensor made = Tensor::zeros(dtype_of<T>(), {kRows, width}), wanted = made.clone();
      const FusedInstruction i{code, 0, 1, 1.5, 2};
      const FusedOperand<T> tensors[] = {
          {const_cast<T*>(a.data<T>()), width}, {const_cast<T*>(b.data<T>()), width}, {made.template data<T>(), width}};
      kernels.run(FusedLoop<T>{&i, 1, tensors, 3, width}, 0, kRows * fused_pieces(width));
      for (int64_t j = 0; j < kRows * width; ++j)
        wanted.template data<T>()[j] = static_cast<T>(plain(i, a.data<T>()[j], b.data<T>()[j]));
      EXPECT_EQ(compare(made, wanted, tolerance), "") << static_cast<int>(code) << " " << width;
    }
}

TEST(Fused, EachCodeIsRight) {
  for (const FusedKernels* kernels : {&fused_kernels_plain(), &fused_kernels()}) {
    expect_each_code_is_right<float>(*kernels, 1e-6);
    expect_each_code_is_right<double>(*kernels, 1e-14);
  }
}

// Of halves, what floats give, rounded after each operator: here once before the multiplication, not after tanh.
template <class Half>
void expect_chain_of_halves(const FusedKernels& kernels) {
  constexpr int64_t kRows = 3;
  for (const int64_t width : {1, 7, 128, 300}) {
    Tensor x = Tensor::empty(dtype_of<Half>(), {kRows, width}), y = x.clone(), sum = x.clone(), made = x.clone();
    const Tensor a = normal<float>({kRows, width}, 1), b = normal<float>({kRows, width}, 2);
    for (int64_t j = 0; j < x.size(); ++j) {
      x.data<Half>()[j] = Half(a.data<float>()[j]);
      y.data<Half>()[j] = Half(b.data<float>()[j]);
    }
    const FusedInstruction code[] = {
        {FusedCode::add, 0, 1, 0, 2, true}, {FusedCode::scale, 2, 2, 1.5, 4}, {FusedCode::mul, 4, 0, 0, 3, true}};
    const FusedOperand<Half> tensors[] = {
        {x.data<Half>(), width}, {y.data<Half>(), width}, {sum.data<Half>(), width}, {made.data<Half>(), width}};
    kernels.run(FusedLoop<Half>{code, 3, tensors, 4, width, 2}, 0, kRows * fused_pieces(width));
    for (int64_t j = 0; j < x.size(); ++j) {
      const Half first(x.data<Half>()[j] + y.data<Half>()[j]), last(float(first) * 1.5F * float(x.data<Half>()[j]));
      EXPECT_EQ(float(sum.data<Half>()[j]), float(first)) << j;
      EXPECT_EQ(float(made.data<Half>()[j]), float(last)) << j;
    }
  }
}

TEST(Fused, OperatorsOutputsOfHalvesAreRounded) {
  for (const FusedKernels* kernels : {&fused_kernels_plain(), &fused_kernels()}) {
    expect_chain_of_halves<float16>(*kernels);
    expect_chain_of_halves<bfloat16>(*kernels);
  }
}

// y = tanh(columns 3 to 5 of x + v) (1 - w), w a vector for all rows; in pieces of the work as threads do them.
TEST(Fused, ChainsReadColumnsAndVectors) {
  constexpr int64_t kRows = 5, kWide = 7, kWidth = 3;
  const Tensor x = normal<double>({kRows, kWide}, 1), v = normal<double>({kRows, kWidth}, 2);
  const Tensor w = normal<double>({kWidth}, 3);
  Tensor y = Tensor::zeros(DType::float64, {kRows, kWidth}), wanted = y.clone();
  const FusedInstruction code[] = {{FusedCode::add, 0, 1, 0, 4},
                                   {FusedCode::tanh, 4, 4, 0, 4},
                                   {FusedCode::one_minus, 2, 2, 0, 5},
                                   {FusedCode::mul, 4, 5, 0, 3}};
  const FusedOperand<double> tensors[] = {{const_cast<double*>(x.data<double>()) + 3, kWide},
                                          {const_cast<double*>(v.data<double>()), kWidth},
                                          {const_cast<double*>(w.data<double>()), 0},
                                          {y.data<double>(), kWidth}};
  const FusedLoop<double> loop{code, 4, tensors, 4, kWidth};
  fused_kernels().run(loop, 0, 2);
  fused_kernels().run(loop, 2, kRows);
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t j = 0; j < kWidth; ++j)
      wanted.data<double>()[r * kWidth + j] =
          std::tanh(x.data<double>()[r * kWide + 3 + j] + v.data<double>()[r * kWidth + j]) * (1 - w.data<double>()[j]);
  EXPECT_EQ(compare(y, wanted, 1e-14), "");
}

// What operators say of themselves gives what their kernels do.
TEST(Fused, OperatorsBodiesAreTheirKernels) {
  int bodies = 0;
  for (const std::string& type : op_types()) {
    const OpSpec& spec = op_spec(type);
    if (!spec.fused || spec.inputs.empty()) continue;
    const int inputs = spec.inputs[0].variadic ? 3 : static_cast<int>(spec.inputs.size());
    std::vector<std::string> names;
    Feeds feeds;
    for (int i = 0; i < inputs; ++i) {
      names.push_back(fmt::format("x{}", i));
      feeds.emplace_back(names.back(), normal<double>({4, 5}, 10 + i));
    }
    const OperatorDef def = make_op(type, names, {"y"});
    const FusedBody body = spec.fused(parse_args(spec, def).get(), inputs);
    ASSERT_FALSE(body.empty()) << type;
    Tensor wanted = run_op_on(def, feeds)[0], made = wanted.clone();
    for (int64_t j = 0; j < made.size(); ++j) {
      std::vector<double> values;
      for (const auto& [name, value] : feeds) values.push_back(value.data<double>()[j]);
      for (const FusedInstruction& i : body) values.push_back(plain(i, values.at(i.a), values.at(i.b)));
      made.data<double>()[j] = values.back();
    }
    EXPECT_EQ(compare(made, wanted, 1e-12), "") << type;
    ++bodies;
  }
  EXPECT_GE(bodies, 12);
}

}  // namespace
}  // namespace stepnet::testing::elementwise_chain_test
