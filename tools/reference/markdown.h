// Pieces of Markdown that the generated pages share.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

namespace stepnet::tools {

// A row of a table. A cell without text is "-".
std::string markdown_row(const std::vector<std::string>& cells);

}  // namespace stepnet::tools
