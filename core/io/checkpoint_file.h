// The file format of checkpoints; see core/io/checkpoint.h. Threads: pure functions.
#pragma once

#include <optional>
#include <string>

#include "core/io/checkpoint.h"

namespace stepnet {

inline constexpr uint32_t kCheckpointVersion = 1;

void write_checkpoint_file(const FilePlace& place, uint64_t save_number, const Checkpoint& contents);
Checkpoint read_checkpoint_file(const FilePlace& place);
// The number of the save; nothing if the file's header is not a checkpoint's.
std::optional<uint64_t> checkpoint_number(const FilePlace& place);

}  // namespace stepnet
