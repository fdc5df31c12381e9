#include "core/keep_values.h"

#include <utility>

namespace stepnet {
namespace {

bool& keeps() {
  thread_local bool keeps = false;
  return keeps;
}

}  // namespace

KeepValues::KeepValues(bool keep) : before_(std::exchange(keeps(), keep)) {}
KeepValues::~KeepValues() { keeps() = before_; }
bool KeepValues::now() { return keeps(); }

}  // namespace stepnet
