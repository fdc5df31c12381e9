#include "core/autograd/parameters.h"

#include <mutex>
#include <unordered_map>

namespace stepnet::autograd {
namespace {

struct Marks {
  std::mutex mutex;
  std::unordered_map<const Storage*, int> count;
};

Marks& marks() {
  static auto* marks = new Marks;  // never destroyed, as leaves may live until the process ends
  return *marks;
}

}  // namespace

ParameterMark::ParameterMark(const Storage* storage) : storage_(storage) {
  if (!storage_) return;
  const std::lock_guard lock(marks().mutex);
  ++marks().count[storage_];
}

ParameterMark::~ParameterMark() {
  if (!storage_) return;
  const std::lock_guard lock(marks().mutex);
  if (const auto it = marks().count.find(storage_); --it->second == 0) marks().count.erase(it);
}

bool is_parameter(const Tensor& value) {
  const std::lock_guard lock(marks().mutex);
  return marks().count.contains(value.storage().get());
}

}  // namespace stepnet::autograd
