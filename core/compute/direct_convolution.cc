#include "core/compute/direct_convolution.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/compute/onednn_primitives.h"
#include "core/compute/product.h"
#include "core/compute/threads.h"
#include "core/tensor/dry_device.h"
#include "stepnet/error.h"
#include "stepnet/tensor.h"

namespace stepnet {
namespace {

using dnnl::memory;

enum class Pass { forward, data, filter };

// A convolution, or some samples or channels of a larger one: `x_step` and `y_step` elements from one sample to the
// next, `filter_step` from one filter to the next.
struct Key {
  Pass pass = Pass::forward;
  ConvolutionSizes sizes;
  int64_t x_step = 0, y_step = 0, filter_step = 0;
  bool bias = false, accumulate = false;
  auto operator<=>(const Key&) const = default;
};

struct Operands {
  const float *x = nullptr, *filter = nullptr, *bias = nullptr, *y = nullptr;
};

template <class Fn>
int64_t product_over(const ConvolutionSizes& s, Fn of_axis) {
  int64_t product = 1;
  for (const ConvolutionAxis& axis : s.axes) product *= of_axis(axis);
  return product;
}
int64_t inputs(const ConvolutionSizes& s) {
  return product_over(s, [](const auto& a) { return a.in; });
}
int64_t outputs(const ConvolutionSizes& s) {
  return product_over(s, [](const auto& a) { return a.out; });
}
int64_t places(const ConvolutionSizes& s) {
  return product_over(s, [](const auto& a) { return a.kernel; });
}

bool is_empty(const ConvolutionSizes& s) {
  return s.samples == 0 || s.groups == 0 || s.channels == 0 || s.filters == 0 || inputs(s) == 0 || outputs(s) == 0;
}

double flops(const ConvolutionSizes& s) {
  return 2.0 * static_cast<double>(s.samples * s.groups) * static_cast<double>(s.filters * s.channels * places(s)) *
         static_cast<double>(outputs(s));
}

// oneDNN counts elements of tensors and windows in int, bytes too.
bool may_be_counted(const ConvolutionSizes& s) {
  constexpr int64_t kMost = (1 << 29) - 1;
  for (const ConvolutionAxis& a : s.axes)
    if (std::max({a.in, a.out, a.stride, a.pad, (a.kernel - 1) * a.dilation + 1}) > kMost) return false;
  const auto elements = [](int64_t rows, int64_t columns, int64_t depth) {
    return static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(depth);
  };
  return elements(s.samples * s.groups, s.channels, inputs(s)) <= kMost &&
         elements(s.samples * s.groups, s.filters, outputs(s)) <= kMost &&
         elements(s.groups * s.filters, s.channels, places(s)) <= kMost;
}

// X itself is the columns of the products.
bool is_plain(const ConvolutionSizes& s) {
  return std::ranges::all_of(
      s.axes, [](const auto& a) { return a.kernel == 1 && a.stride == 1 && a.pad == 0 && a.in == a.out; });
}

// Whether a direct convolution is faster than products, as measured with one thread on an AMD EPYC with AVX-512, and
// with oneDNN and products kept to AVX2. Columns cost time for every element; where X itself is them, products are slow
// only if they have few. oneDNN computes channels in whole vectors, and its gradient of many filters is no faster than
// products.
bool is_worth_it(Pass pass, const ConvolutionSizes& s) {
  const int64_t columns = outputs(s);
  if (is_plain(s)) {
    const int64_t most = pass == Pass::forward ? 200 : pass == Pass::data ? 100 : 0;
    return columns <= most && std::min(s.channels, s.filters) >= 8;
  }
  if (s.groups > 1) return true;
  return pass == Pass::data ? s.channels >= 8 : pass == Pass::forward || s.filters < 256 || columns <= 64;
}

// Dimensions of a tensor of X's or Y's kind, and the elements from one of each to the next.
memory::desc data_layout(const ConvolutionSizes& s, int64_t channels, int64_t step, int64_t ConvolutionAxis::*size) {
  memory::dims dims = {s.samples, channels};
  for (size_t d = s.axes.size() - s.dims; d < s.axes.size(); ++d) dims.push_back(s.axes[d].*size);
  memory::dims strides(dims.size(), 1);
  for (size_t d = dims.size() - 1; d > 1; --d) strides[d - 1] = strides[d] * dims[d];
  strides[0] = step;
  return {dims, memory::data_type::f32, strides};
}

memory::desc filter_layout(const Key& key) {
  const ConvolutionSizes& s = key.sizes;
  memory::dims dims = {s.groups, s.filters, s.channels};
  for (size_t d = s.axes.size() - s.dims; d < s.axes.size(); ++d) dims.push_back(s.axes[d].kernel);
  memory::dims strides(dims.size(), 1);
  for (size_t d = dims.size() - 1; d > 2; --d) strides[d - 1] = strides[d] * dims[d];
  strides[1] = key.filter_step;
  strides[0] = s.filters * key.filter_step;
  if (s.groups == 1) {
    dims.erase(dims.begin());
    strides.erase(strides.begin());
  }
  return {dims, memory::data_type::f32, strides};
}

memory::desc any_layout(const memory::desc& plain) {
  return {plain.dims(), memory::data_type::f32, memory::format_tag::any};
}

constexpr size_t kLine = 64;
size_t in_lines(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// One of a primitive's operands: as the caller has it, and as the primitive reads or writes it.
struct Operand {
  memory::desc plain, used;
  int argument = 0;
  bool written = false;
  size_t place = 0;  // in the workspace, if it is moved
  dnnl::reorder::primitive_desc move = {};
  dnnl::reorder moving = {};
  bool moved() const { return static_cast<bool>(move); }
};

struct Described {
  dnnl::primitive_desc desc;
  Operand x, filter, y;
};

Described describe(const Key& key) {
  const ConvolutionSizes& s = key.sizes;
  const memory::desc x = data_layout(s, s.groups * s.channels, key.x_step, &ConvolutionAxis::in),
                     y = data_layout(s, s.groups * s.filters, key.y_step, &ConvolutionAxis::out),
                     filter = filter_layout(key);
  const memory::desc any_x = any_layout(x), any_y = any_layout(y), any_filter = any_layout(filter);
  memory::dims strides, dilations, front, behind;
  for (size_t d = s.axes.size() - s.dims; d < s.axes.size(); ++d) {
    const ConvolutionAxis& a = s.axes[d];
    strides.push_back(a.stride);
    dilations.push_back(a.dilation - 1);
    front.push_back(a.pad);
    // What the last window needs, which may be less than what X has there.
    behind.push_back((a.out - 1) * a.stride + (a.kernel - 1) * a.dilation + 1 - a.in - a.pad);
  }
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  using Forward = dnnl::convolution_forward;
  const memory::desc bias =
      key.bias ? memory::desc({s.groups * s.filters}, memory::data_type::f32, memory::dims{1}) : memory::desc();
  const Forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, kDirect, any_x, any_filter, bias, any_y, strides, dilations, front, behind},
      attributes, onednn::cpu());
  if (key.pass == Pass::forward)
    return {forward,
            {x, forward.src_desc(), DNNL_ARG_SRC},
            {filter, forward.weights_desc(), DNNL_ARG_WEIGHTS},
            {y, forward.dst_desc(), DNNL_ARG_DST, true}};
  if (key.pass == Pass::data) {
    const dnnl::convolution_backward_data::primitive_desc desc(
        {kDirect, any_x, any_filter, any_y, strides, dilations, front, behind}, attributes, onednn::cpu(), forward);
    return {desc,
            {x, desc.diff_src_desc(), DNNL_ARG_DIFF_SRC, true},
            {filter, desc.weights_desc(), DNNL_ARG_WEIGHTS},
            {y, desc.diff_dst_desc(), DNNL_ARG_DIFF_DST}};
  }
  const dnnl::convolution_backward_weights::primitive_desc desc(
      {kDirect, any_x, any_filter, any_y, strides, dilations, front, behind}, attributes, onednn::cpu(), forward);
  return {desc,
          {x, desc.src_desc(), DNNL_ARG_SRC},
          {filter, desc.diff_weights_desc(), DNNL_ARG_DIFF_WEIGHTS, true},
          {y, desc.diff_dst_desc(), DNNL_ARG_DIFF_DST}};
}

// oneDNN's other implementations are products of columns, or plain loops.
bool is_direct(const dnnl::primitive_desc& desc) {
  const std::string_view name = desc.impl_info_str();
  return name.starts_with("jit") || name.starts_with("brg");
}

// A primitive with the moves into its layouts and out of them.
class Convolution {
 public:
  explicit Convolution(const Key& key) {
    const onednn::Making making;
    try {
      parts_ = describe(key);
    } catch (const dnnl::error& e) {
      if (e.status != dnnl_unimplemented) throw;
      return;
    }
    direct_ = is_direct(parts_.desc);
    if (!direct_) return;
    for (Operand* o : {&parts_.x, &parts_.filter, &parts_.y}) plan_move(*o, key.accumulate);
    scratch_ = parts_.desc.query_md(dnnl::query::exec_arg_md, DNNL_ARG_SCRATCHPAD);
    scratch_place_ = bytes_;
    bytes_ += in_lines(scratch_.get_size());
    if (key.bias) bias_ = parts_.desc.query_md(dnnl::query::exec_arg_md, DNNL_ARG_BIAS);
  }

