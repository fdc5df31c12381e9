// Text as a database of training batches, for plans that read TensorProtos.
//
// The text is cut into B streams of equal length; record k holds the timesteps k*T ... k*T + T - 1 of all streams, so a
// state that is carried from one record to the next is always the right one. A record is a TensorProtos of
//   data    float [T, B, V], one-hot
//   target  int32 [T * B], the bytes that follow
// Bytes are numbered in the order of their values, among those that occur.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace stepnet {

struct TextDbOptions {
  std::string db_type = "lmdb";
  int64_t timesteps = 25;
  int64_t batch = 10;
  int64_t width = 0;        // V; 0: as many as different bytes occur
  int64_t max_records = 0;  // 0: all
};

// Returns the number of records. Throws Error: a text that is empty or too short for one record, more different bytes
// than `width`, a database that is already there.
int64_t write_text_db(const std::string& text, const std::string& path, const TextDbOptions& options);

}  // namespace stepnet
