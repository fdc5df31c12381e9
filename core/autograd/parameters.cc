#include "core/autograd/parameters.h"

#include <mutex>
#include <unordered_map>

namespace stepnet::autograd {

struct ParameterMarks {
  std::mutex mutex;
  std::unordered_map<const Storage*, int> count;
};

namespace {

const std::shared_ptr<ParameterMarks>& marks() {
  static const auto marks = std::make_shared<ParameterMarks>();
  return marks;
}

}  // namespace

ParameterMark::ParameterMark(const Storage* storage) : storage_(storage) {
  if (!storage_) return;
  all_ = marks();
  const std::lock_guard lock(all_->mutex);
  ++all_->count[storage_];
}

ParameterMark::~ParameterMark() {
  if (!all_) return;
  const std::lock_guard lock(all_->mutex);
  if (const auto it = all_->count.find(storage_); --it->second == 0) all_->count.erase(it);
}

bool is_parameter(const Tensor& value) {
  const std::lock_guard lock(marks()->mutex);
  return marks()->count.contains(value.storage().get());
}

}  // namespace stepnet::autograd
