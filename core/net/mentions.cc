#include "core/net/mentions.h"

#include <algorithm>

namespace stepnet {

void Mentions::add(const std::string& name) {
  names_.insert(name);
  if (name.find_first_of("\"'") != std::string::npos) quoted_.insert(name);
  if (name.size() < kOneByteLength) lengths_.set(name.size());
  longest_ = std::max(longest_, name.size());
}

std::vector<std::string> Mentions::in(std::string_view serialized) const {
  std::set<std::string> found = quoted_;
  const auto look_up = [&](size_t begin, size_t size) {
    if (size > longest_ || size > serialized.size() - begin) return;
    if (const auto name = names_.find(serialized.substr(begin, size)); name != names_.end()) found.insert(*name);
  };
  for (size_t i = 0; i < serialized.size(); ++i)
    if (const auto size = static_cast<unsigned char>(serialized[i]); size < kOneByteLength && lengths_[size])
      look_up(i + 1, size);
  for (const char quote : {'"', '\''}) {
    size_t begin = serialized.find(quote);
    while (begin != std::string_view::npos) {
      const size_t end = serialized.find(quote, ++begin);
      if (end != std::string_view::npos) look_up(begin, end - begin);
      begin = end;
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace stepnet
