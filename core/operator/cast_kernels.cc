#include "core/operator/cast_kernels.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "core/operator/half_pieces.h"

namespace stepnet {
namespace {

using KernelFunction = std::function<void(const void* args, Call&)>;

// Empty if the device has none.
const KernelFunction& cast_kernel(DeviceKind device) {
  const auto find = [](DeviceKind kind) {
    const std::vector<Kernel>& kernels = op_with_role(Role::cast).kernels;
    const auto found = std::ranges::find(kernels, kind, &Kernel::device);
    return found == kernels.end() ? KernelFunction() : found->run;
  };
  static const std::array<KernelFunction, 2> all = {find(DeviceKind::cpu), find(DeviceKind::cuda)};
  return all.at(static_cast<size_t>(device));
}

const Kernel* float_kernel(const OpSpec& spec, DeviceKind device) {
  const auto found = std::ranges::find_if(
      spec.kernels, [&](const Kernel& k) { return k.device == device && k.dtype == DType::float32; });
  return found == spec.kernels.end() ? nullptr : &*found;
}

// The kernels on casts, made when they are first asked for.
struct Made {
  std::mutex mutex;
  std::map<std::pair<const OpSpec*, DeviceKind>, std::unique_ptr<const Kernel>> kernels;
};
Made& made() {
  static Made all;
  return all;
}

bool overlay(const Tensor& a, const Tensor& b) {
  return a.shares_storage(b) && a.offset() == b.offset() && a.size() == b.size();
}

}  // namespace

void cast_elements(const Tensor& from, Tensor& to, RunContext& run) {
  if (from.size() == 0 || to.is_dry() || from.is_dry()) return;
  const KernelFunction& cast = cast_kernel(to.device().kind);
  require(cast != nullptr, "there are no casts on {}", to.device());
  const Tensor* in[] = {&from};
  Tensor* out[] = {&to};
  Call call(in, out, run);
  cast(nullptr, call);
}

bool has_kernel_for(const OpSpec& spec, DType dtype) {
  return std::ranges::any_of(spec.kernels, [&](const Kernel& k) {
    return k.dtype == dtype || k.dtype == DType::undefined || (is_half(dtype) && k.dtype == DType::float32);
  });
}

bool is_one_of(const std::vector<DType>& types, DType dtype) {
  const auto has = [&](DType t) { return std::ranges::find(types, t) != types.end(); };
  return has(dtype) || (is_half(dtype) && has(DType::float32));
}

const Kernel* kernel_on_casts(const OpSpec& spec, DeviceKind device) {
  const std::lock_guard lock(made().mutex);
  const auto known = made().kernels.find({&spec, device});
  if (known != made().kernels.end()) return known->second.get();
  const Kernel* base = float_kernel(spec, device);
  if (!base) return nullptr;
  auto kernel = std::make_unique<Kernel>();
  kernel->device = device;
  kernel->dtype = DType::float32;  // whose workspace a dry run counts
  kernel->run = [&spec, base](const void* args, Call& half) {
    if (base->device == DeviceKind::cpu && runs_in_pieces(spec, args, half))
      return run_in_pieces(spec, *base, args, half);
    FloatCall floats(spec, half);
    base->run(args, floats.call());
    floats.cast_results();
  };
  return (made().kernels[{&spec, device}] = std::move(kernel)).get();
}

bool needs_casts(const OpSpec& spec, std::span<const TensorType> in) {
  for (size_t i = 0; i < in.size(); ++i) {
    const std::vector<DType>& types = spec.input_spec(static_cast<int>(i))->types;
    if (!types.empty() && is_half(in[i].dtype) && std::ranges::find(types, in[i].dtype) == types.end()) return true;
  }
  return false;
}

bool is_on_casts(const Kernel& kernel) {
  const std::lock_guard lock(made().mutex);
  return std::ranges::any_of(made().kernels, [&](const auto& known) { return known.second.get() == &kernel; });
}

FloatCall::FloatCall(const OpSpec& spec, const Call& half)
    : half_(half),
      in_(half.inputs()),
      out_(half.outputs()),
      inputs_(in_.size(), nullptr),
      outputs_(out_.size(), nullptr) {
  add_inputs(spec);
  for (int o = 0; o < half.outputs(); ++o)
    if (half.wants(o)) add_output(spec, o);
  floats_.emplace(inputs_, outputs_, half.run);
  floats_->random_key = half.random_key;
  floats_->accumulate_mask = half.accumulate_mask;
}

Tensor FloatCall::cast(const Tensor& from) {
  Tensor to = Tensor::empty(DType::float32, from.shape(), from.device());
  cast_elements(from, to, half_.run);
  return to;
}

// A tensor that is two inputs is cast once. One of which only the shape is read has no bytes.
void FloatCall::add_inputs(const OpSpec& spec) {
  for (int i = 0; i < half_.inputs(); ++i) {
    if (!half_.has(i)) continue;
    const Tensor& from = half_.in(i);
    inputs_[i] = &from;
    if (!is_half(from.dtype())) continue;
    int same = 0;
    while (!half_.has(same) || &half_.in(same) != &from) ++same;
    if (spec.input_spec(i)->shape_only || !from.storage())
      in_[i].set_type(DType::float32, from.shape());
    else
      in_[i] = same < i && in_[same].storage() ? in_[same] : cast(from);
    inputs_[i] = &in_[i];
  }
}

// An output that is not of a half type yet gets its type from the kernel, and then becomes one; but if it is declared
// to be of other types, or any, it stays what the kernel makes it.
void FloatCall::add_output(const OpSpec& spec, int o) {
  Tensor& to = half_.out(o);
  outputs_[o] = &to;
  const bool untyped = !to.defined() && spec.output_spec(o)->generic();
  if (!is_half(to.dtype()) && !untyped) return;
  outputs_[o] = &out_[o];
  if (untyped) return;
  for (int i = 0; i < half_.inputs(); ++i) {
    if (!half_.has(i) || !in_[i].storage() || !overlay(half_.in(i), to)) continue;
    out_[o] = in_[i];
    out_[o].set_view(to.shape(), in_[i].offset());
    return;
  }
  if (half_.accumulates(o))
    out_[o] = cast(to);
  else
    out_[o] = Tensor::empty(DType::float32, to.shape(), to.device());
}

void FloatCall::cast_results() {
  DType half = DType::undefined;
  for (int i = 0; i < half_.inputs(); ++i)
    if (half_.has(i) && is_half(half_.in(i).dtype())) half = half_.in(i).dtype();
  for (size_t o = 0; o < out_.size(); ++o) {
    if (outputs_[o] != &out_[o]) continue;
    Tensor& to = half_.out(static_cast<int>(o));
    if (out_[o].dtype() != DType::float32) {
      to = out_[o];
      continue;
    }
    to.resize(is_half(to.dtype()) ? to.dtype() : half, out_[o].shape(), out_[o].device());
    cast_elements(out_[o], to, half_.run);
  }
}

}  // namespace stepnet
