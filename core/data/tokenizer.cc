#include "core/data/tokenizer.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "core/data/subwords.h"
#include "core/io/files.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

constexpr std::string_view kUnknown = "<unk>", kEnd = "<eos>", kSubWords = "<subwords>";

// The entries of a list, each once, and what they are numbered.
class Entries {
 public:
  // From line `first` on.
  Entries(std::string text, size_t first, const std::string& path) : text_(std::move(text)) {
    const std::vector<std::string_view> lines = lines_of(text_);
    require(lines.size() > first && lines[first] == kUnknown,
            "{} is no list of words or sub-words: it must begin with {}", path, kUnknown);
    for (size_t i = first; i < lines.size(); ++i) {
      bool is_word = false;
      each_word(lines[i], [&](std::string_view word) { is_word = word.size() == lines[i].size(); });
      require(is_word, "line {} of {} must be one word, but is \"{}\"", i + 1, path, lines[i]);
      require(tokens_.emplace(lines[i], static_cast<int32_t>(i - first)).second, "{} has \"{}\" twice", path, lines[i]);
    }
  }
  Entries(const Entries&) = delete;
  Entries& operator=(const Entries&) = delete;

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  std::optional<int32_t> find(std::string_view entry) const {
    const auto found = tokens_.find(entry);
    return found == tokens_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::string text_;
  std::unordered_map<std::string_view, int32_t> tokens_;  // views of text_
};

class Words final : public Tokenizer {
 public:
  Words(std::string text, const std::string& path) : entries_(std::move(text), 0, path) {}

  int64_t size() const override { return entries_.size(); }
  std::vector<int32_t> encode(std::string_view line) const override {
    std::vector<int32_t> tokens;
    each_word(line, [&](std::string_view word) { tokens.push_back(entries_.find(word).value_or(0)); });
    return tokens;
  }
  std::optional<int32_t> end_of_line() const override { return entries_.find(kEnd); }

 private:
  Entries entries_;
};

class SubWords final : public Tokenizer {
 public:
  SubWords(std::string text, const std::string& path) : entries_(std::move(text), 1, path) {}

  int64_t size() const override { return entries_.size(); }
  std::vector<int32_t> encode(std::string_view line) const override {
    std::vector<int32_t> tokens;
    std::unordered_map<std::string_view, std::vector<int32_t>> known;  // words come again
    each_word(line, [&](std::string_view word) {
      const auto [found, is_new] = known.try_emplace(word);
      if (is_new) found->second = encode_word(std::string(kWordMark).append(word));
      tokens.insert(tokens.end(), found->second.begin(), found->second.end());
    });
    return tokens;
  }
  std::optional<int32_t> end_of_line() const override { return entries_.find(kEnd); }

 private:
  std::vector<int32_t> encode_word(std::string_view word) const {
    std::vector<std::string_view> parts = characters_of(word);
    for (;;) {
      int32_t earliest = std::numeric_limits<int32_t>::max();
      size_t at = 0;
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const std::optional<int32_t> both = entries_.find({parts[i].data(), parts[i].size() + parts[i + 1].size()});
        if (!both || *both >= earliest) continue;
        earliest = *both;
        at = i;
      }
      if (earliest == std::numeric_limits<int32_t>::max()) break;
      parts[at] = {parts[at].data(), parts[at].size() + parts[at + 1].size()};
      parts.erase(parts.begin() + static_cast<int64_t>(at) + 1);
    }
    std::vector<int32_t> tokens;
    for (const std::string_view part : parts) tokens.push_back(entries_.find(part).value_or(0));
    return tokens;
  }

  Entries entries_;
};

}  // namespace

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    if (lines.back().ends_with('\r')) lines.back().remove_suffix(1);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::unique_ptr<Tokenizer> open_tokenizer(const FilePlace& place) {
  const FileReader file(place);
  std::string bytes = file.text_at(0, file.size());
  const std::vector<std::string_view> first = lines_of(std::string_view(bytes).substr(0, kSubWords.size() + 2));
  if (!first.empty() && first.front() == kSubWords) return std::make_unique<SubWords>(std::move(bytes), file.path());
  return std::make_unique<Words>(std::move(bytes), file.path());
}

std::string list_words(std::string_view text, int64_t size) {
  require(size >= 3, "a list of words has {}, {} and others, so its size must be at least 3, but is {}", kUnknown, kEnd,
          size);
  std::unordered_map<std::string_view, int64_t> counts;
  each_word(text, [&](std::string_view word) { ++counts[word]; });
  counts.erase(kUnknown);
  counts.erase(kEnd);
  require(!counts.empty(), "the text has no words");
  std::vector<std::pair<int64_t, std::string_view>> order;
  order.reserve(counts.size());
  for (const auto& [word, count] : counts) order.emplace_back(-count, word);
  std::ranges::sort(order);
  std::string list = fmt::format("{}\n{}\n", kUnknown, kEnd);
  for (size_t i = 0; i < std::min(order.size(), static_cast<size_t>(size - 2)); ++i)
    list.append(order[i].second).push_back('\n');
  return list;
}

std::string list_subwords(std::string_view text, int64_t size) {
  require(size >= 3, "a list of sub-words has {}, {} and others, so its size must be at least 3, but is {}", kUnknown,
          kEnd, size);
  std::string list = fmt::format("{}\n{}\n{}\n", kSubWords, kUnknown, kEnd);
  for (const std::string& entry : find_subwords(text, static_cast<size_t>(size - 2)))
    list.append(entry).push_back('\n');
  return list;
}

}  // namespace stepnet
