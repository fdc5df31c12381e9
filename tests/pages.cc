// Reads Markdown as far as the pages of this tree use it: fences, headings and backticks.
#include "tests/pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <sstream>

#include "tests/core/temp_folder.h"
#include "tools/source_path.h"

namespace stepnet::testing {
namespace {

constexpr std::string_view kFence = "```";

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == text.npos ? "" : text.substr(begin, end - begin + 1);
}

// A # that begins a word and is outside of quotes begins a comment.
std::string without_comment(const std::string& line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#' && (i == 0 || line[i - 1] == ' ')) {
      return line.substr(0, i);
    }
  }
  return line;
}

}  // namespace

Page read_page(const std::string& path) {
  Page page{.path = path, .text = read_all(source_path(path)), .blocks = {}};
  std::istringstream lines(page.text);
  CodeBlock block;
  bool inside = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.starts_with(kFence)) {
      if (inside) block.text += line + "\n";
      continue;
    }
    if (inside) {
      page.blocks.push_back(block);
    } else {
      block = {.line = number, .language = "", .name = "", .text = ""};
      std::istringstream(line.substr(kFence.size())) >> block.language >> block.name;
    }
    inside = !inside;
  }
  return page;
}

std::vector<Page> read_pages() {
  std::vector<std::string> paths = {"README.md", "CONTRIBUTING.md"};
  for (const auto& entry : std::filesystem::directory_iterator(source_path("docs")))
    if (entry.path().extension() == ".md") paths.push_back("docs/" + entry.path().filename().string());
  std::sort(paths.begin() + 2, paths.end());
  std::vector<Page> pages;
  for (const std::string& path : paths) pages.push_back(read_page(path));
  return pages;
}

std::string Page::prose() const {
  std::string result;
  std::istringstream lines(text);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    const bool fence = line.starts_with(kFence);
    if (!inside && !fence) result += line;
    result += "\n";
    inside = inside != fence;
  }
  return result;
}

std::vector<std::string> Page::inline_code() const {
  const std::string from = prose();
  std::vector<std::string> result;
  for (size_t open = from.find('`'); open != from.npos; open = from.find('`', open)) {
    const size_t close = from.find('`', open + 1);
    if (close == from.npos) break;
    result.push_back(from.substr(open + 1, close - open - 1));
    open = close + 1;
  }
  return result;
}

std::string Page::place(const CodeBlock& block) const { return fmt::format("{}:{}", path, block.line); }

std::vector<std::string> command_lines(const std::string& block) {
  std::vector<std::string> result;
  std::istringstream lines(block);
  std::string so_far;
  for (std::string line; std::getline(lines, line);) {
    line = without_comment(line);
    if (line.ends_with('\\')) {
      so_far += line.substr(0, line.size() - 1);
      continue;
    }
    so_far = trimmed(so_far + line);
    if (!so_far.empty()) result.push_back(so_far);
    so_far.clear();
  }
  return result;
}

std::string anchor_of(const std::string& heading) {
  std::string result;
  for (const char c : trimmed(heading.substr(heading.find_first_not_of('#')))) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || static_cast<unsigned char>(c) > 127)
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (c == ' ') result += '-';
  }
  return result;
}

}  // namespace stepnet::testing
