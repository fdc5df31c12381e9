// Which bytes belong to leaves that require a gradient, such as parameters: their owner keeps them whoever else does.
// Threads: may be used from any thread.
#pragma once

#include <memory>
#include <utility>

#include "core/tensor/tensor.h"

namespace stepnet::autograd {

struct ParameterMarks;

// Held by a leaf for as long as it is one.
class ParameterMark {
 public:
  ParameterMark() = default;
  explicit ParameterMark(const Storage* storage);
  ParameterMark(ParameterMark&& other) noexcept = default;
  ParameterMark& operator=(ParameterMark&& other) noexcept {
    std::swap(all_, other.all_);
    std::swap(storage_, other.storage_);
    return *this;
  }
  ~ParameterMark();

 private:
  std::shared_ptr<ParameterMarks> all_;  // shared, as leaves may outlive the process's statics; null: no mark
  const Storage* storage_ = nullptr;
};

// Whether these are a parameter's bytes, whichever tensor shows them.
bool is_parameter(const Tensor& value);

}  // namespace stepnet::autograd
