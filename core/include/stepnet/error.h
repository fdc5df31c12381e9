// Error: what a user did wrong, where, and what would be right.
//
// The code that notices a mistake states the fact and, where it can, the fix. Each layer above adds the place it knows
// (blob, operator, net, file:line:column) with `add`, so that the final message reads:
//
//   SoftCap: argument "cap" must be greater than 0, but is -2
//     in  decoder.pbtxt:14:3, operator 3 of step net "decoder", timestep 0 of RecurrentNetwork "dec"
//     op  capped = SoftCap(gates)
//     fix set cap to a positive number
//
// Mistakes of Stepnet's own are assertions, not Errors. Threads: a value type, no shared state.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// What has a str() can stand in a message as it is, and becomes text only when the message is made: the checks of a
// shape function cost nothing as long as they hold.
template <class T>
requires requires(const T& value) {
  { value.str() } -> std::same_as<std::string>;
}
struct fmt::formatter<T> : fmt::formatter<std::string> {
  auto format(const T& value, fmt::format_context& context) const {
    return fmt::formatter<std::string>::format(value.str(), context);
  }
};

namespace stepnet {

class Error : public std::exception {
 public:
  explicit Error(std::string fact, std::string fix = "");

  const char* what() const noexcept override { return text_.c_str(); }
  const std::string& fact() const { return fact_; }

  // Adds a line; `label` is "in", "op" or another short word. Lines keep the order in which they were added.
  Error& add(std::string_view label, std::string_view line);
  // Puts words in front of the fact: "Mul" gives "Mul: fact".
  Error& prefix(std::string_view words);
  // True once some layer has said which operator it was; outer layers then add only their own place.
  bool has(std::string_view label) const;

 private:
  void compose();

  std::string fact_;
  std::string fix_;
  std::vector<std::pair<std::string, std::string>> lines_;
  std::string text_;
};

// Throws Error with a formatted fact.
template <class... A>
[[noreturn]] void fail(fmt::format_string<A...> format, A&&... args) {
  throw Error(fmt::format(format, std::forward<A>(args)...));
}

// Throws Error with a formatted fact unless `ok`.
template <class... A>
void require(bool ok, fmt::format_string<A...> format, A&&... args) {
  if (!ok) [[unlikely]]
    throw Error(fmt::format(format, std::forward<A>(args)...));
}

// The names nearest to `word`, at most three, by edit distance of at most 2; "" if there is none.
// Reads: ` Did you mean "cap"?`
std::string suggest(std::string_view word, const std::vector<std::string>& names);

// The number of single-character insertions, deletions and replacements that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

}  // namespace stepnet
