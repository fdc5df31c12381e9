// cuDNN 9, loaded when it is first needed: a handle for each device, and descriptors that free themselves.
//
// Errors: a call that fails throws Error with cuDNN's words; the operator is added on the way up.
// Threads: a CudnnScope holds the device's handle for its thread; descriptors belong to one thread at a time.
#pragma once

#include <cudnn.h>

#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "gpu/runtime/stream.h"
#include "gpu/vendor/library.h"
#include "stepnet/shape.h"

namespace stepnet::gpu {

const Library& cudnn_library();

// A function of cuDNN by its declaration: static const auto forward = cudnn_function<decltype(cudnnRNNForward)>("...").
template <class Fn>
Fn* cudnn_function(const char* name) {
  return cudnn_library().function<Fn>(name);
}

// Throws Error unless the call went well.
void check(cudnnStatus_t status, const char* call);

// Calls a function of cuDNN and checks what it says.
template <class Fn, class... A>
void cudnn_call(Fn* function, const char* name, A... args) {
  check(function(args...), name);
}

// The handle of a device, on the calling thread's current stream, as long as the scope is alive.
class CudnnScope {
 public:
  explicit CudnnScope(int device);
  cudnnHandle_t handle() const { return handle_; }

 private:
  DeviceScope device_;
  std::unique_lock<std::recursive_mutex> lock_;
  cudnnHandle_t handle_ = nullptr;
};

cudnnDataType_t cudnn_type(DType dtype);  // of floating elements; throws Error on others

struct DestroyTensorDescriptor {
  void operator()(cudnnTensorDescriptor_t d) const;
};
struct DestroyDropoutDescriptor {
  void operator()(cudnnDropoutDescriptor_t d) const;
};
struct DestroyRnnDescriptor {
  void operator()(cudnnRNNDescriptor_t d) const;
};
struct DestroyRnnDataDescriptor {
  void operator()(cudnnRNNDataDescriptor_t d) const;
};
template <class D, class Destroy>
using Descriptor = std::unique_ptr<std::remove_pointer_t<D>, Destroy>;
using TensorDescriptor = Descriptor<cudnnTensorDescriptor_t, DestroyTensorDescriptor>;
using DropoutDescriptor = Descriptor<cudnnDropoutDescriptor_t, DestroyDropoutDescriptor>;
using RnnDescriptor = Descriptor<cudnnRNNDescriptor_t, DestroyRnnDescriptor>;
using RnnDataDescriptor = Descriptor<cudnnRNNDataDescriptor_t, DestroyRnnDataDescriptor>;

// Dense, row-major.
TensorDescriptor tensor_descriptor(DType dtype, const std::vector<int>& sizes);
TensorDescriptor empty_tensor_descriptor();

// Without states it only says the probability, which is enough to ask for sizes. If `key` is null the states are as
// they are, else they are made from it.
//
// Making them takes a kernel of cuDNN's, and every forward run with dropout pays for it, because every run has a key of
// its own, from the seed, the net, the operator and the iteration: so a run that is resumed or repeated drops the same.
// States that are made once can only be run on with. They cannot be set to another key, as cuDNN takes a seed where
// they are made and nowhere else, nor put forward by a number of draws.
DropoutDescriptor dropout_descriptor(const CudnnScope& scope, float probability, void* states, size_t bytes,
                                     const uint64_t* key);
size_t dropout_state_bytes(const CudnnScope& scope);

RnnDescriptor empty_rnn_descriptor();
// [T, B, size], with zeros behind the end of each sample.
RnnDataDescriptor rnn_data_descriptor(DType dtype, int steps, int size, const std::vector<int32_t>& lengths);

}  // namespace stepnet::gpu
