#include "core/passes/gradient_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "stepnet/gradients.h"

namespace stepnet {

GradientNames::GradientNames(const NetDef& net, const std::string& prefix) : prefix_(prefix) {
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
  if (order > 1 && prefix.empty()) prefix_ = fmt::format("g{}/", order);
}

std::string GradientNames::fresh(const std::string& base) {
  std::string name = base;
  for (int n = 1; is_foreign(name) || taken(name) || is_scope(name); ++n) name = fmt::format("{}_{}", base, n);
  return name;
}

bool GradientNames::is_scope(const std::string& name) const {
  const std::string inside = name + "/";
  const auto foreign = forward_.lower_bound(inside);
  const auto written = writes_.lower_bound(inside);
  return (foreign != forward_.end() && foreign->starts_with(inside)) ||
         (written != writes_.end() && written->first.starts_with(inside));
}

std::string GradientNames::temporary(const std::string& blob) {
  std::string name;
  do {
    name = fmt::format("{}_{}_grad_tmp_{}", prefix_, blob, temporaries_++);
  } while (is_foreign(name) || taken(name));
  return name;
}

std::string GradientNames::split_name(const std::string& stem, int n) const {
  return fmt::format("{}_{}_autosplit_{}", prefix_, stem, n);
}

GradientNames::SplitNumbers GradientNames::splits_among(const std::map<std::string, int>& names) const {
  SplitNumbers found;
  for (const auto& [name, count] : names)
    if (const auto it = numbers_.find(name); it != numbers_.end()) found[it->second.first].insert(it->second.second);
  return found;
}

std::string GradientNames::split(const std::string& base, const std::function<bool(const std::string&)>& usable,
                                 const SplitNumbers& own) {
  const std::string stem = base.substr(base.starts_with(prefix_) ? prefix_.size() : 0);
  Splits& splits = splits_[stem];
  const auto first_usable = [&](const std::set<int>& numbers) {
    const auto it = std::ranges::find_if(numbers, [&](int n) { return usable(split_name(stem, n)); });
    return it == numbers.end() ? splits.next : *it;
  };
  const auto candidates = own.find(stem);
  const int given =
      std::min(first_usable(splits.free), candidates == own.end() ? splits.next : first_usable(candidates->second));
  if (given < splits.next) return split_name(stem, given);
  while (true) {
    const int n = splits.next++;
    const std::string name = split_name(stem, n);
    if (is_foreign(name)) continue;
    numbers_[name] = {stem, n};
    if (holders(name) == 0) splits.free.insert(n);
    if (usable(name)) return name;
  }
}

std::string GradientNames::unused(const std::string& base) {
  const auto usable = [&](const std::string& name) {
    return !is_foreign(name) && holders(name) == 0 && !(is_higher_order() && taken(name));
  };
  return usable(base) ? base : split(base, usable);
}

const std::string& GradientNames::bytes_of(const std::string& name) const {
  const auto it = bytes_of_.find(name);
  return it == bytes_of_.end() ? name : it->second;
}

void GradientNames::take(const std::string& name) {
  ++writes_[name];
  ++byte_writes_[bytes_of(name)];
}

void GradientNames::take_given(const std::string& name) {
  given_.insert(name);
  take(name);
}

void GradientNames::take_alias(const std::string& name, const std::string& of) {
  const std::string bytes = bytes_of(of);
  ++writes_[name];
  if (bytes != name)
    bytes_of_[name] = bytes;
  else
    bytes_of_.erase(name);
}

namespace {

int count_of(const std::map<std::string, int>& counts, const std::string& name) {
  const auto it = counts.find(name);
  return it == counts.end() ? 0 : it->second;
}

}  // namespace

GradientNames::Written GradientNames::written(const std::string& name) const {
  return {count_of(writes_, name), count_of(byte_writes_, bytes_of(name)), bytes_of(name)};
}

int GradientNames::holders(const std::string& name) const { return count_of(byte_holders_, bytes_of(name)); }

void GradientNames::hold(const GradientName& name) {
  for (const std::string& part : {name.dense, name.indices, name.values}) {
    if (part.empty()) continue;
    ++byte_holders_[bytes_of(part)];
    holders_[part].push_back(bytes_of(part));
    if (holders_[part].size() > 1) continue;
    if (const auto it = numbers_.find(part); it != numbers_.end())
      splits_[it->second.first].free.erase(it->second.second);
  }
}

void GradientNames::release(const GradientName& name) {
  for (const std::string& part : {name.dense, name.indices, name.values}) {
    if (part.empty()) continue;
    std::deque<std::string>& bytes = holders_[part];
    --byte_holders_[bytes.front()];
    bytes.pop_front();
    if (!bytes.empty()) continue;
    if (const auto it = numbers_.find(part); it != numbers_.end())
      splits_[it->second.first].free.insert(it->second.second);
  }
}

}  // namespace stepnet
