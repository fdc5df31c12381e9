// Place: a line of the program that calls the tape, for messages.
#pragma once

#include <fmt/format.h>

#include <string>

#include "core/error.h"

namespace stepnet::autograd {

struct Place {
  const char* file = "";
  int line = 0;
  // As a default argument: the line of the caller. (std::source_location cannot be read by every tool that reads this.)
  static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
  bool known() const { return line > 0; }
  std::string str() const { return known() ? fmt::format("{}:{}", file, line) : "an unknown place"; }
};

// Says where the call was made that an Error came from, unless that is known from a call inside it.
inline void add_call_place(Error& error, Place place) {
  if (!error.has("at")) error.add("at", place.str());
}

}  // namespace stepnet::autograd
