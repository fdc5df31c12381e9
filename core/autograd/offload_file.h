// Files of values that are offloaded: bare bytes, whose number and checksum the process keeps.
// Threads: pure functions; one thread per file.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace stepnet::autograd {

// Writes a new file; throws Error, and leaves none, if that cannot be done. The CRC-32 of the bytes. Stops early, with
// whatever is written by then, when `given_up` becomes true.
uint32_t write_offload_file(const std::string& path, const std::byte* data, size_t bytes,
                            const std::atomic<bool>& given_up);
// Throws Error unless the file has exactly these bytes.
void read_offload_file(const std::string& path, std::byte* to, size_t bytes, uint32_t checksum);
void remove_offload_file(const std::string& path) noexcept;

// Makes the folder if there is none, and checks that files can be made there. True if it was made.
bool prepare_offload_folder(const std::string& folder);

}  // namespace stepnet::autograd
