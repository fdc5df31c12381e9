#include "stepnet/error.h"

#include <algorithm>
#include <cctype>

#include "core/visible_text.h"

namespace stepnet {

Error::Error(std::string fact, std::string fix) : fact_(std::move(fact)), fix_(std::move(fix)) { compose(); }

Error& Error::add(std::string_view label, std::string_view line) {
  lines_.emplace_back(label, line);
  compose();
  return *this;
}

Error& Error::prefix(std::string_view words) {
  fact_ = fmt::format("{}: {}", words, fact_);
  compose();
  return *this;
}

bool Error::has(std::string_view label) const {
  return std::any_of(lines_.begin(), lines_.end(), [&](const auto& l) { return l.first == label; });
}

void Error::compose() {
  const auto shown = [](const std::string& text) { return visible_text(text, LineEnds::written_out); };
  text_ = shown(fact_);
  for (const auto& [label, line] : lines_) text_ += fmt::format("\n  {:<3} {}", label, shown(line));
  if (!fix_.empty()) text_ += fmt::format("\n  fix {}", shown(fix_));
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

namespace {
constexpr size_t kNear = 2;
// A longer word is no slip of the finger, and the distance takes the product of two lengths.
constexpr size_t kLongestSuggested = 256;

std::string in_lower_case(std::string_view word) {
  std::string lower(word);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}
}  // namespace

std::string suggest(std::string_view word, const std::vector<std::string>& names) {
  std::vector<std::pair<int, std::string>> near;
  if (word.size() > kLongestSuggested) return "";
  const std::string folded = in_lower_case(word);
  for (const std::string& name : names) {
    if (name == word || std::max(word.size(), name.size()) - std::min(word.size(), name.size()) > kNear) continue;
    const int d = edit_distance(folded, in_lower_case(name));
    if (d <= static_cast<int>(kNear) && d < static_cast<int>(name.size())) near.emplace_back(d, name);
  }
  if (near.empty()) return "";
  std::sort(near.begin(), near.end());
  near.erase(std::unique(near.begin(), near.end()), near.end());
  near.resize(std::min<size_t>(near.size(), 3));
  std::string text;
  for (size_t i = 0; i < near.size(); ++i)
    text += fmt::format("{}\"{}\"", i == 0 ? "" : i + 1 == near.size() ? " or " : ", ", near[i].second);
  return fmt::format(" Did you mean {}?", text);
}

}  // namespace stepnet
