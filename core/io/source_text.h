// SourceText: a piece of protobuf text and where each of its bytes stands in the file.
//
// A piece is a whole file, or the content of a string literal in another piece (a step net given as text). Places are
// mapped outwards through the literal's escapes, so a mistake three levels deep still has a line and column in the
// file. Threads: immutable after construction. A piece must outlive the pieces inside it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stepnet {

struct TextPlace {
  int line = 0;    // from 1
  int column = 0;  // from 1, in bytes
};

class SourceText {
 public:
  // A whole file. The text must outlive this. Without text (a binary file) nothing in it has a place.
  SourceText(std::string_view text, std::string file);
  // The content of argument `argument` of `outer`; `text` is the decoded string. Its literals are read from the field
  // that starts at `field_offset` of the outer text; npos: unknown, as in a binary file.
  SourceText(std::string_view text, const SourceText& outer, size_t field_offset, std::string argument);

  std::string_view text() const { return text_; }
  const std::string& file() const;

  // Byte offset of a position as protobuf counts it: from 0, a tab goes to the next multiple of 8.
  size_t offset(int line, int column) const;
  // Place of a byte in this piece.
  TextPlace place(size_t offset) const;
  // Place of a byte in the file; line 0 if it is not known.
  TextPlace file_place(size_t offset) const;
  // "net.pbtxt:40:17, line 3 column 5 of the text in argument "step_net"".
  std::string describe(size_t offset) const;

 private:
  void find_lines();
  size_t to_outer(size_t offset) const;

  std::string_view text_;
  std::string file_;
  const SourceText* outer_ = nullptr;
  std::string argument_;
  std::vector<size_t> lines_;  // offset of each line's first byte
  // Behind each tab: the offset, and the column as protobuf counts it.
  struct TabEnd {
    size_t offset = 0, column = 0;
  };
  std::vector<TabEnd> tabs_;
  // From decoded to outer offsets: between two entries both advance by one byte. Empty: not known.
  std::vector<std::pair<size_t, size_t>> map_;
};

}  // namespace stepnet
