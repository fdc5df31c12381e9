// GlobalNormClip for gradients on a GPU, and a CUDA kernel for ClipTensorByScaling. Meaning: see
// operators/optimizer/global_norm_clip.cc. The host does not wait for the norm: if it is not finite, gradients become
// zeros, so that no parameter is harmed, and the Error comes where the host waits next.
#include "operators/optimizer/global_norm_clip.h"

#include <mutex>
#include <set>

#include "gpu/loops/reduce.h"
#include "gpu/loops/scalar.h"
#include "stepnet/workspace.h"

namespace stepnet::gpu_global_norm_clip {
namespace {

constexpr int64_t kNoRange = -1;  // of a value that is wrong by itself

// A text that lives on, for faults.
const char* lasting(const std::string& text) {
  static auto& mutex = *new std::mutex;
  static auto& texts = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return texts.insert(text).first->c_str();
}

// The gradients' common norm and what they are multiplied by; sums are of squares, one for each.
struct Clipping {
  const double* sums = nullptr;
  size_t count = 0;
  double max_norm = 0;

  __host__ __device__ double norm() const {
    double all = 0;
    for (size_t i = 0; i < count; ++i) all += sums[i];
    return sqrt(all);
  }
};

template <class T>
void add_squares(const Call& call, const Tensor& gradient, double* sum) {
  const gpu::In<T> x = gpu::in_span<T>(gradient);
  gpu::reduce(
      call, {1, gradient.size(), 1}, 0.0,
      [=] __device__(size_t, size_t i, size_t) { return static_cast<double>(x[i]) * static_cast<double>(x[i]); },
      std::plus<double>(), [=] __device__(size_t, size_t, double all) { *sum = all; });
}

// state: the norm and the factor. `to` may be `from`.
template <class T>
void scale_into(const Call& call, const Tensor& from, Tensor& to, const double* state, const std::string& name) {
  const gpu::Bounds bounds = gpu::bounds(
      call, lasting(fmt::format("the number of an element of the gradient \"{}\" that is not finite", name)));
  const gpu::In<T> x = gpu::in_span<T>(from);
  const gpu::Out<T> y = gpu::out_span<T>(to);
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const T value = x[i];
    const bool finite = isfinite(state[0]);
    if (!finite && !isfinite(value)) bounds.report(static_cast<int64_t>(i), kNoRange);
    y[i] = finite ? static_cast<T>(state[1]) * value : T(0);
  });
}

// Of a norm that is not finite though each gradient is; what was noted before stays.
void report_overflow(const Call& call, const double* state) {
  const gpu::Bounds bounds = gpu::bounds(call, "the norm of the gradients, too large for a double,");
  gpu::each(call, 1, [=] __device__(size_t) {
    if (!isfinite(state[0])) bounds.report(INT64_MAX, kNoRange);
  });
}

void put_norm(const Call& call, Tensor& out, Device device, const double* state) {
  out.resize(DType::float32, Shape{}, device);
  const gpu::Out<float> norm = gpu::out_span<float>(out);
  gpu::each(call, 1, [=] __device__(size_t) { norm[0] = static_cast<float>(state[0]); });
  out.mark_written();
}

// The norm and the factor that follows from it, on the device.
void put_state(const Call& call, std::span<const Tensor* const> gradients, double max_norm, double* state,
               double* sums) {
  for (size_t i = 0; i < gradients.size(); ++i)
    gradients[i]->dtype() == DType::float64 ? add_squares<double>(call, *gradients[i], sums + i)
                                            : add_squares<float>(call, *gradients[i], sums + i);
  const Clipping clipping{sums, gradients.size(), max_norm};
  gpu::each(call, 1, [=] __device__(size_t) {
    const double norm = clipping.norm();
    state[0] = norm;
    state[1] = norm > clipping.max_norm ? clipping.max_norm / norm : 1;
  });
}

void clip(const NormClipArgs& args, BlobCall& blobs) {
  std::vector<const Tensor*> gradients;
  for (Blob* in : blobs.in) gradients.push_back(&std::as_const(*in).tensor());
  const Call call(gradients, {}, blobs.run);
  const Device device = gpu::place_of(call);
  Tensor scratch = gpu::workspace(call, DType::float64, {static_cast<int64_t>(gradients.size()) + 2});
  const auto state = reinterpret_cast<double*>(scratch.raw());
  put_state(call, gradients, static_cast<double>(args.max_norm), state, state + 2);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Tensor from = *gradients[i];
    Tensor& to = blobs.out[i]->tensor();
    to.resize(from.dtype(), from.shape(), device);
    const std::string& name = blobs.def.input(static_cast<int>(i));
    from.dtype() == DType::float64 ? scale_into<double>(call, from, to, state, name)
                                   : scale_into<float>(call, from, to, state, name);
    to.mark_written();
  }
  report_overflow(call, state);
  if (Blob* out = blobs.out.back()) put_norm(call, out->tensor(), device, state);
}

const bool placed = (norm_clip_on_device() = clip, true);

// y may be x. A negative threshold is noted, and clips nothing.
template <class T>
void scaling_clip(const ScalingClipArgs& args, gpu::In<T> x, const Tensor& val, gpu::Out<T> y, Call& call) {
  const gpu::Scalar value(val), more(call.has(2) ? call.in(2) : Tensor::scalar(1.0f));
  const gpu::Bounds bounds = gpu::bounds(call, "additional_threshold");
  const double threshold = args.threshold;
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const double limit = threshold * more.value(), v = value.value();
    if (!(limit >= 0)) bounds.report(static_cast<int64_t>(floor(more.value())), INT64_MAX);
    const T factor = limit >= 0 && v > limit ? static_cast<T>(limit / v) : T(1);
    y[i] = factor * x[i];
  });
}

REGISTER(clip_tensor_by_scaling_cuda) {
  return cuda<ScalingClipArgs>("ClipTensorByScaling", scaling_clip<float>, scaling_clip<double>);
}

}  // namespace
}  // namespace stepnet::gpu_global_norm_clip
