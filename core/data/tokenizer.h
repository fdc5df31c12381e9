// Text as tokens: the words of a list, or the sub-words of another.
//
// Both lists are texts with an entry on each line; its token is its line among the entries, counted from 0. <unk>, the
// first one, stands for all that the list does not have; <eos>, if it is there, for the end of a line. Words are what
// blanks part.
//
// A list of sub-words begins with a line <subwords>, which is no entry. A word, with the mark U+2581 before it, is its
// characters at first; then the two neighbours that together are the earliest entry become one, the first two of equal
// ones, as long as there are any.
// Source: R. Sennrich, B. Haddow, A. Birch, Neural Machine Translation of Rare Words with Subword Units, 2016; the mark
// is that of T. Kudo, J. Richardson, SentencePiece, 2018.
//
// Threads: a Tokenizer is immutable; functions are pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stepnet/file_place.h"

namespace stepnet {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int64_t size() const = 0;                                      // tokens are below
  virtual std::vector<int32_t> encode(std::string_view line) const = 0;  // without what ends a line
  virtual std::optional<int32_t> end_of_line() const = 0;
};

// Throws Error if the file is neither list.
std::unique_ptr<Tokenizer> open_tokenizer(const FilePlace& place);

// The lines of a text; an end of line at its end begins no other.
std::vector<std::string_view> lines_of(std::string_view text);

// A list of `size` words: <unk>, <eos>, and the text's most frequent ones; of those that are as frequent, those that
// come first in the order of bytes. It is shorter if the text has fewer. Throws Error if the size is below 3.
std::string list_words(std::string_view text, int64_t size);

// A list of `size` sub-words: <unk>, <eos>, the mark and the text's characters, and then, one by one, the two
// neighbours that stand together most often, of equal ones those with the smallest tokens. Throws Error if there are
// more characters, or fewer neighbours that stand together twice.
std::string list_subwords(std::string_view text, int64_t size);

}  // namespace stepnet
