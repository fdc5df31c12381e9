// Words as characters, and as neighbours that become one.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stepnet {

inline constexpr std::string_view kWordMark = "\u2581";

// Calls fn(word) for what blanks part.
template <class Fn>
void each_word(std::string_view line, const Fn& fn) {
  constexpr std::string_view kBlanks = " \t\v\f\r\n";
  for (size_t begin = 0; (begin = line.find_first_not_of(kBlanks, begin)) != line.npos;) {
    const size_t end = line.find_first_of(kBlanks, begin);
    fn(line.substr(begin, end - begin));
    if (end == line.npos) return;
    begin = end;
  }
}

// The characters of UTF-8; a byte that is part of none is one by itself.
std::vector<std::string_view> characters_of(std::string_view text);

// The entries of list_subwords (core/data/tokenizer.h) behind <unk> and <eos>, so many of them.
std::vector<std::string> find_subwords(std::string_view text, size_t size);

}  // namespace stepnet
