// visible_text: text of nets and files as it may be shown on a terminal.
//
// A name in a net may hold any bytes, and a terminal obeys some of them: control characters are written out here, the
// one that starts escape codes as \x1b. All messages of Error are made so, and all that the command prints.
// Threads: a pure function.
#pragma once

#include <string>
#include <string_view>

namespace stepnet {

enum class LineEnds { stay, written_out };  // of a whole message tabs and line ends stay, of a name nothing does

std::string visible_text(std::string_view text, LineEnds ends = LineEnds::stay);

}  // namespace stepnet
