// Jacobians of nets in one pass, compared with the rows that ordinary backward passes give one by one.
//
// Threads: not for concurrent use.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/passes/jacobians.h"
#include "stepnet/gradient_check.h"
#include "tests/core/gradient_testing.h"

namespace stepnet::testing {

struct RowCounts {
  int jacobians = 0;  // that were compared
  int refused = 0;    // that an ordinary backward pass refuses, too
};

// The Jacobians of each of the subject's outputs with respect to those of its inputs that the net
// does not write. "" or what is wrong first.
std::string compare_jacobians(const GradientSubject& subject, RowCounts& counts);

// The Jacobians of an output by inputs, from one backward pass for each element of the output.
std::map<std::string, Tensor> rows_one_by_one(const GradientSubject& subject, const std::string& output,
                                              const std::vector<std::string>& inputs);
// "" or where the first is not the second, but for rounding.
std::string row_difference(const Tensor& made, const Tensor& rows);

// Of blobs of one type.
JacobianRequest request_of(const std::string& output, const std::vector<std::string>& inputs,
                           const std::map<std::string, Shape>& shapes, DType dtype = DType::float64);

// Two layers and a Softmax, from x to y, and the shapes of what they read.
extern const Lines kLayers;
std::map<std::string, Shape> layer_shapes(int64_t outputs);

}  // namespace stepnet::testing
