// A tensor of one number, such as a learning rate, for kernels: wherever it is, and of whatever type.
#pragma once

#include "gpu/runtime/launch.h"
#include "stepnet/half.h"

namespace stepnet::gpu {

class Scalar {
 public:
  // A tensor of one value; of one on the CPU the value is read now. Throws Error on a type that is no number.
  explicit Scalar(const Tensor& t) : dtype_(t.dtype()) {
    require(t.size() == 1, "{} is not a single value", t);
    require(is_floating(dtype_) || dtype_ == DType::int32 || dtype_ == DType::int64, "{} is not a number", t);
    if (t.device().kind == DeviceKind::cpu)
      value_ = t.item<double>();
    else
      place_ = t.raw();
  }
  __host__ __device__ double value() const {
    if (!place_) return value_;
    switch (dtype_) {
      case DType::float32:
        return *reinterpret_cast<const float*>(place_);
      case DType::float64:
        return *reinterpret_cast<const double*>(place_);
      case DType::float16:
        return *reinterpret_cast<const float16*>(place_);
      case DType::bfloat16:
        return *reinterpret_cast<const bfloat16*>(place_);
      case DType::int32:
        return *reinterpret_cast<const int32_t*>(place_);
      default:
        return static_cast<double>(*reinterpret_cast<const int64_t*>(place_));
    }
  }

 private:
  DType dtype_;
  double value_ = 0;
  const std::byte* place_ = nullptr;
};

// Indices of either type, read on the device.
class Indices {
 public:
  explicit Indices(const Tensor& t) : wide_(t.dtype() == DType::int64), data_(t.raw()), size(t.size()) {
    require(wide_ || t.dtype() == DType::int32, "indices must be int32 or int64, not {}", t);
    require(t.size() == 0 || t.device().kind == DeviceKind::cuda, "{} is on {}, where a GPU cannot read it", t,
            t.device());
  }
  __host__ __device__ int64_t operator[](size_t i) const {
    return wide_ ? reinterpret_cast<const int64_t*>(data_)[i] : reinterpret_cast<const int32_t*>(data_)[i];
  }

 private:
  bool wide_;
  const std::byte* data_;

 public:
  int64_t size;
};

}  // namespace stepnet::gpu
