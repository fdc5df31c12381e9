// CUDA kernels for Conv and its gradient. Meaning and derivatives: see operators/convolution/conv.cc. The columns of
// all samples are made at once, and products are taken of all samples of a group at once; sums over samples in their
// order.
#include "operators/convolution/conv.h"

#include "gpu/convolution/windows.h"
#include "gpu/loops/matmul.h"
#include "gpu/loops/reduce.h"
#include "gpu/loops/temporary.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_conv {
namespace {

ConvSizes sizes_of(const ConvArgs& a, const Call& c) { return stepnet::sizes_of(a, c.in(0).shape(), c.in(1).shape()); }

// An element of the columns of one channel, and of X where it comes from; -1 for padding.
__host__ __device__ inline int64_t source_of(const gpu::DividingWindows& w, const gpu::Divider& kernel_b,
                                             const gpu::Divider& kernel_c, int64_t place, int64_t o) {
  const gpu::DividingAxis &a = w.axis[0], &b = w.axis[1], &c = w.axis[2];
  const int64_t rows = c.over_out(o), of_a = b.over_out(rows), lines = gpu::divided(place, kernel_c),
                k_a = gpu::divided(lines, kernel_b);
  const int64_t at_c = c.place(o - rows * c.out, place - lines * c.kernel),
                at_b = b.place(rows - of_a * b.out, lines - k_a * b.kernel), at_a = a.place(of_a, k_a);
  return a.inside(at_a) && b.inside(at_b) && c.inside(at_c) ? (at_a * b.in + at_b) * c.in + at_c : -1;
}

// Columns [samples and groups, channels, places, outputs].
template <class T>
void to_columns(const Call& call, const ConvSizes& s, const T* x, T* columns) {
  const gpu::DividingWindows w(s.windows);
  const gpu::Divider outputs(static_cast<size_t>(w.outputs)), places(static_cast<size_t>(w.places)),
      kernel_b(static_cast<size_t>(w.axis[1].kernel)), kernel_c(static_cast<size_t>(w.axis[2].kernel));
  gpu::each(call, static_cast<size_t>(s.samples * s.groups * s.columns_size()), [=] __device__(size_t n) {
    const auto [line, o] = outputs.signed_split(n);
    const auto [image, place] = places.signed_split(static_cast<size_t>(line));
    const int64_t source = source_of(w, kernel_b, kernel_c, place, o);
    columns[n] = source < 0 ? T(0) : x[image * w.inputs + source];
  });
}

// Each element of X adds up what stands for it in the columns.
template <class T>
void add_columns(const Call& call, const ConvSizes& s, const T* columns, gpu::Out<T> x, bool accumulate) {
  const gpu::DividingWindows w(s.windows);
  const gpu::Divider images(static_cast<size_t>(w.inputs));
  gpu::each(call, x.size, [=] __device__(size_t n) {
    const gpu::SignedSplit split = images.signed_split(n);
    const int64_t image = split.quotient, i = split.remainder;
    const gpu::DividingAxis &a = w.axis[0], &b = w.axis[1], &c = w.axis[2];
    const int64_t rows = c.over_in(i), at_a = b.over_in(rows), at_b = rows - at_a * b.in, at_c = i - rows * c.in;
    gpu::Accumulate<T> sum = accumulate ? x[n] : T(0);
    const auto output = [](const gpu::DividingAxis& axis, int64_t at, int64_t k) {
      const int64_t from = at + axis.pad - k * axis.dilation, o = from < 0 ? 0 : axis.over_stride(from);
      return from != o * axis.stride || o >= axis.out ? int64_t{-1} : o;
    };
    int64_t line = image * w.places;
    for (int64_t k_a = 0; k_a < a.kernel; ++k_a) {
      const int64_t p = output(a, at_a, k_a);
      for (int64_t k_b = 0; k_b < b.kernel; ++k_b, line += c.kernel) {
        const int64_t q = output(b, at_b, k_b);
        if (p < 0 || q < 0) continue;
        for (int64_t k_c = 0; k_c < c.kernel; ++k_c)
          if (const int64_t r = output(c, at_c, k_c); r >= 0)
            sum += columns[(line + k_c) * w.outputs + (p * b.out + q) * c.out + r];
      }
    }
    x[n] = sum;
  });
}

// Products of all samples of group g: strides are those from one sample to the next.
gpu::ProductSizes batched(const ConvSizes& s, gpu::ProductSizes p) {
  p.batch = s.samples;
  return p;
}

template <class T>
void forward(const ConvArgs& a, gpu::In<T> x, gpu::In<T> filter, gpu::In<T> bias, gpu::Out<T> y, Call& call) {
  const ConvSizes s = sizes_of(a, call);
  if (s.samples == 0) return;
  const bool plain = s.windows.plain(), biased = bias.data != nullptr;
  const gpu::Temporary<T> room(call, plain ? 0 : s.samples * s.groups * s.columns_size());
  if (!plain) to_columns(call, s, x.data, room.data);
  const T* columns = plain ? x.data : room.data;
  if (biased) {
    const size_t outputs = static_cast<size_t>(s.windows.outputs), all = bias.size;
    const gpu::Divider places(outputs), filters(all);
    gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = bias[filters.split(places.divide(i)).remainder]; });
  }
  for (int64_t g = 0; g < s.groups; ++g)
    gpu::matmul(call,
                batched(s, {.m = s.filters,
                            .n = s.windows.outputs,
                            .k = s.depth,
                            .accumulate = biased,
                            .stride_b = s.groups * s.columns_size(),
                            .stride_c = s.groups * s.y_size()}),
                filter.data + g * s.w_size(), columns + g * s.columns_size(), y.data + g * s.y_size());
}

