// Place: a line of the program that calls the tape, for messages.
#pragma once

#include <fmt/format.h>

#include <string>

namespace stepnet::autograd {

struct Place {
  const char* file = "";
  int line = 0;
  // As a default argument: the line of the caller. (std::source_location cannot be read by every tool that reads this.)
  static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
  bool known() const { return line > 0; }
  std::string str() const { return known() ? fmt::format("{}:{}", file, line) : "an unknown place"; }
};

}  // namespace stepnet::autograd
