// Sum: the sum of any number of tensors of one shape. Every input's gradient is dY itself; nothing is read.

#include <algorithm>
#include <array>
#include <functional>

#include "core/compute/threads.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_sum {
namespace {

void infer(const NoArgs&, ShapeCall& c) {
  int first = -1;
  for (int i = 0; i < c.inputs(); ++i) {
    if (!c.known(i)) continue;
    if (first < 0) first = i;
    require(c.shape(i) == c.shape(first), "inputs {} and {} must have one shape, but are {} and {}", first, i,
            c.shape(first), c.shape(i));
  }
  if (first >= 0) c.set_like(0, first);
}

// Adds in small blocks, so that no input is read after its block of the output is written: the output may be any of
// the inputs, and one blob may be several of them.
template <class T>
void add_blocks(Call& call, int64_t begin, int64_t end) {
  constexpr int64_t kBlock = 512;
  std::array<T, kBlock> sum;
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t size = std::min(kBlock, end - at);
    std::copy_n(call.in(0).data<T>() + at, size, sum.begin());
    for (int k = 1; k < call.inputs(); ++k) {
      const T* x = call.in(k).data<T>() + at;
#pragma omp simd
      for (int64_t i = 0; i < size; ++i) sum[i] += x[i];
    }
    std::copy_n(sum.begin(), size, call.out(0).data<T>() + at);
  }
}

template <class T>
void add_range(Call& call, int64_t begin, int64_t end) {
  if (call.inputs() != 2) return add_blocks<T>(call, begin, end);
  const T *a = call.in(0).data<T>(), *b = call.in(1).data<T>();
  T* sum = call.out(0).data<T>();
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) sum[i] = a[i] + b[i];
}

template <class T>
void forward(Call& call) {
  auto range = [&call](int64_t begin, int64_t end) { add_range<T>(call, begin, end); };
  parallel_for(call.out(0).size(), 0.2 * call.inputs(), std::ref(range));
}

double flops(const NoArgs&, const ShapeCall& c) {
  return c.known(0) ? static_cast<double>(c.shape(0).size()) * (c.inputs() - 1) : 0;
}

// Sums of more terms than one launch of gpu/reduce/sum.cu adds grow beside the output.
std::vector<int64_t> gpu_workspace(const NoArgs&, const Call& c) {
  constexpr int kTerms = 64;
  if (c.inputs() <= kTerms) return {};
  return {static_cast<int64_t>(c.out(0).bytes())};
}

REGISTER(sum) {
  return op("Sum")
      .doc("Sum of any number of tensors of one shape, element by element.")
      .input("X", "the terms")
      .variadic()
      .output("Y", "their sum")
      .in_place_anywhere("X", "Y")
      .shape(infer)
      .flops(flops)
      .elementwise()
      .sums_inputs()
      .role(Role::sum)
      .gpu_workspace(gpu_workspace)
      .fused([](const NoArgs&, int inputs) {
        FusedBody body = {{FusedCode::copy, 0}};
        if (inputs > 1) body = {{FusedCode::add, 0, 1}};
        for (int i = 2; i < inputs; ++i) body.push_back({FusedCode::add, inputs + i - 2, i});
        return body;
      })
      .example({"X0=2,3"})
      .example({"X0=2,3", "X1=2,3"})
      .example({"X0=2,3", "X1=2,3", "X2=2,3"})
      .example({"X0=0,3", "X1=0,3"})
      .cpu_for<float>(forward<float>)
      .cpu_for<double>(forward<double>)
      .cpu_for<int32_t>(forward<int32_t>)
      .cpu_for<int64_t>(forward<int64_t>)
      .variadic_derivative("X", [](Formula& f, int) { return f.dy("Y"); });
}

}  // namespace
}  // namespace stepnet::cpu_sum
