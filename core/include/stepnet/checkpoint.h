// Checkpoints: the state of a training run in one file, from which it goes on.
//
// A folder holds the two newest checkpoints, <name>.ckpt each, and the file `latest` with the name of the newest file
// in one line. A checkpoint is written aside, synced and renamed, and `latest` replaced last, so that a run that is
// killed at any moment leaves a checkpoint that can be read.
//
// The file, version 1, all numbers little endian:
//
//   header    8 bytes "STEPCKPT", u32 version, u64 number of the save, u32 CRC of the bytes before it
//   records   u32 kind, u64 length of the body, u32 CRC of the 12 bytes before it, body, u32 CRC of the body
//     kind 1  text: u32 length of the key, key, value
//     kind 2  tensor: u32 length of the name, name, u8 type (DType), u8 rank, i64 for each dimension, elements in
//             row-major order; a string is u64 length and its bytes
//     kind 3  end: u64 number of records before it; nothing follows
//
// CRC is CRC-32 as in zlib. Saves in a folder are numbered on, so that the newest file is known without clocks.
// Threads: one thread per folder at a time. Errors: Error that names the file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "stepnet/file_place.h"
#include "stepnet/tensor.h"

namespace stepnet {

struct Checkpoint {
  std::map<std::string, std::string> texts;  // iteration, options and the like
  std::map<std::string, Tensor> tensors;     // on the CPU when loaded
};

// Writes <folder>/<name>.ckpt, makes it the latest, and drops all but the two newest. Returns its path. The folder must
// exist.
std::string save_checkpoint(const FilePlace& folder, const std::string& name, const Checkpoint& contents);

// Throws Error that names the file: no checkpoint, another version, truncated, damaged.
Checkpoint load_checkpoint(const FilePlace& place);

struct LoadedCheckpoint {
  Checkpoint contents;
  std::string path;
  std::vector<std::string> notes;  // about newer checkpoints that could not be read
};
// The newest checkpoint that can be read; nothing if the folder has none. Throws Error if it has some, all unreadable.
std::optional<LoadedCheckpoint> load_latest(const FilePlace& folder);

// The file by itself, without its folder.
inline constexpr uint32_t kCheckpointVersion = 1;

void write_checkpoint_file(const FilePlace& place, uint64_t save_number, const Checkpoint& contents);
Checkpoint read_checkpoint_file(const FilePlace& place);
// The number of the save; nothing if the file's header is not a checkpoint's.
std::optional<uint64_t> checkpoint_number(const FilePlace& place);

}  // namespace stepnet
