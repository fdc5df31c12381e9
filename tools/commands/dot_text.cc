#include "tools/commands/dot_text.h"

#include <fmt/format.h>

#include <cassert>
#include <cstdint>

namespace stepnet::tools {
namespace {

// The length of the UTF-8 character that the text starts with; 0 if there is none, or if it is a control character.
size_t printable_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7F ? 1 : 0;
  const size_t length = byte(0) >= 0xF0 && byte(0) < 0xF5   ? 4
                        : byte(0) >= 0xE0 && byte(0) < 0xF0 ? 3
                        : byte(0) >= 0xC2 && byte(0) < 0xE0 ? 2
                                                            : 0;
  if (length == 0 || text.size() < length) return 0;
  uint32_t code = byte(0) & (0xFFU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool is_overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool is_character = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF) && code >= 0xA0;
  return is_character && !is_overlong ? length : 0;
}

}  // namespace

std::string dot_quoted(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const size_t length = printable_length(text);
    const char c = text[0];
    if (c == '\n')
      quoted += "\\n";
    else if (c == '"')
      quoted += "\\\"";
    else if (c == '\\')
      quoted += "\\\\";
    else if (c == '&')  // would start the name of a character
      quoted += "&amp;";
    else if (length == 0)
      quoted += fmt::format("\\\\x{:02x}", static_cast<uint8_t>(c));
    else
      quoted += text.substr(0, length);
    text.remove_prefix(std::max<size_t>(1, length));
  }
  return quoted + '"';
}

DotGraph::DotGraph(std::string_view title) {
  nodes_ = fmt::format("digraph {} {{\n  label={};\n  node [fontsize=10];\n  edge [fontsize=9];\n", dot_quoted(title),
                       dot_quoted(title));
}

void DotGraph::open_cluster(std::string_view label) {
  nodes_ += fmt::format("{}subgraph cluster_{} {{\n", indent(), clusters_++);
  ++depth_;
  nodes_ += fmt::format("{}label={};\n", indent(), dot_quoted(label));
}

void DotGraph::close_cluster() {
  assert(depth_ > 0);
  --depth_;
  nodes_ += indent() + "}\n";
}

void DotGraph::node(const std::string& id, std::string_view label, const std::string& attributes) {
  nodes_ += fmt::format("{}{} [label={}, {}];\n", indent(), id, dot_quoted(label), attributes);
}

void DotGraph::edge(const std::string& from, const std::string& to) {
  edges_ += fmt::format("  {} -> {};\n", from, to);
}

void DotGraph::dashed_edge(const std::string& from, const std::string& to, std::string_view label) {
  edges_ += fmt::format("  {} -> {} [style=dashed, label={}];\n", from, to, dot_quoted(label));
}

std::string DotGraph::text() const {
  assert(depth_ == 0);
  return nodes_ + edges_ + "}\n";
}

}  // namespace stepnet::tools
