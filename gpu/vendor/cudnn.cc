#include "gpu/vendor/cudnn.h"

#include <map>

#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

struct DeviceHandle {
  std::recursive_mutex mutex;
  cudnnHandle_t handle = nullptr;
};

// Never destroyed: the device may be gone by then.
DeviceHandle& handle_of(int device) {
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::map<int, DeviceHandle>;
  const std::lock_guard lock(mutex);
  DeviceHandle& found = all[device];
  static const auto create = cudnn_function<decltype(cudnnCreate)>("cudnnCreate");
  if (!found.handle) cudnn_call(create, "cudnnCreate", &found.handle);
  return found;
}

// cuDNN's longer explanation of the last mistake.
std::string last_words() {
  static const auto last = cudnn_function<decltype(cudnnGetLastErrorString)>("cudnnGetLastErrorString");
  std::string text(1024, '\0');
  last(text.data(), text.size());
  text.resize(text.find('\0') == std::string::npos ? text.size() : text.find('\0'));
  return text;
}

template <class D>
D made(cudnnStatus_t (*create)(D*), const char* name) {
  D descriptor = nullptr;
  cudnn_call(create, name, &descriptor);
  return descriptor;
}

}  // namespace

const Library& cudnn_library() {
  static const Library& loaded = *new Library("cuDNN", {"libcudnn.so.9", "libcudnn.so"});
  return loaded;
}

void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  static const auto text = cudnn_function<decltype(cudnnGetErrorString)>("cudnnGetErrorString");
  const std::string more = last_words();
  fail("cuDNN: {} ({}{}{})", text(status), call, more.empty() ? "" : ": ", more);
}

CudnnScope::CudnnScope(int device) : device_(device) {
  DeviceHandle& shared = handle_of(device);
  lock_ = std::unique_lock(shared.mutex);
  handle_ = shared.handle;
  static const auto set_stream = cudnn_function<decltype(cudnnSetStream)>("cudnnSetStream");
  cudnn_call(set_stream, "cudnnSetStream", handle_, current_stream(device));
}

cudnnDataType_t cudnn_type(DType dtype) {
  require(is_floating(dtype), "cuDNN is used for floating elements, not for {}", dtype_name(dtype));
  if (dtype == DType::float16) return CUDNN_DATA_HALF;
  if (dtype == DType::bfloat16) return CUDNN_DATA_BFLOAT16;
  return dtype == DType::float64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

void DestroyTensorDescriptor::operator()(cudnnTensorDescriptor_t d) const {
  cudnn_function<decltype(cudnnDestroyTensorDescriptor)>("cudnnDestroyTensorDescriptor")(d);
}
void DestroyDropoutDescriptor::operator()(cudnnDropoutDescriptor_t d) const {
  cudnn_function<decltype(cudnnDestroyDropoutDescriptor)>("cudnnDestroyDropoutDescriptor")(d);
}
void DestroyRnnDescriptor::operator()(cudnnRNNDescriptor_t d) const {
  cudnn_function<decltype(cudnnDestroyRNNDescriptor)>("cudnnDestroyRNNDescriptor")(d);
}
void DestroyRnnDataDescriptor::operator()(cudnnRNNDataDescriptor_t d) const {
  cudnn_function<decltype(cudnnDestroyRNNDataDescriptor)>("cudnnDestroyRNNDataDescriptor")(d);
}

TensorDescriptor empty_tensor_descriptor() {
  static const auto create = cudnn_function<decltype(cudnnCreateTensorDescriptor)>("cudnnCreateTensorDescriptor");
  return TensorDescriptor(made(create, "cudnnCreateTensorDescriptor"));
}

TensorDescriptor tensor_descriptor(DType dtype, const std::vector<int>& sizes) {
  static const auto set = cudnn_function<decltype(cudnnSetTensorNdDescriptor)>("cudnnSetTensorNdDescriptor");
  TensorDescriptor d = empty_tensor_descriptor();
  std::vector<int> strides(sizes.size(), 1);
  for (size_t i = sizes.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * sizes[i];
  cudnn_call(set, "cudnnSetTensorNdDescriptor", d.get(), cudnn_type(dtype), static_cast<int>(sizes.size()),
             sizes.data(), strides.data());
  return d;
}

DropoutDescriptor dropout_descriptor(const CudnnScope& scope, float probability, void* states, size_t bytes,
                                     const uint64_t* key) {
  static const auto create = cudnn_function<decltype(cudnnCreateDropoutDescriptor)>("cudnnCreateDropoutDescriptor");
  static const auto set = cudnn_function<decltype(cudnnSetDropoutDescriptor)>("cudnnSetDropoutDescriptor");
  static const auto restore = cudnn_function<decltype(cudnnRestoreDropoutDescriptor)>("cudnnRestoreDropoutDescriptor");
  DropoutDescriptor d(made(create, "cudnnCreateDropoutDescriptor"));
  if (probability == 0 || !states)
    cudnn_call(set, "cudnnSetDropoutDescriptor", d.get(), scope.handle(), probability, nullptr, size_t{0}, 0ULL);
  else if (key)
    cudnn_call(set, "cudnnSetDropoutDescriptor", d.get(), scope.handle(), probability, states, bytes,
               static_cast<unsigned long long>(*key));
  else
    cudnn_call(restore, "cudnnRestoreDropoutDescriptor", d.get(), scope.handle(), probability, states, bytes, 0ULL);
  return d;
}

size_t dropout_state_bytes(const CudnnScope& scope) {
  static const auto get = cudnn_function<decltype(cudnnDropoutGetStatesSize)>("cudnnDropoutGetStatesSize");
  size_t bytes = 0;
  cudnn_call(get, "cudnnDropoutGetStatesSize", scope.handle(), &bytes);
  return bytes;
}

RnnDescriptor empty_rnn_descriptor() {
  static const auto create = cudnn_function<decltype(cudnnCreateRNNDescriptor)>("cudnnCreateRNNDescriptor");
  return RnnDescriptor(made(create, "cudnnCreateRNNDescriptor"));
}

RnnDataDescriptor rnn_data_descriptor(DType dtype, int steps, int size, const std::vector<int32_t>& lengths) {
  static const auto create = cudnn_function<decltype(cudnnCreateRNNDataDescriptor)>("cudnnCreateRNNDataDescriptor");
  static const auto set = cudnn_function<decltype(cudnnSetRNNDataDescriptor)>("cudnnSetRNNDataDescriptor");
  RnnDataDescriptor d(made(create, "cudnnCreateRNNDataDescriptor"));
  double zero = 0;  // its bytes are zeros, whatever the type
  cudnn_call(set, "cudnnSetRNNDataDescriptor", d.get(), cudnn_type(dtype), CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
             steps, static_cast<int>(lengths.size()), size, lengths.data(), static_cast<void*>(&zero));
  return d;
}

}  // namespace stepnet::gpu
