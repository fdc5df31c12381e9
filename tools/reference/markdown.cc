#include "tools/reference/markdown.h"

#include <fmt/format.h>

namespace stepnet::tools {
namespace {

// Text in a cell of a Markdown table.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text.empty() ? "-" : text;
}

}  // namespace

std::string markdown_row(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& text : cells) line += fmt::format(" {} |", cell(text));
  return line + "\n";
}

}  // namespace stepnet::tools
