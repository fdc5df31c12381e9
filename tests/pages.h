// The Markdown pages of the tree that people read, and the blocks of code in them.
//
// A block's first line says what it is: ```sh are commands, ```protobuf is a whole net, ```proto and ```cpp with a path
// are an excerpt of that file, anything else is for the eye alone. A name after the language is a file: of the tree if
// it has a slash, else one that the page's commands find where they run.
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

namespace stepnet::testing {

struct CodeBlock {
  int line = 0;  // of its opening fence, from 1
  std::string language, name, text;
};

struct Page {
  std::string path, text;  // the path from the root of the tree
  std::vector<CodeBlock> blocks;

  std::string prose() const;                        // the text without blocks; lines keep their numbers
  std::vector<std::string> inline_code() const;     // what stands between backticks in the prose
  std::string place(const CodeBlock& block) const;  // path:line, for messages
};

// README.md, CONTRIBUTING.md and docs/*.md.
std::vector<Page> read_pages();
Page read_page(const std::string& path);

// The lines of a block of commands: comments removed, lines that end in a backslash joined with the next.
std::vector<std::string> command_lines(const std::string& block);

// What GitHub calls a heading in links to it: "## In half types" is "in-half-types".
std::string anchor_of(const std::string& heading);

}  // namespace stepnet::testing