  bool is_direct_one() const { return direct_; }
  size_t bytes() const { return bytes_; }  // of workspace

  // Before a run, by the thread that asked for it.
  void make() {
    if (primitive_) return;
    const onednn::Making making;
    for (Operand* o : {&parts_.x, &parts_.filter, &parts_.y})
      if (o->moved()) o->moving = dnnl::reorder(o->move);
    primitive_ = dnnl::primitive(parts_.desc);
  }

  void run(const Operands& at, std::byte* workspace) const {
    memory bias, scratch(scratch_, onednn::cpu(), workspace + scratch_place_);
    Bound x(parts_.x, at.x, workspace), filter(parts_.filter, at.filter, workspace), y(parts_.y, at.y, workspace);
    std::array<dnnl_exec_arg_t, 5> arguments = {{{parts_.x.argument, x.used.get()},
                                                 {parts_.filter.argument, filter.used.get()},
                                                 {parts_.y.argument, y.used.get()},
                                                 {DNNL_ARG_SCRATCHPAD, scratch.get()},
                                                 {}}};
    if (at.bias) {
      bias = memory(bias_, onednn::cpu(), const_cast<float*>(at.bias));
      arguments[4] = {DNNL_ARG_BIAS, bias.get()};
    }
    for (const Bound* b : {&x, &filter, &y})
      if (!b->of.written) b->move();
    onednn::execute(primitive_, {arguments.data(), at.bias ? size_t{5} : size_t{4}});
    for (const Bound* b : {&x, &filter, &y})
      if (b->of.written) b->move();
  }

