// Nearest: the names that a check's message proposes, which are only looked for where the check fails.
//
//   require(known.count(name) > 0, "there is no blob \"{}\".{}", name, Nearest{name, known});
//
// A check of each of many names that called suggest() would look at all of them for each. Borrows both. Threads: a
// value type.
#pragma once

#include <string>
#include <string_view>

#include "stepnet/error.h"

namespace stepnet {

template <class Names>
struct Nearest {
  std::string_view word;
  const Names& names;
  std::string str() const { return suggest(word, {names.begin(), names.end()}); }
};
template <class Names>
Nearest(std::string_view, const Names&) -> Nearest<Names>;

}  // namespace stepnet
