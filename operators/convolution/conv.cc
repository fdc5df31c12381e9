// Conv: Y[n, m, o] = bias[m] + sum over channels c of m's group and elements k of a window of
//   filter[m, c, k] X[n, c, o * stride - pad + k * dilation], where X is 0 outside of itself,
// with o and k along one to three dimensions. It is a product for each sample, of the filters and of the columns, which
// are X's elements as the windows cover them; the convolution of 1 x 1 elements has X itself for columns. Of float32 it
// is a direct convolution of core/compute/direct_convolution.h where that is faster.
//
// dfilter = the sum over samples of dY columns^T, dX = filter^T dY, added up where windows overlap, dbias = the sum of
// dY over samples and places. Each reads only the values in its formula. All are linear in dY and in filter or X, so
// their derivatives are convolutions and these gradients again.
#include "operators/convolution/conv.h"

#include "core/compute/direct_convolution.h"
#include "core/compute/threads.h"
#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "core/tensor/dry_device.h"
#include "stepnet/device.h"
#include "stepnet/matmul.h"

namespace stepnet::cpu_conv {
namespace {

std::optional<ConvSizes> sizes_of(const ConvArgs& a, const ShapeCall& c) {
  if (!c.known(0) || !c.known(1)) return std::nullopt;
  return stepnet::sizes_of(a, c.shape(0), c.shape(1));
}

ConvSizes sizes_of(const ConvArgs& a, const Call& c) { return stepnet::sizes_of(a, c.in(0).shape(), c.in(1).shape()); }

void infer(const ConvArgs& a, ShapeCall& c) {
  const std::optional<ConvSizes> s = sizes_of(a, c);
  if (!s) return;
  const int64_t filters = c.shape(1)[0];
  if (c.known(2))
    require(c.shape(2) == Shape{filters}, "bias is {}, but filter {} gives {} channels, so bias must be [{}]",
            c.shape(2), c.shape(1), filters, filters);
  c.set(0, c.dtype(0), windows_shape(s->windows, c.shape(0), filters));
}

void infer_gradient(const ConvArgs& a, ShapeCall& c) {
  const std::optional<ConvSizes> s = sizes_of(a, c);
  if (!s) return;
  const int64_t filters = c.shape(1)[0];
  const Shape y = windows_shape(s->windows, c.shape(0), filters);
  if (c.known(2))
    require(c.shape(2) == y, "dY is {}, but X {} and filter {} give an output of {}", c.shape(2), c.shape(0),
            c.shape(1), y);
  c.set_like(0, 1);
  c.set(1, c.dtype(0), Shape{filters});
  c.set_like(2, 0);
}

// Memory for the columns of one sample and group, for the time of a run; none where X itself is them.
template <class T>
Tensor room_for_columns(const ConvSizes& s) {
  if (s.windows.plain() || s.samples == 0) return {};
  const MemoryScope scope(MemoryCategory::workspace);
  return Tensor::empty(dtype_of<T>(), {s.columns_size()});
}

constexpr double kNanosecondsPerElement = 0.5;

// fn(channel) for each channel of a group, by several threads.
template <class Fn>
void each_channel(const ConvSizes& s, Fn fn) {
  const auto range = [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) fn(c);
  };
  parallel_for(s.channels, kNanosecondsPerElement * static_cast<double>(s.windows.places * s.windows.outputs), range);
}

template <class T>
void to_columns(const ConvSizes& s, const T* x, T* columns) {
  const WindowAxis& last = s.windows.axis[kWindowDims - 1];
  each_channel(s, [&](int64_t channel) {
    const T* from = x + channel * s.windows.inputs;
    T* all = columns + channel * s.windows.places * s.windows.outputs;
    each_column_line(s.windows, [&](const ColumnLine& line) {
      T* to = all + line.column;
      std::fill(to, to + line.begin, T(0));
      const T* source = from + line.x;
      if (last.stride == 1)
        std::copy(source, source + (line.end - line.begin), to + line.begin);
      else
        for (int64_t o = line.begin; o < line.end; ++o) to[o] = source[(o - line.begin) * last.stride];
      std::fill(to + line.end, to + last.out, T(0));
    });
  });
}

// Adds what stands in the columns to the elements of X that it came from.
template <class T>
void add_columns(const ConvSizes& s, const T* columns, T* x) {
  const WindowAxis& last = s.windows.axis[kWindowDims - 1];
  each_channel(s, [&](int64_t channel) {
    T* to = x + channel * s.windows.inputs;
    const T* all = columns + channel * s.windows.places * s.windows.outputs;
    each_column_line(s.windows, [&](const ColumnLine& line) {
      const T* from = all + line.column;
      T* target = to + line.x;
      for (int64_t o = line.begin; o < line.end; ++o) target[(o - line.begin) * last.stride] += from[o];
    });
  });
}

// One sample and group.
template <class T>
void product(const ConvSizes& s, const T* filter, const T* columns, T* y, bool accumulate) {
  matmul(false, false, s.filters, s.windows.outputs, s.depth, filter, columns, y, accumulate);
}
template <class T>
void filter_product(const ConvSizes& s, const T* dy, const T* columns, T* dfilter, bool accumulate) {
  matmul(false, true, s.filters, s.depth, s.windows.outputs, dy, columns, dfilter, accumulate);
}
template <class T>
void input_product(const ConvSizes& s, const T* filter, const T* dy, T* columns, bool accumulate) {
  matmul(true, false, s.depth, s.windows.outputs, s.filters, filter, dy, columns, accumulate);
}

ConvolutionSizes direct_sizes(const ConvSizes& s, int dims) {
  ConvolutionSizes sizes{
      .samples = s.samples, .groups = s.groups, .channels = s.channels, .filters = s.filters, .dims = dims};
  std::ranges::transform(s.windows.axis, sizes.axes.begin(), [](const WindowAxis& a) {
    return ConvolutionAxis{a.in, a.out, a.kernel, a.stride, a.dilation, a.pad};
  });
  return sizes;
}

// These return false, with nothing done, where products serve; see core/compute/direct_convolution.h.
template <class T>
bool direct_forward(const ConvSizes& s, int dims, In<T> x, In<T> filter, In<T> bias, Out<T> y) {
  if constexpr (std::is_same_v<T, float>)
    return convolve(direct_sizes(s, dims), x.data(), filter.data(), bias.empty() ? nullptr : bias.data(), y.data());
  return false;
}
template <class T>
bool direct_filter_gradient(const ConvSizes& s, int dims, In<T> x, In<T> dy, Out<T> dfilter, bool accumulate) {
  if constexpr (std::is_same_v<T, float>)
    return convolve_for_filter(direct_sizes(s, dims), x.data(), dy.data(), dfilter.data(), accumulate);
  return false;
}
template <class T>
bool direct_input_gradient(const ConvSizes& s, int dims, In<T> filter, In<T> dy, Out<T> dx, bool accumulate) {
  if constexpr (std::is_same_v<T, float>)
    return convolve_for_data(direct_sizes(s, dims), filter.data(), dy.data(), dx.data(), accumulate);
  return false;
}

int dims_of(const Call& call) { return call.in(0).shape().rank() - 2; }

// fn(sample and group, group), in order.
template <class Fn>
void each_part(const ConvSizes& s, Fn fn) {
  for (int64_t n = 0; n < s.samples; ++n)
    for (int64_t g = 0; g < s.groups; ++g) fn(n * s.groups + g, g);
}

template <class T>
void forward(const ConvArgs& a, In<T> x, In<T> filter, In<T> bias, Out<T> y, Call& call) {
  const ConvSizes s = sizes_of(a, call);
  if (direct_forward(s, dims_of(call), x, filter, bias, y)) return;
  Tensor room = room_for_columns<T>(s);
  if (!bias.empty()) {
    T* to = y.data();
    for (int64_t n = 0; n < s.samples; ++n)
      for (const T b : bias) to = std::fill_n(to, s.windows.outputs, b);
  }
  each_part(s, [&](int64_t part, int64_t g) {
    const T* columns = x.data() + part * s.x_size();
    if (room.defined()) {
      to_columns(s, columns, room.data<T>());
      columns = room.data<T>();
    }
    product(s, filter.data() + g * s.w_size(), columns, y.data() + part * s.y_size(), !bias.empty());
  });
}

template <class T>
void bias_gradient(const ConvSizes& s, In<T> dy, Out<T> dbias, bool accumulate) {
  if (!accumulate) std::ranges::fill(dbias, T(0));
  const auto outputs = static_cast<size_t>(s.windows.outputs);
  In<T> rest = dy;
  for (int64_t n = 0; n < s.samples; ++n)
    for (T& sum : dbias) {
      sum += static_cast<T>(vec_sum(rest.first(outputs)));
      rest = rest.subspan(outputs);
    }
}

template <class T>
void filter_gradient(const ConvSizes& s, int dims, In<T> x, In<T> dy, Out<T> dfilter, bool accumulate) {
  if (direct_filter_gradient(s, dims, x, dy, dfilter, accumulate)) return;
  Tensor room = room_for_columns<T>(s);
  if (s.samples == 0 && !accumulate) std::ranges::fill(dfilter, T(0));
  each_part(s, [&](int64_t part, int64_t g) {
    const T* columns = x.data() + part * s.x_size();
    if (room.defined()) {
      to_columns(s, columns, room.data<T>());
      columns = room.data<T>();
    }
    filter_product(s, dy.data() + part * s.y_size(), columns, dfilter.data() + g * s.w_size(),
                   accumulate || part >= s.groups);
  });
}

template <class T>
void input_gradient(const ConvSizes& s, int dims, In<T> filter, In<T> dy, Out<T> dx, bool accumulate) {
  if (direct_input_gradient(s, dims, filter, dy, dx, accumulate)) return;
  Tensor room = room_for_columns<T>(s);
  if (room.defined() && !accumulate) std::ranges::fill(dx, T(0));
  each_part(s, [&](int64_t part, int64_t g) {
    T* to = dx.data() + part * s.x_size();
    T* columns = room.defined() ? room.data<T>() : to;
    input_product(s, filter.data() + g * s.w_size(), dy.data() + part * s.y_size(), columns,
                  accumulate && !room.defined());
    if (room.defined()) add_columns(s, columns, to);
  });
}

template <class T>
void gradient(const ConvArgs& a, In<T> x, In<T> filter, In<T> dy, Out<T> dfilter, Out<T> dbias, Out<T> dx, Call& call) {
  const ConvSizes s = sizes_of(a, call);
  if (call.wants(1)) bias_gradient(s, dy, dbias, call.accumulates(1));
  if (call.wants(0)) filter_gradient(s, dims_of(call), x, dy, dfilter, call.accumulates(0));
  if (call.wants(2)) input_gradient(s, dims_of(call), filter, dy, dx, call.accumulates(2));
}

// What the kernels take beside their outputs. fn(sample and group) is called for a few of those that are alike.
template <class Fn>
void each_part_dry(const ConvSizes& s, Fn fn) {
  for (StepsAlike part(s.samples * s.groups, 1); part.more(); part.next()) fn(*part);
}

template <class T>
void forward_workspace(const ConvArgs& a, In<T> x, In<T> filter, In<T> bias, Out<T> y, Call& call) {
  const ConvSizes s = sizes_of(a, call);
  if (direct_forward(s, dims_of(call), x, filter, bias, y)) return;
  const Tensor room = room_for_columns<T>(s);
  each_part_dry(s, [&](int64_t) { product(s, filter.data(), filter.data(), y.data(), call.has(2)); });
}

template <class T>
void filter_gradient_workspace(const ConvSizes& s, int dims, In<T> x, In<T> dy, Out<T> dfilter, bool accumulate) {
  if (direct_filter_gradient(s, dims, x, dy, dfilter, accumulate)) return;
  const Tensor room = room_for_columns<T>(s);
  each_part(s, [&](int64_t part, int64_t) {
    filter_product(s, dy.data(), dy.data(), dfilter.data(), accumulate || part >= s.groups);
  });
}

template <class T>
void input_gradient_workspace(const ConvSizes& s, int dims, In<T> filter, In<T> dy, Out<T> dx, bool accumulate) {
  if (direct_input_gradient(s, dims, filter, dy, dx, accumulate)) return;
  const Tensor room = room_for_columns<T>(s);
  each_part(
      s, [&](int64_t, int64_t) { input_product(s, dy.data(), dy.data(), dx.data(), accumulate && !room.defined()); });
}

template <class T>
void gradient_workspace(const ConvArgs& a, In<T> x, In<T> filter, In<T> dy, Out<T> dfilter, Out<T>, Out<T> dx,
                        Call& call) {
  const ConvSizes s = sizes_of(a, call);
  if (call.wants(0)) filter_gradient_workspace(s, dims_of(call), x, dy, dfilter, call.accumulates(0));
  if (call.wants(2)) input_gradient_workspace(s, dims_of(call), filter, dy, dx, call.accumulates(2));
}

double flops(const ConvArgs& a, const ShapeCall& c) {
  const std::optional<ConvSizes> s = sizes_of(a, c);
  return s ? s->flops() + (c.has(2) ? output_size(c, 0) : 0) : 0;
}

double gradient_flops(const ConvArgs& a, const ShapeCall& c) {
  const std::optional<ConvSizes> s = sizes_of(a, c);
  return s ? s->flops() * (int{c.wants(0)} + int{c.wants(2)}) + (c.wants(1) ? input_size(c, 2) : 0) : 0;
}

std::vector<int64_t> gpu_workspace(const ConvArgs& a, const Call& c) {
  const ConvSizes s = sizes_of(a, c);
  if (s.windows.plain()) return {};
  return {static_cast<int64_t>(dtype_size(c.in(0).dtype())) * s.samples * s.groups * s.columns_size()};
}

std::vector<int64_t> gradient_gpu_workspace(const ConvArgs& a, const Call& c) {
  return c.wants(0) || c.wants(2) ? gpu_workspace(a, c) : std::vector<int64_t>{};
}

std::vector<Gradient> derivatives(Formula& f) {
  const std::vector<Value> d = f.ops("ConvGradient", {f.x("X"), f.x("filter"), f.dy("Y")}, f.forward_args(),
                                     {f.wants("filter"), f.wants("bias"), f.wants("X")});
  return {d[2], d[0], d[1]};
}

std::vector<Gradient> second_derivatives(Formula& f) {
  const Value dfilter = f.dy("dfilter"), dbias = f.dy("dbias"), dx = f.dy("dX");
  const auto conv = [&](Value x, Value filter, Value bias) {
    return f.op("Conv", {x, filter, bias}, f.forward_args());
  };
  const auto gradient = [&](Value x, Value filter, const std::vector<bool>& wanted) {
    return f.ops("ConvGradient", {x, filter, f.x("dY")}, f.forward_args(), wanted);
  };
  Gradient x, filter, dy;
  if (f.wants("X") && dfilter.defined()) x = gradient(f.x("X"), dfilter, {false, false, true})[2];
  if (f.wants("filter") && dx.defined()) filter = gradient(dx, f.x("filter"), {true, false, false})[0];
  if (f.wants("dY")) {
    std::vector<Value> terms;
    if (dx.defined()) terms.push_back(conv(dx, f.x("filter"), {}));
    if (dfilter.defined()) terms.push_back(conv(f.x("X"), dfilter, dbias));
    if (dbias.defined() && !dfilter.defined())
      terms.push_back(
          f.op("SumReduceLikeGradient", {f.x("dY"), dbias}, {make_arg("broadcast", true), make_arg("axis", 1)}));
    dy = terms.size() == 1 ? terms[0] : f.op("Sum", terms);
  }
  return {x, filter, dy};
}

void declare(OpBuilder<ConvArgs>& b) {
  using One = std::optional<int64_t> ConvArgs::*;
  add_window_args(b)
      .arg("dilation", static_cast<One>(&WindowArgs::dilation), {},
           "elements of X from one of a window to the next, 1 if left out")
      .arg("dilation_h", static_cast<One>(&WindowArgs::dilation_h), {}, "see kernel_h")
      .arg("dilation_w", static_cast<One>(&WindowArgs::dilation_w), {}, "see kernel_w")
      .arg("dilations", static_cast<std::vector<int64_t> ConvArgs::*>(&WindowArgs::dilations), {}, "see kernels")
      .arg("group", &ConvArgs::group, int64_t{1},
           "channels and filters are parted into so many groups, each with filters of its own", at_least(1));
}

REGISTER(conv) {
  auto b = op<ConvArgs>("Conv");
  declare(b);
  return b.doc("Convolution over one to three dimensions, with strides, dilation, padding and groups.")
      .input("X", "[N, C, ...]")
      .input("filter", "[M, C / group, ...], with the windows' sizes behind")
      .input("bias", "[M]")
      .optional()
      .output("Y", "[N, M, ...]: along each dimension (size + padding - dilation (kernel - 1) - 1) / stride + 1")
      .shape(infer)
      .flops(flops)
      .precision(Precision::half)
      .cpu(forward<float>, forward<double>)
      .workspace(forward_workspace<float>, forward_workspace<double>)
      .gpu_workspace(gpu_workspace)
      .example({"X=2,2,4,3", "filter=3,2,3,2", "bias=3"}, {"kernels=3,2", "pad=1", "stride=2"})
      .example({"X=1,4,5", "filter=2,2,2"}, {"kernel=2", "group=2", "dilation=2", "pads=2,0"})
      .example({"X=1,2,3,2,2", "filter=2,2,2,1,1", "bias=2"}, {"kernels=2,1,1"})
      .example({"X=2,3,2,2", "filter=2,3,1,1", "bias=2"}, {"kernel=1"})
      .example({"X=0,1,2,2", "filter=1,1,2,2", "bias=1"}, {"kernel=2"})
      .derivatives({"X", "filter", "bias"}, derivatives);
}

REGISTER(conv_gradient) {
  auto b = op<ConvArgs>("ConvGradient");
  declare(b);
  return b.doc("Gradients of Conv. Outputs that are not wanted are left out or \"\", and cost nothing.")
      .refuses("no_bias", 0, "would leave the output dbias out; give it the name \"\"")
      .input("X", "Conv's X; its values are read for dfilter only")
      .input("filter", "Conv's filter; its values are read for dX only")
      .input("dY", "gradient of Conv's Y")
      .output("dfilter", "like filter")
      .optional()
      .uses({"X", "dY"})
      .accumulates()
      .output("dbias", "[M]")
      .optional()
      .uses({"dY"})
      .accumulates()
      .output("dX", "like X")
      .optional()
      .uses({"filter", "dY"})
      .accumulates()
      .shape(infer_gradient)
      .flops(gradient_flops)
      .cpu(gradient<float>, gradient<double>)
      .workspace(gradient_workspace<float>, gradient_workspace<double>)
      .gpu_workspace(gradient_gpu_workspace)
      .derivatives({"X", "filter", "dY"}, second_derivatives);
}

}  // namespace
}  // namespace stepnet::cpu_conv
