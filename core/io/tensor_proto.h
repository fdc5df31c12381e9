// Tensors as TensorProto, the public format's message for one tensor or a segment of it.
//
// Nothing that a message says is believed: sizes are checked against the payload before memory is taken. A message that
// cannot be right is an Error. FLOAT16 is kept as bit patterns; BYTE is read as uint8 and never written.
// Threads: pure functions.
#pragma once

#include <string>

#include "stepnet/proto/net.pb.h"
#include "stepnet/tensor.h"

namespace stepnet {

// The whole tensor, without a segment.
TensorProto tensor_to_proto(const Tensor& tensor, const std::string& name = "");
// Elements [begin, end) with the full shape and a segment.
TensorProto tensor_segment_to_proto(const Tensor& tensor, const std::string& name, int64_t begin, int64_t end);

// A message that holds a whole tensor, with or without a segment that says so.
Tensor tensor_from_proto(const TensorProto& proto);

// What a message says about the tensor that it is a segment of; throws Error if that contradicts itself or its payload.
struct TensorSegment {
  DType dtype = DType::undefined;
  Shape shape;
  int64_t begin = 0, end = 0;
};
TensorSegment read_segment(const TensorProto& proto);
// Writes the payload to its place in a CPU tensor of the segment's type and shape.
void copy_segment(const TensorProto& proto, const TensorSegment& segment, Tensor& to);

}  // namespace stepnet
