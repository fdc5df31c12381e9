// Text as training data: a vocabulary of bytes, and batches of several streams that are read side by side.
//
// A stream is a contiguous part of the text. Batch k holds timesteps k*T .. k*T + T-1 of every stream, so that a
// recurrent state carried from one batch to the next has seen everything before. Tensors are time-major.
// Threads: a Vocabulary is immutable; a TextStreams belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stepnet/file_place.h"
#include "stepnet/tensor.h"

namespace stepnet {

// The distinct bytes that a net knows; a token is an index into them.
class Vocabulary {
 public:
  static Vocabulary of_text(std::string_view text);  // in byte order; throws Error if the text is empty
  explicit Vocabulary(std::string bytes);            // in the order given; throws Error if empty or a byte is twice

  int size() const { return static_cast<int>(bytes_.size()); }
  const std::string& bytes() const { return bytes_; }
  int index(char byte) const { return index_[static_cast<unsigned char>(byte)]; }  // -1: unknown
  char byte(int index) const { return bytes_.at(index); }

  // Tokens of a text. Throws Error with an unknown byte and its offset; `what` is what the message calls the text,
  // and `offset` is where the text begins in it.
  std::string encode(std::string_view text, std::string_view what, int64_t offset = 0) const;

 private:
  std::string bytes_;
  std::array<int16_t, 256> index_{};
};

// A byte as people read it: 'a', or 0xE9.
std::string byte_text(char byte);

// A whole file. Throws Error if it cannot be read or is empty.
std::string read_text_file(const FilePlace& place);

class TextStreams {
 public:
  // `tokens`, one per byte as encode() gives them. Throws Error if a stream would not fill one batch.
  TextStreams(std::string tokens, int64_t batch, int64_t timesteps, std::string_view what = "the text");

  int64_t batch() const { return batch_; }
  int64_t timesteps() const { return timesteps_; }
  // Batches from the start of the streams to their end; what is left of a stream after them is not read.
  int64_t batches() const { return length_ / timesteps_; }
  int64_t position() const { return position_; }  // the next batch, 0 <= position < batches()
  void set_position(int64_t position);            // throws Error out of range
  bool at_start() const { return position_ == 0; }

  // input: int32 [T, B]; target: int32 [T * B], the tokens one place further. Then the position moves on, and from the
  // last batch back to the start.
  void next(Tensor& input, Tensor& target) { next(input, target, 0, batch_); }
  // The same of streams [first, first + streams) alone.
  void next(Tensor& input, Tensor& target, int64_t first, int64_t streams);
  // The same for timesteps [begin, begin + count) of streams [first, first + streams), wherever the position is.
  void copy(int64_t begin, int64_t count, int64_t first, int64_t streams, Tensor& input, Tensor& target) const;

  int64_t length() const { return length_; }  // tokens to predict in each stream
  // Tokens behind the last stream, fewer than there are streams; they belong to the last stream's text, so its
  // timesteps may go up to length() + tail().
  int64_t tail() const { return static_cast<int64_t>(tokens_.size()) - 1 - length_ * batch_; }

 private:
  std::string tokens_;
  int64_t batch_, timesteps_, length_ = 0, position_ = 0;
};

}  // namespace stepnet
