#include "core/data/subwords.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "stepnet/error.h"

namespace stepnet {
namespace {

using Pair = std::pair<int32_t, int32_t>;

struct PairHash {
  size_t operator()(const Pair& pair) const {
    return std::hash<uint64_t>()(static_cast<uint64_t>(static_cast<uint32_t>(pair.first)) << 32 |
                                 static_cast<uint32_t>(pair.second));
  }
};

// The text's words as tokens, and how often neighbours stand together in all of them.
class Merger {
 public:
  explicit Merger(std::string_view text) {
    std::map<std::string_view, int64_t> counts;
    each_word(text, [&](std::string_view word) { ++counts[word]; });
    require(!counts.empty(), "the text has no words");
    std::set<std::string> characters;
    for (const auto& [word, count] : counts)
      for (const std::string_view character : characters_of(word)) characters.emplace(character);
    characters.erase(std::string(kWordMark));
    entries_.emplace_back(kWordMark);
    entries_.insert(entries_.end(), characters.begin(), characters.end());
    std::map<std::string_view, int32_t> tokens;
    for (const std::string& entry : entries_) tokens.emplace(entry, static_cast<int32_t>(tokens.size()));
    for (const auto& [word, count] : counts) {
      Word made{.tokens = {0}, .count = count};
      for (const std::string_view character : characters_of(word)) made.tokens.push_back(tokens.at(character));
      words_.push_back(std::move(made));
      count_pairs(words_.size() - 1, 1);
    }
  }

  const std::vector<std::string>& entries() const { return entries_; }

  // Makes one of the neighbours that stand together most often; false if none do so twice.
  bool merge() {
    Pair best;
    int64_t most = 1;
    for (const auto& [pair, at] : pairs_)
      if (at.count > most || (at.count == most && most > 1 && pair < best)) {
        best = pair;
        most = at.count;
      }
    if (most < 2) return false;
    const std::string text = entries_[static_cast<size_t>(best.first)] + entries_[static_cast<size_t>(best.second)];
    const auto known = std::ranges::find(entries_, text);
    const auto token = static_cast<int32_t>(known - entries_.begin());
    if (known == entries_.end()) entries_.push_back(text);  // else others made the same before
    const std::set<size_t> where = pairs_[best].words;
    for (const size_t word : where) {
      count_pairs(word, -1);
      replace(words_[word].tokens, best, token);
      count_pairs(word, 1);
    }
    return true;
  }

 private:
  struct Word {
    std::vector<int32_t> tokens;
    int64_t count = 0;
  };
  struct PairPlaces {
    int64_t count = 0;
    std::set<size_t> words = {};
  };

  void count_pairs(size_t word, int64_t sign) {
    const Word& w = words_[word];
    for (size_t i = 0; i + 1 < w.tokens.size(); ++i) {
      PairPlaces& places = pairs_[{w.tokens[i], w.tokens[i + 1]}];
      places.count += sign * w.count;
      if (sign > 0)
        places.words.insert(word);
      else
        places.words.erase(word);
    }
    if (sign > 0) return;
    for (size_t i = 0; i + 1 < w.tokens.size(); ++i) {
      const auto found = pairs_.find({w.tokens[i], w.tokens[i + 1]});
      if (found != pairs_.end() && found->second.count == 0) pairs_.erase(found);
    }
  }

  static void replace(std::vector<int32_t>& tokens, const Pair& pair, int32_t by) {
    std::vector<int32_t> made;
    for (size_t i = 0; i < tokens.size(); ++i)
      if (i + 1 < tokens.size() && tokens[i] == pair.first && tokens[i + 1] == pair.second) {
        made.push_back(by);
        ++i;
      } else {
        made.push_back(tokens[i]);
      }
    tokens = std::move(made);
  }

  std::vector<std::string> entries_;
  std::vector<Word> words_;
  std::unordered_map<Pair, PairPlaces, PairHash> pairs_;
};

// How many bytes the character has that begins here, 1 if it is none of UTF-8.
size_t character_size(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t size = first < 0xC2 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 1;
  if (size > text.size()) return 1;
  for (size_t i = 1; i < size; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 1;
  return size;
}

}  // namespace

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> characters;
  while (!text.empty()) {
    characters.push_back(text.substr(0, character_size(text)));
    text.remove_prefix(characters.back().size());
  }
  return characters;
}

std::vector<std::string> find_subwords(std::string_view text, size_t size) {
  Merger merger(text);
  if (merger.entries().size() > size)
    throw Error(fmt::format("the text has {} characters, so that there are at least {} sub-words, but {} are wanted",
                            merger.entries().size() - 1, merger.entries().size() + 2, size + 2),
                "choose a larger --size");
  while (merger.entries().size() < size)
    if (!merger.merge())
      throw Error(fmt::format("the text gives no more than {} sub-words, but {} are wanted",
                              merger.entries().size() + 2, size + 2),
                  "choose a smaller --size, or give more text");
  return merger.entries();
}

}  // namespace stepnet
