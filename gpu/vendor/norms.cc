// BatchNorm and Softmax by cuDNN (gpu/loops/norms.h).
//
// Channels whose elements are neighbours are cuDNN's spatial mode; channels that are neighbours themselves, as of a
// matrix or of NHWC, are its mode per activation, whose tensors are dense, too.
#include "gpu/loops/norms.h"

#include "gpu/vendor/cudnn.h"
#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

// What cuDNN has no kernel for is no mistake.
template <class Fn, class... A>
bool taken(Fn* function, const char* name, A... args) {
  const cudnnStatus_t status = function(args...);
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) return false;
  check(status, name);
  return true;
}

// Factors are of the elements' type.
struct Factor {
  float single;
  double wide;
  explicit Factor(double value) : single(static_cast<float>(value)), wide(value) {}
  const void* of(DType dtype) const {
    return dtype == DType::float64 ? static_cast<const void*>(&wide) : static_cast<const void*>(&single);
  }
};
const Factor kOne(1), kZero(0);

struct NormDescriptors {
  cudnnBatchNormMode_t mode;
  TensorDescriptor x, channel;
  explicit NormDescriptors(const VendorChannels& c)
      : mode(c.inner == 1 ? CUDNN_BATCHNORM_PER_ACTIVATION : CUDNN_BATCHNORM_SPATIAL),
        x(tensor_descriptor(c.dtype,
                            {static_cast<int>(c.outer), static_cast<int>(c.count), static_cast<int>(c.inner), 1})),
        channel(empty_tensor_descriptor()) {
    static const auto derive = cudnn_function<decltype(cudnnDeriveBNTensorDescriptor)>("cudnnDeriveBNTensorDescriptor");
    cudnn_call(derive, "cudnnDeriveBNTensorDescriptor", channel.get(), x.get(), mode);
  }
};

constexpr auto kPlain = CUDNN_BATCHNORM_OPS_BN;  // nothing is added, no activation

size_t reserve_bytes(const CudnnScope& scope, const NormDescriptors& d) {
  static const auto get = cudnn_function<decltype(cudnnGetBatchNormalizationTrainingExReserveSpaceSize)>(
      "cudnnGetBatchNormalizationTrainingExReserveSpaceSize");
  size_t bytes = 0;
  const bool known = taken(get, "cudnnGetBatchNormalizationTrainingExReserveSpaceSize", scope.handle(), d.mode, kPlain,
                           nullptr, d.x.get(), &bytes);
  return known ? bytes : SIZE_MAX;
}

cudnnSoftmaxAlgorithm_t algorithm(const VendorRows& rows) {
  return rows.log ? CUDNN_SOFTMAX_LOG : CUDNN_SOFTMAX_ACCURATE;
}

TensorDescriptor row_descriptor(const VendorRows& rows) {
  return tensor_descriptor(rows.dtype, {static_cast<int>(rows.count), static_cast<int>(rows.size), 1, 1});
}

VendorNorms load() {
  try {
    cudnn_library();
  } catch (const Error&) {
    return {};
  }
  return {true, CUDNN_BN_MIN_EPSILON, INT32_MAX};
}

}  // namespace

const VendorNorms& vendor_norms() {
  static const VendorNorms loaded = load();
  return loaded;
}

std::optional<size_t> vendor_norm_workspace(int device, const VendorChannels& c, bool backward) {
  static const auto of_forward = cudnn_function<decltype(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize)>(
      "cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize");
  static const auto of_backward = cudnn_function<decltype(cudnnGetBatchNormalizationBackwardExWorkspaceSize)>(
      "cudnnGetBatchNormalizationBackwardExWorkspaceSize");
  const CudnnScope scope(device);
  const NormDescriptors d(c);
  if (reserve_bytes(scope, d) > 0) return std::nullopt;
  size_t bytes = 0;
  const bool known =
      backward ? taken(of_backward, "cudnnGetBatchNormalizationBackwardExWorkspaceSize", scope.handle(), d.mode, kPlain,
                       d.x.get(), nullptr, d.x.get(), nullptr, d.x.get(), d.channel.get(), nullptr, &bytes)
               : taken(of_forward, "cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize", scope.handle(), d.mode,
                       kPlain, d.x.get(), nullptr, d.x.get(), d.channel.get(), nullptr, &bytes);
  return known ? std::optional(bytes) : std::nullopt;
}

