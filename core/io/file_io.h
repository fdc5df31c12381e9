// What all readers and writers of files do with an open file: read and write all of it, and wait for the disk.
//
// The system may take and give bytes in parts, and may be interrupted; these functions go on. What was written survives
// a loss of power after sync_file; a name that a file or a folder was given, took over or lost, after sync_folder of
// the folder that it is in. `name` is what messages call the file. Threads: one thread per file, but read_whole, which
// several may call. Errors: Error that names the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/io/file_place.h"

namespace stepnet {

// What the system says about an error number, such as "No such file or directory".
std::string system_text(int error_number);

// Opens a file to write to, which a confined place must not leave and where it must be a regular file.
int open_to_write(const FilePlace& place, int flags, const std::string& name);
void write_whole(int fd, const void* data, size_t bytes, const std::string& name);
inline void write_whole(int fd, std::string_view text, const std::string& name) {
  write_whole(fd, text.data(), text.size(), name);
}
// Reads from `offset` on. Returns how many bytes there were: fewer than wanted only at the end of the file.
size_t read_whole(int fd, uint64_t offset, void* to, size_t bytes, const std::string& name);

// Does nothing for what cannot be synced, such as a pipe or a terminal.
void sync_file(int fd, const std::string& name);
void sync_folder(const FilePlace& folder);  // throws Error if it is none

}  // namespace stepnet
