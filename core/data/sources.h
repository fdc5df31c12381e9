// What `--data` may name: openers of columns, by the kind of file. column.cc has the table of them.
//
// Threads: pure functions. Errors: Error where a file cannot be read, or the text does not have the source's form.
#pragma once

#include <string>
#include <vector>

#include "core/data/column.h"

namespace stepnet {

// The text `NAME=PATH:PARTS@ID`, of which all but the path may be missing.
struct SourceName {
  std::string text, name, path, parts, id;
};

[[noreturn]] void refuse_source(const SourceName& source);  // as one of no form that is known
std::vector<std::string> split_source(const std::string& text, char by);

std::vector<NamedColumn> open_array(const SourceName& source);
std::vector<NamedColumn> open_archive(const SourceName& source);
std::vector<NamedColumn> open_table(const SourceName& source);
std::vector<NamedColumn> open_recordings(const SourceName& source);
std::vector<NamedColumn> open_database(const SourceName& source);
std::vector<NamedColumn> open_hdf5(const SourceName& source);
std::vector<NamedColumn> open_lines(const SourceName& source);

// Several files, each of which is a sequence: those that a path with * in its file's name matches, or that a .list
// names, a path on each line.
bool has_wildcard(const std::string& path);
std::vector<NamedColumn> open_files(const SourceName& source);

// The rows of a recording, one for each frame.
struct Recording {
  std::shared_ptr<const Column> rows;
  int rate = 0;  // frames per second
};
Recording open_recording(const std::string& path);

}  // namespace stepnet
