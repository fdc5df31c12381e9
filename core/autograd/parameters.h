// Which bytes belong to leaves that require a gradient, such as parameters: their owner keeps them whoever else does.
// Threads: may be used from any thread.
#pragma once

#include <utility>

#include "core/tensor.h"

namespace stepnet::autograd {

// Held by a leaf for as long as it is one.
class ParameterMark {
 public:
  ParameterMark() = default;
  explicit ParameterMark(const Storage* storage);
  ParameterMark(ParameterMark&& other) noexcept : storage_(std::exchange(other.storage_, nullptr)) {}
  ParameterMark& operator=(ParameterMark&& other) noexcept {
    std::swap(storage_, other.storage_);
    return *this;
  }
  ~ParameterMark();

 private:
  const Storage* storage_ = nullptr;
};

// Whether these are a parameter's bytes, whichever tensor shows them.
bool is_parameter(const Tensor& value);

}  // namespace stepnet::autograd
