// print_text, print_note: what a command prints, to standard output and to standard error. Control characters in it are
// written out (core/visible_text.h), for names come from nets and files. What is the result itself, such as a text that
// was drawn, is written by other means.
//
// Threads: pure functions.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "core/visible_text.h"

namespace stepnet::tools {

template <class... A>
void print_text(fmt::format_string<A...> format, A&&... args) {
  fmt::print("{}", visible_text(fmt::format(format, std::forward<A>(args)...)));
}

template <class... A>
void print_note(fmt::format_string<A...> format, A&&... args) {
  fmt::print(stderr, "{}", visible_text(fmt::format(format, std::forward<A>(args)...)));
}

}  // namespace stepnet::tools
