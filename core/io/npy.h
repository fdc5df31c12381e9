// Tensors as .npy files, NumPy's format for one array.
//
// Read: versions 1 to 3, little-endian float16/32/64, int8/16/32/64, uint8/16 and bool, in C or Fortran order.
// Written: version 1 where the header fits, in C order; the file is there whole or not at all.
// Threads: pure functions.
#pragma once

#include "stepnet/file_place.h"
#include "stepnet/tensor.h"

namespace stepnet {

Tensor read_npy(const FilePlace& place);
void write_npy(const FilePlace& place, const Tensor& tensor);

}  // namespace stepnet