 private:
  // An operand and where it is. oneDNN's memory takes no pointer to const; it does not write what it only reads.
  struct Bound {
    Bound(const Operand& operand, const float* data, std::byte* workspace) : of(operand) {
      if (of.moved()) plain = memory(of.plain, onednn::cpu(), const_cast<float*>(data));
      used = memory(of.used, onednn::cpu(),
                    of.moved() ? static_cast<void*>(workspace + of.place) : const_cast<float*>(data));
    }
    void move() const {
      if (!of.moved()) return;
      const memory &from = of.written ? used : plain, &to = of.written ? plain : used;
      const std::array<dnnl_exec_arg_t, 2> arguments = {{{DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.get()}}};
      onednn::execute(of.moving, arguments);
    }
    const Operand& of;
    memory plain, used;
  };

  void plan_move(Operand& o, bool accumulate) {
    const bool adds = o.written && accumulate;
    if (o.plain == o.used && !adds) return;
    dnnl::primitive_attr attributes;
    if (adds) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
    const memory::desc &from = o.written ? o.used : o.plain, &to = o.written ? o.plain : o.used;
    o.move = dnnl::reorder::primitive_desc(onednn::cpu(), from, onednn::cpu(), to, attributes);
    o.place = bytes_;
    bytes_ += in_lines(o.used.get_size());
  }

  Described parts_;
  bool direct_ = false;
  memory::desc scratch_, bias_;
  size_t scratch_place_ = 0, bytes_ = 0;
  dnnl::primitive primitive_;
};

// The latest convolutions of a thread, which are kept for as long as those of core/compute/product.cc are. They are
// shared with the call that runs them, which may ask for more of them than are kept.
class Convolutions {
 public:
  std::shared_ptr<Convolution> get(const Key& key) {
    constexpr size_t kMost = 256;
    if (const auto found = latest_.find(key); found != latest_.end()) return found->second;
    auto node = before_.extract(key);
    if (latest_.size() >= kMost) {
      before_ = std::move(latest_);
      latest_.clear();
    }
    if (node) return latest_.insert(std::move(node)).position->second;
    return latest_.emplace(key, std::make_shared<Convolution>(key)).first->second;
  }

