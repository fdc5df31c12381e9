// Tensors as .npy files, NumPy's format for one array.
//
// Read: versions 1 to 3, little-endian float16/32/64, int8/16/32/64, uint8/16 and bool, in C or Fortran order.
// Written: version 1 where the header fits, in C order; the file is there whole or not at all.
// Threads: pure functions; a NpyFile may be read from several threads.
#pragma once

#include <string>

#include "core/io/byte_source.h"
#include "stepnet/file_place.h"
#include "stepnet/tensor.h"

namespace stepnet {

// An array whose elements stay in the file until they are read, so that it may be larger than memory.
class NpyFile {
 public:
  explicit NpyFile(const FilePlace& place) : NpyFile(file_bytes(place)) {}
  explicit NpyFile(ByteSourcePtr bytes);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const std::string& path() const { return bytes_->name(); }  // for messages
  // Whether elements with the same first index stand together: not in Fortran order with more than one dimension.
  bool has_rows() const { return has_rows_; }
  // Elements [first, first + count) of the file.
  void read(int64_t first, int64_t count, std::byte* to) const;

 private:
  ByteSourcePtr bytes_;
  DType dtype_ = DType::float32;
  Shape shape_;
  bool has_rows_ = true;
  uint64_t begin_ = 0;
};

Tensor read_npy(const NpyFile& file);
inline Tensor read_npy(const FilePlace& place) { return read_npy(NpyFile(place)); }

void write_npy(const FilePlace& place, const Tensor& tensor);

}  // namespace stepnet
