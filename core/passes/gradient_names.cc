#include "core/passes/gradient_names.h"

#include <fmt/format.h>

#include <cstdio>

#include "core/passes/gradients.h"

namespace stepnet {

GradientNames::GradientNames(const NetDef& net) {
  int order = 1;
  forward_.insert(net.external_input().begin(), net.external_input().end());
  for (const OperatorDef& op : net.op()) {
    forward_.insert(op.input().begin(), op.input().end());
    forward_.insert(op.output().begin(), op.output().end());
    if (op.is_gradient_op()) order = std::max(order, 2);
    for (const std::string& name : op.output()) {
      int n = 0;
      if (op.is_gradient_op() && name.size() > 2 && name[0] == 'g' && std::sscanf(name.c_str(), "g%d/", &n) == 1)
        order = std::max(order, n + 1);
    }
  }
  if (order > 1) prefix_ = fmt::format("g{}/", order);
}

std::string GradientNames::fresh(const std::string& base) {
  std::string name = base;
  for (int n = 1; is_foreign(name) || taken(name); ++n) name = fmt::format("{}_{}", base, n);
  return name;
}

std::string GradientNames::temporary(const std::string& blob) {
  std::string name;
  do {
    name = fmt::format("{}_{}_grad_tmp_{}", prefix_, blob, temporaries_++);
  } while (is_foreign(name) || taken(name));
  return name;
}

std::string GradientNames::split(const std::string& base, const std::function<bool(const std::string&)>& usable) const {
  const std::string stem = base.substr(base.starts_with(prefix_) ? prefix_.size() : 0);
  for (int n = 0;; ++n) {
    const std::string name = fmt::format("{}_{}_autosplit_{}", prefix_, stem, n);
    if (!is_foreign(name) && usable(name)) return name;
  }
}

std::string GradientNames::unused(const std::string& base) const {
  if (!is_foreign(base) && holders(base) == 0) return base;
  return split(base, [&](const std::string& name) { return holders(name) == 0; });
}

int GradientNames::writes(const std::string& name) const {
  const auto it = writes_.find(name);
  return it == writes_.end() ? 0 : it->second;
}

int GradientNames::holders(const std::string& name) const {
  const auto it = holders_.find(name);
  return it == holders_.end() ? 0 : it->second;
}

void GradientNames::hold(const GradientName& name) {
  for (const std::string& part : {name.dense, name.indices, name.values})
    if (!part.empty()) ++holders_[part];
}

void GradientNames::release(const GradientName& name) {
  for (const std::string& part : {name.dense, name.indices, name.values})
    if (!part.empty()) --holders_[part];
}

}  // namespace stepnet