// The averaging factor is 1: what comes out are the statistics of this batch.
bool run_vendor_norm(int device, const VendorChannels& c, const void* x, const void* scale, const void* bias, void* y,
                     const VendorStatistics& out, void* workspace, size_t bytes) {
  static const auto run =
      cudnn_function<decltype(cudnnBatchNormalizationForwardTrainingEx)>("cudnnBatchNormalizationForwardTrainingEx");
  const CudnnScope scope(device);
  const NormDescriptors d(c);
  return taken(run, "cudnnBatchNormalizationForwardTrainingEx", scope.handle(), d.mode, kPlain, kOne.of(c.dtype),
               kZero.of(c.dtype), d.x.get(), x, nullptr, nullptr, d.x.get(), y, d.channel.get(), scale, bias, 1.0,
               out.mean, out.variance, c.epsilon, out.saved_mean, out.saved_inverse, nullptr, workspace, bytes, nullptr,
               size_t{0});
}

bool run_vendor_norm_evaluation(int device, const VendorChannels& c, const void* x, const void* scale, const void* bias,
                                const void* mean, const void* variance, void* y) {
  static const auto run =
      cudnn_function<decltype(cudnnBatchNormalizationForwardInference)>("cudnnBatchNormalizationForwardInference");
  const CudnnScope scope(device);
  const NormDescriptors d(c);
  return taken(run, "cudnnBatchNormalizationForwardInference", scope.handle(), d.mode, kOne.of(c.dtype),
               kZero.of(c.dtype), d.x.get(), x, d.x.get(), y, d.channel.get(), scale, bias, mean, variance, c.epsilon);
}

bool run_vendor_norm_backward(int device, const VendorChannels& c, const void* x, const void* scale, const void* dy,
                              const void* saved_mean, const void* saved_inverse, const VendorNormGradients& out,
                              void* workspace, size_t bytes) {
  static const auto run =
      cudnn_function<decltype(cudnnBatchNormalizationBackwardEx)>("cudnnBatchNormalizationBackwardEx");
  const CudnnScope scope(device);
  const NormDescriptors d(c);
  return taken(run, "cudnnBatchNormalizationBackwardEx", scope.handle(), d.mode, kPlain, kOne.of(c.dtype),
               kZero.of(c.dtype), kOne.of(c.dtype), kZero.of(c.dtype), d.x.get(), x, nullptr, nullptr, d.x.get(), dy,
               nullptr, nullptr, d.x.get(), out.dx, d.channel.get(), scale, nullptr, out.dscale, out.dbias, c.epsilon,
               saved_mean, saved_inverse, nullptr, workspace, bytes, nullptr, size_t{0});
}

bool run_vendor_softmax(int device, const VendorRows& rows, const void* x, void* y) {
  static const auto run = cudnn_function<decltype(cudnnSoftmaxForward)>("cudnnSoftmaxForward");
  const CudnnScope scope(device);
  const TensorDescriptor d = row_descriptor(rows);
  return taken(run, "cudnnSoftmaxForward", scope.handle(), algorithm(rows), CUDNN_SOFTMAX_MODE_INSTANCE,
               kOne.of(rows.dtype), d.get(), x, kZero.of(rows.dtype), d.get(), y);
}

bool run_vendor_softmax_backward(int device, const VendorRows& rows, const void* y, const void* dy, void* dx) {
  static const auto run = cudnn_function<decltype(cudnnSoftmaxBackward)>("cudnnSoftmaxBackward");
  const CudnnScope scope(device);
  const TensorDescriptor d = row_descriptor(rows);
  return taken(run, "cudnnSoftmaxBackward", scope.handle(), algorithm(rows), CUDNN_SOFTMAX_MODE_INSTANCE,
               kOne.of(rows.dtype), d.get(), y, d.get(), dy, kZero.of(rows.dtype), d.get(), dx);
}

}  // namespace stepnet::gpu