 private:
  std::map<Key, std::shared_ptr<Convolution>> latest_, before_;
};

struct Part {
  Key key;
  Operands at;
  std::shared_ptr<Convolution> convolution = nullptr;
  std::byte* workspace = nullptr;
};

// Samples from `first` on.
void take_samples(Part& p, int64_t first, int64_t count) {
  p.key.sizes.samples = count;
  p.at.x += first * p.key.x_step;
  p.at.y += first * p.key.y_step;
}

// What a convolution can be divided by beside samples: groups, else filters or for X's gradient channels.
int64_t& rows_of(Pass pass, ConvolutionSizes& s) {
  if (s.groups > 1) return s.groups;
  return pass == Pass::data ? s.channels : s.filters;
}

void take_rows(Part& p, int64_t first, int64_t count) {
  ConvolutionSizes& s = p.key.sizes;
  const int64_t of_x = s.channels * inputs(s), of_y = s.filters * outputs(s), of_filter = s.filters * p.key.filter_step;
  if (s.groups > 1) {
    p.at.x += first * of_x;
    p.at.y += first * of_y;
    p.at.filter += first * of_filter;
    if (p.at.bias) p.at.bias += first * s.filters;
  } else if (p.key.pass == Pass::data) {
    p.at.x += first * inputs(s);
    p.at.filter += first * places(s);
  } else {
    p.at.y += first * outputs(s);
    p.at.filter += first * p.key.filter_step;
    if (p.at.bias) p.at.bias += first;
  }
  rows_of(p.key.pass, s) = count;
}

std::vector<Part> divided(const Part& whole) {
  constexpr double kFlopsPerNanosecond = 100;
  constexpr int64_t kVector = 16;
  ConvolutionSizes s = whole.key.sizes;
  const int64_t rows = rows_of(whole.key.pass, s);
  const int64_t step = s.groups > 1 && std::min(s.channels, s.filters) >= kVector ? 1 : kVector;
  const int64_t most = parts_for(flops(s) / kFlopsPerNanosecond);
  const bool by_samples =
      whole.key.pass != Pass::filter && (s.samples >= 4 * most || s.samples % most == 0 || rows < 2 * step);
  const int64_t count = std::clamp<int64_t>(by_samples ? s.samples : rows / step, 1, most);
  std::vector<Part> parts(static_cast<size_t>(count), whole);
  const auto border = [&](int64_t i) {
    if (by_samples) return s.samples * i / count;
    return i == count ? rows : rows / step * i / count * step;
  };
  for (int64_t i = 0; i < count && count > 1; ++i)
    (by_samples ? take_samples : take_rows)(parts[static_cast<size_t>(i)], border(i), border(i + 1) - border(i));
  return parts;
}

// Returns false if oneDNN failed.
bool run_parts(std::vector<Part>& parts) {
  std::atomic<bool> failed{false};
  auto run = [&](int i) {
    const Part& p = parts[static_cast<size_t>(i)];
    try {
      p.convolution->run(p.at, p.workspace);
    } catch (const dnnl::error&) {
      failed = true;
    }
  };
  parallel_parts(static_cast<int>(parts.size()), std::ref(run));
  return !failed;
}

// Returns false, with nothing done, if one of the parts has no direct convolution.
bool prepare(std::vector<Part>& parts) {
  thread_local Convolutions known;
  for (Part& p : parts) {
    p.convolution = known.get(p.key);
    if (!p.convolution->is_direct_one()) return false;
  }
  return true;
}

Tensor workspace_for(std::vector<Part>& parts) {
  size_t bytes = 0;
  for (const Part& p : parts) bytes += p.convolution->bytes();
  if (bytes == 0) return {};
  const MemoryScope scope(MemoryCategory::workspace);
  Tensor all = Tensor::empty(DType::uint8, {static_cast<int64_t>(bytes)});
  if (all.is_dry()) return all;
  auto* at = static_cast<std::byte*>(all.raw());
  for (Part& p : parts) p.workspace = std::exchange(at, at + p.convolution->bytes());
  return all;
}

bool run(Pass pass, const ConvolutionSizes& s, const Operands& at, bool accumulate) {
  DryScope* const dry = DryScope::now();
  if (dry && dry->claims() != DeviceKind::cpu) return false;
  if (is_empty(s) || !may_be_counted(s) || !is_worth_it(pass, s)) return false;
  const Key key{.pass = pass,
                .sizes = s,
                .x_step = s.groups * s.channels * inputs(s),
                .y_step = s.groups * s.filters * outputs(s),
                .filter_step = s.channels * places(s),
                .bias = at.bias != nullptr,
                .accumulate = accumulate};
  try {
    std::vector<Part> parts = divided({.key = key, .at = at});
    if (!prepare(parts)) return false;
    const Tensor workspace = workspace_for(parts);
    if (dry) {
      dry->product_flops += dry->times * flops(s);
      return true;
    }
    for (const Part& p : parts) p.convolution->make();
    bool done = true;
    count_product(flops(s), [&] { done = run_parts(parts); });
    if (done) return true;
  } catch (const dnnl::error&) {  // Error below
  }
  fail("a convolution of {} samples with {} filters failed in oneDNN", s.samples, s.groups * s.filters);
}

}  // namespace

bool convolve(const ConvolutionSizes& sizes, const float* x, const float* filter, const float* bias, float* y) {
  return run(Pass::forward, sizes, {x, filter, bias, y}, false);
}

bool convolve_for_data(const ConvolutionSizes& sizes, const float* filter, const float* dy, float* dx,
                       bool accumulate) {
  return run(Pass::data, sizes, {dx, filter, nullptr, dy}, accumulate);
}

bool convolve_for_filter(const ConvolutionSizes& sizes, const float* x, const float* dy, float* dfilter,
                         bool accumulate) {
  return run(Pass::filter, sizes, {x, dfilter, nullptr, dy}, accumulate);
}

}  // namespace stepnet
