// The file format of checkpoints; see core/io/checkpoint.h. Threads: pure functions.
#pragma once

#include <optional>
#include <string>

#include "core/io/checkpoint.h"

namespace stepnet {

inline constexpr uint32_t kCheckpointVersion = 1;

void write_checkpoint_file(const std::string& path, uint64_t save_number, const Checkpoint& contents);
Checkpoint read_checkpoint_file(const std::string& path);
// The number of the save; nothing if the file's header is not a checkpoint's.
std::optional<uint64_t> checkpoint_number(const std::string& path);

}  // namespace stepnet
