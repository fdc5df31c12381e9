// Positions in protobuf text: line and column to byte offset, and through string literals to the file.
#include "core/io/source_text.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>

#include <algorithm>
#include <cctype>

namespace stepnet {
namespace {

constexpr size_t kProtobufTab = 8;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f'; }
bool is_octal(char c) { return c >= '0' && c <= '7'; }
bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// Spaces and comments.
size_t skip_blank(std::string_view text, size_t at) {
  while (at < text.size()) {
    if (text[at] == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (is_space(text[at])) {
      ++at;
    } else {
      break;
    }
  }
  return at;
}

// How many bytes the escape at `at` (a backslash) takes.
size_t escape_length(std::string_view text, size_t at) {
  if (at + 1 >= text.size()) return 1;
  const char kind = text[at + 1];
  size_t end = at + 2;
  auto take = [&](size_t most, bool (*digit)(char)) {
    while (most-- > 0 && end < text.size() && digit(text[end])) ++end;
  };
  if (is_octal(kind)) take(2, is_octal);
  if (kind == 'x' || kind == 'X') take(2, is_hex);
  if (kind == 'u') take(4, is_hex);
  if (kind == 'U') take(8, is_hex);
  return end - at;
}

// Decodes the adjacent string literals from `at` on; `map` gets an entry wherever the two texts fall out of step.
std::string decode_literals(std::string_view text, size_t at, std::vector<std::pair<size_t, size_t>>& map) {
  std::string decoded;
  for (at = skip_blank(text, at); at < text.size() && (text[at] == '"' || text[at] == '\'');
       at = skip_blank(text, at)) {
    const char quote = text[at++];
    map.emplace_back(decoded.size(), at);
    while (at < text.size() && text[at] != quote) {
      if (text[at] != '\\') {
        decoded += text[at++];
        continue;
      }
      const size_t length = escape_length(text, at);
      const std::string piece = '"' + std::string(text.substr(at, length));
      google::protobuf::io::Tokenizer::ParseStringAppend(piece, &decoded);
      at += length;
      map.emplace_back(decoded.size(), at);
    }
    ++at;
  }
  return decoded;
}

}  // namespace

SourceText::SourceText(std::string_view text, std::string file) : text_(text), file_(std::move(file)) { find_lines(); }

SourceText::SourceText(std::string_view text, const SourceText& outer, size_t field_offset, std::string argument)
    : text_(text), outer_(&outer), argument_(std::move(argument)) {
  find_lines();
  if (field_offset == std::string_view::npos) return;
  const std::string_view around = outer.text_;
  size_t at = field_offset;
  while (at < around.size() && (std::isalnum(static_cast<unsigned char>(around[at])) || around[at] == '_')) ++at;
  at = skip_blank(around, at);
  if (at < around.size() && around[at] == ':') ++at;
  if (decode_literals(around, at, map_) != text_) map_.clear();
}

void SourceText::find_lines() {
  lines_.push_back(0);
  for (size_t at = text_.find('\n'); at != std::string_view::npos; at = text_.find('\n', at + 1))
    lines_.push_back(at + 1);
  TabEnd last;  // or the start of its line
  size_t line = 0;
  for (size_t at = text_.find('\t'); at != std::string_view::npos; at = text_.find('\t', at + 1)) {
    for (; line < lines_.size() && lines_[line] <= at; ++line) last = {lines_[line], 0};
    const size_t column = last.column + (at - last.offset);
    last = {at + 1, column + kProtobufTab - column % kProtobufTab};
    tabs_.push_back(last);
  }
}

const std::string& SourceText::file() const { return outer_ ? outer_->file() : file_; }

size_t SourceText::offset(int line, int column) const {
  if (line < 0) return 0;
  if (static_cast<size_t>(line) >= lines_.size()) return text_.size();
  const size_t start = lines_[line], wanted = static_cast<size_t>(std::max(column, 0));
  const bool is_last = static_cast<size_t>(line) + 1 == lines_.size();
  const size_t end = is_last ? text_.size() : lines_[line + 1] - 1;
  // The first tab of the line that ends beyond the column.
  const auto of_line = std::ranges::upper_bound(tabs_, start, {}, &TabEnd::offset);
  const auto behind = std::partition_point(of_line, tabs_.end(),
                                           [&](const TabEnd& t) { return t.offset <= end && t.column <= wanted; });
  const TabEnd before = behind == of_line ? TabEnd{start, 0} : *(behind - 1);
  const size_t at = std::min(before.offset + (wanted - before.column), end);
  return behind == tabs_.end() ? at : std::min(at, behind->offset);
}

TextPlace SourceText::place(size_t offset) const {
  const auto next = std::upper_bound(lines_.begin(), lines_.end(), offset);
  return {static_cast<int>(next - lines_.begin()), static_cast<int>(offset - *(next - 1)) + 1};
}

size_t SourceText::to_outer(size_t offset) const {
  // The last entry at or before the offset; entries of empty literals share an offset, and the last one counts.
  const auto next = std::upper_bound(map_.begin(), map_.end(), offset,
                                     [](size_t value, const auto& entry) { return value < entry.first; });
  const auto& [decoded, outer] = *(next - 1);
  return outer + (offset - decoded);
}

TextPlace SourceText::file_place(size_t offset) const {
  if (!outer_) return text_.empty() ? TextPlace{} : place(offset);
  if (map_.empty()) return {};
  return outer_->file_place(to_outer(offset));
}

std::string SourceText::describe(size_t offset) const {
  const TextPlace in_file = file_place(offset);
  std::string text = file();
  if (in_file.line > 0) text += fmt::format(":{}:{}", in_file.line, in_file.column);
  if (outer_) {
    const TextPlace here = place(offset);
    text += fmt::format(", line {} column {} of the text in argument \"{}\"", here.line, here.column, argument_);
  }
  return text;
}

}  // namespace stepnet
