// net_file: where a file lies that a net names. All operators that open files ask here, and nowhere else.
//
// In a workspace that is confined (Workspace::confine), by itself or by one that it is in, every path starts at the
// root folder and stays below it, whatever the operator says of absolute paths. Else a path starts at the workspace's
// root_folder, or is used as it is.
// Threads: pure functions.
#pragma once

#include <string>

#include "core/io/file_place.h"
#include "core/tensor/workspace.h"

namespace stepnet {

enum class PathStart { root_folder, as_it_is };

// Throws Error if the path is empty, or leaves the folder that the workspace is confined to.
FilePlace net_file(const Workspace& workspace, const std::string& path, PathStart start);
inline PathStart path_start(bool absolute) { return absolute ? PathStart::as_it_is : PathStart::root_folder; }

// Adds a line to a file that a net names, or starts it anew with it. The line is there whole or not at all.
void append_line(const FilePlace& place, const std::string& line, bool anew = false);

}  // namespace stepnet