template <class T>
void bias_gradient(const ConvSizes& s, gpu::In<T> dy, gpu::Out<T> dbias, bool accumulate, const Call& call) {
  using Sum = gpu::Accumulate<T>;
  const int64_t outputs = s.windows.outputs, filters = s.groups * s.filters;
  const gpu::Divider samples(static_cast<size_t>(outputs));
  gpu::reduce(
      call, {1, s.samples * outputs, filters}, Sum(0),
      [=] __device__(size_t, size_t i, size_t m) {
        const gpu::SignedSplit at = samples.signed_split(i);
        return static_cast<Sum>(dy[(at.quotient * filters + static_cast<int64_t>(m)) * outputs + at.remainder]);
      },
      std::plus<Sum>(), [=] __device__(size_t, size_t m, Sum sum) { dbias[m] = accumulate ? dbias[m] + sum : sum; });
}

template <class T>
void filter_gradient(const ConvSizes& s, gpu::In<T> dy, const T* columns, gpu::Out<T> dfilter, const Call& call) {
  const bool accumulate = call.accumulates(0);
  if (s.samples == 0 && !accumulate) gpu::each(call, dfilter.size, [=] __device__(size_t i) { dfilter[i] = T(0); });
  for (int64_t n = 0; n < s.samples; ++n)
    for (int64_t g = 0; g < s.groups; ++g) {
      const int64_t part = n * s.groups + g;
      gpu::matmul(
          call,
          {.trans_b = true, .m = s.filters, .n = s.depth, .k = s.windows.outputs, .accumulate = accumulate || n > 0},
          dy.data + part * s.y_size(), columns + part * s.columns_size(), dfilter.data + g * s.w_size());
    }
}

template <class T>
void input_gradient(const ConvSizes& s, gpu::In<T> filter, gpu::In<T> dy, gpu::Out<T> dx, T* room, const Call& call) {
  if (s.samples == 0) return;
  T* columns = room ? room : dx.data;
  for (int64_t g = 0; g < s.groups; ++g)
    gpu::matmul(call,
                batched(s, {.trans_a = true,
                            .m = s.depth,
                            .n = s.windows.outputs,
                            .k = s.filters,
                            .accumulate = !room && call.accumulates(2),
                            .stride_b = s.groups * s.y_size(),
                            .stride_c = s.groups * s.columns_size()}),
                filter.data + g * s.w_size(), dy.data + g * s.y_size(), columns + g * s.columns_size());
  if (room) add_columns(call, s, room, dx, call.accumulates(2));
}

template <class T>
void gradient(const ConvArgs& a, gpu::In<T> x, gpu::In<T> filter, gpu::In<T> dy, gpu::Out<T> dfilter, gpu::Out<T> dbias,
              gpu::Out<T> dx, Call& call) {
  const ConvSizes s = sizes_of(a, call);
  if (call.wants(1)) bias_gradient(s, dy, dbias, call.accumulates(1), call);
  if (!call.wants(0) && !call.wants(2)) return;
  const bool plain = s.windows.plain();
  const gpu::Temporary<T> room(call, plain ? 0 : s.samples * s.groups * s.columns_size());
  if (call.wants(0)) {
    if (!plain) to_columns(call, s, x.data, room.data);
    filter_gradient(s, dy, plain ? x.data : room.data, dfilter, call);
  }
  if (call.wants(2)) input_gradient(s, filter, dy, dx, plain ? nullptr : room.data, call);
}

REGISTER(conv_cuda) {
  return cuda<ConvArgs>("Conv", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(conv_gradient_cuda) {
  return cuda<ConvArgs>("ConvGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_conv
